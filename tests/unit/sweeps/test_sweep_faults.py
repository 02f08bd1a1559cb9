"""Every mistake is told in one line, with its place and what to do, before anything is queued."""

from __future__ import annotations

import pytest

from stoker.errors import UsageError
from stoker.sweeps.files import read_toml, read_yaml
from stoker.sweeps.plan import plan_sweep

FAULTS = {
    "unknown key": (
        "command: x {a}\nparamters: {a: 1}",
        r"s.yaml:2: unknown key 'paramters': did you mean 'parameters'\?",
    ),
    "unknown key of a parameter": (
        "command: x {a}\nparameters:\n  a:\n    vaues: [1]",
        r"s.yaml:4: unknown key 'vaues' of the parameter a: did you mean 'values'\?",
    ),
    "unknown resource": (
        "command: x\nresources:\n  gpu: 1",
        r"s.yaml:3: unknown resource 'gpu': did you mean 'gpus'\?",
    ),
    "unknown placeholder": (
        "parameters: {rate: 1}\ncommand: x {rate} {rato}",
        r"s.yaml:2: \{rato\} is in the command, but is not a parameter: did you mean 'rate'\?",
    ),
    "unused parameter": (
        "command: x {lr}\nparameters: {lr: 1, bs: 2}",
        r"s.yaml:1: the command never uses bs: add \{bs\}, \{args\}",
    ),
    "unused repeats": ("command: x\nrepeats: 3", r"s.yaml:1: the command never uses seed"),
    "seed without repeats": ("command: x {seed}", r"s.yaml:1: \{seed\} .* add repeats"),
    "conditional by name": (
        "command: x {a} {b}\nparameters: {a: [1, 2], b: {values: [1], when: a == 1}}",
        r"s.yaml:1: \{b\} is in the command, but not every run has 'b'",
    ),
    "empty list": ("command: x {a}\nparameters:\n  a: []", r"s.yaml:3: a: it has no values"),
    "empty values": (
        "command: x {a}\nparameters:\n  a: {values: []}",
        r"s.yaml:3: a: it has no values",
    ),
    "min > max": (
        "command: x {a}\nsamples: 3\nparameters:\n  a: {min: 2, max: 1}",
        r"s.yaml:4: a: min 2 is greater than max 1",
    ),
    "a logarithm of nothing": (
        "command: x {a}\nsamples: 3\nparameters:\n  a: loguniform(0, 1)",
        r"s.yaml:4: a: min is 0: it must be greater than 0",
    ),
    "values for exponents": (
        (
            "command: x {a}\nsamples: 3\nparameters:\n"
            "  a: {min: 1, max: 5000, distribution: log_uniform}"
        ),
        r"s.yaml:4: a: log_uniform takes exponents of e.*log_uniform_values",
    ),
    "distribution without samples": (
        "command: x {a}\nparameters:\n  a: uniform(0, 1)",
        r"s.yaml:2: a is drawn from a distribution: .*samples: 50",
    ),
    "random without samples": (
        "command: x {a}\nmethod: random\nparameters:\n  a: uniform(0, 1)",
        r"s.yaml:2: random needs a number of samples",
    ),
    "name with a slash": (
        "name: a/b\ncommand: x",
        r"s.yaml:1: the name 'a/b' contains '/' or '..'",
    ),
    "name with dots": ("name: a..b\ncommand: x", r"s.yaml:1: the name 'a..b' contains '/' or '..'"),
    "name like an id": ("name: '12'\ncommand: x", r"s.yaml:1: the name '12' has another meaning"),
    "excludes all": (
        "command: x {a}\nparameters: {a: [1, 2]}\nexclude: [a > 0]",
        r"leave no run",
    ),
    "exclude of an unknown name": (
        "command: x {rate}\nparameters: {rate: [1, 2]}\nexclude: [rat > 0]",
        r"s.yaml:3: 'rat' in 'rat > 0' is not a parameter: did you mean 'rate'\?",
    ),
    "exclude that cannot be read": (
        "command: x {a}\nparameters: {a: [1, 2]}\nexclude:\n  - a == 3\n  - a >",
        r"s.yaml:5: exclude: cannot read the condition 'a >'",
    ),
    "exclude that runs code": (
        "command: x {a}\nparameters: {a: [1, 2]}\nexclude: [__import__('os')]",
        r"s.yaml:3: exclude: '__import__\('os'\)' in the condition .* only parameters",
    ),
    "no order": (
        "command: x {a}\nparameters: {a: [1, b]}\nexclude: [a > 0]",
        r"'b' > 0, which have no order",
    ),
    "conditions in a circle": (
        (
            "command: x {args}\n"
            "parameters: {a: {values: [1], when: b == 1}, b: {values: [1], when: a == 1}}"
        ),
        r"s.yaml:2: the conditions of a, b depend on each other",
    ),
    "bayes without a metric": (
        "command: x {a}\nmethod: bayes\nrun_cap: 5\nparameters: {a: [1, 2]}",
        r"s.yaml:2: bayes needs a metric: metric: {name: val_acc, goal: maximize}",
    ),
    "tpe without a number": (
        "command: x {a}\nmethod: tpe\nmetric: m\nparameters: {a: [1, 2]}",
        r"s.yaml:2: tpe needs a number of runs: samples: 50 \(or -n 50\)",
    ),
    "tpe without parameters": (
        "command: x {a}\nmethod: tpe\nmetric: m\nsamples: 5\nparameters: {a: 1}",
        r"s.yaml:2: tpe has no parameter to choose: add one with several values",
    ),
    "tpe with repeats": (
        "command: x {args}\nmethod: tpe\nmetric: m\nsamples: 5\nrepeats: 2\nparameters: {a: [1, 2]}",
        r"s.yaml:5: tpe has no repeats",
    ),
    "several metrics in a grid": (
        "command: x {a}\nmetric: [m, n]\nparameters: {a: [1, 2]}",
        r"s.yaml:2: several metrics need method: tpe",
    ),
    "early_terminate without a metric": (
        "command: x\nearly_terminate: {type: asha}",
        r"s.yaml:2: early_terminate compares runs by one metric: add metric",
    ),
    "early_terminate of several metrics": (
        (
            "command: x {a}\nmethod: tpe\nsamples: 5\nmetric: [m, n]\nearly_terminate: asha\n"
            "parameters: {a: [1, 2]}"
        ),
        r"s.yaml:5: early_terminate compares runs by one metric, and several are given: leave it out",
    ),
    "early_terminate of another kind": (
        "command: x\nmetric: m\nearly_terminate: {type: hyperbnd}",
        r"s.yaml:3: no early_terminate type 'hyperbnd': did you mean 'hyperband'\?",
    ),
    "hyperband without a first iteration": (
        "command: x\nmetric: m\nearly_terminate: {type: hyperband, max_iter: 27}",
        r"s.yaml:3: hyperband needs min_iter, or max_iter and s",
    ),
    "hyperband without a band": (
        "command: x\nmetric: m\nearly_terminate: {type: hyperband, max_iter: 2, s: 2}",
        r"s.yaml:3: max_iter 2 leaves no iteration: increase it",
    ),
    "an eta of 1": (
        "command: x\nmetric: m\nearly_terminate: {type: asha, eta: 1}",
        r"s.yaml:3: eta is 1: it must be a number greater than 1",
    ),
    "a key of another rule": (
        "command: x\nmetric: m\nearly_terminate: {type: median, eta: 3}",
        r"s.yaml:3: unknown key of median 'eta'",
    ),
    "a grace without a unit": (
        "command: x\nmetric: m\nearly_terminate: {type: median, grace: 30}",
        r"s.yaml:3: grace is 30: write 30s or 5m",
    ),
    "a target that is text": (
        "command: x\nmetric: {name: m, target: high}",
        r"s.yaml:2: target is 'high': it must be a number",
    ),
    "an unknown impute": (
        "command: x\nmetric: {name: m, impute: mean}",
        r"s.yaml:2: impute is 'mean': it must be worst, best or latest",
    ),
    "targets of several metrics": (
        (
            "command: x {a}\nmethod: tpe\nsamples: 5\nmetric: [{name: m, target: 1}, n]\n"
            "parameters: {a: [1, 2]}"
        ),
        r"s.yaml:4: target needs one metric",
    ),
    "unknown method": (
        "command: x\nmethod: gird",
        r"s.yaml:2: no method 'gird': did you mean 'grid'",
    ),
    "no command": ("parameters: {a: 1}", r"the sweep has no command"),
    "empty command": ("command: ''", r"s.yaml:1: the command is empty"),
    "unclosed quote": ("command: 'echo \"a'", r's.yaml:1: the command has a " that is not closed'),
    "a brace": (
        "command: awk '{print $1}'",
        r"s.yaml:1: '\{print \$1\}' in the command is not a placeholder: for a brace write \{\{",
    ),
    "a format": ("command: x {a:>5}\nparameters: {a: 1}", r"s.yaml:1: .* only \{name\} and"),
    "backticks": ("command: echo `x {a}`\nparameters: {a: 1}", r"s.yaml:1: .*backticks"),
    "samples of no number": ("command: x\nsamples: many", r"s.yaml:2: samples is 'many'"),
    "no repeats": ("command: x\nrepeats: 0", r"s.yaml:2: repeats is 0: .* at least 1"),
    "two seeds": (
        "command: x {seed}\nrepeats: 2\nparameters: {seed: 1}",
        r"s.yaml:2: repeats add a seed",
    ),
    "fixed twice": (
        "command: x {a}\nfixed: {a: 1}\nparameters: {a: 2}",
        r"s.yaml:2: 'a' is both fixed and a parameter",
    ),
    "reserved name": (
        "command: x {args}\nparameters:\n  dir: 1",
        r"s.yaml:3: dir: 'dir' is built in",
    ),
    "zip of two lengths": (
        "command: x {args}\nparameters:\n  zip: {a: [1, 2], b: [1]}",
        r"s.yaml:3: zip: the lists of a zip must have the same length: a 2, b 1",
    ),
    "misspelt function": (
        "command: x {a}\nparameters:\n  a: unifrom(0, 1)",
        r"s.yaml:3: a: there is no function unifrom\(…\): did you mean uniform\?",
    ),
    "function with wrong arguments": (
        "command: x {a}\nparameters:\n  a: linspace(0, 1)",
        r"s.yaml:3: a: write linspace\(first, last, count\)",
    ),
    "unknown distribution": (
        "command: x {a}\nparameters:\n  a: {min: 1, max: 2, distribution: log_unifrom}",
        r"s.yaml:3: no distribution 'log_unifrom': did you mean 'log_uniform'\?",
    ),
    "mapping as a value": (
        "command: x {a}\nparameters:\n  a: {b: 1}",
        r"s.yaml:3: unknown key 'b' of the parameter a: nested ones go under parameters:",
    ),
    "infinite": ("command: x {a}\nparameters:\n  a: .inf", r"s.yaml:3: a: inf has no JSON"),
    "dir without id": ("command: x\ndir: results", r"s.yaml:2: dir must contain \{id\}"),
    "unknown name in dir": ("command: x\ndir: '{idd}'", r"s.yaml:2: \{idd\} in dir: did you mean"),
    "goal": (
        "command: x\nmetric:\n  name: a\n  goal: max",
        r"s.yaml:4: goal is 'max': it must be minimize or maximize",
    ),
    "metric's regex": (
        "command: x\nmetric: {name: a, regex: '('}",
        r"s.yaml:2: cannot read the regex '\('",
    ),
    "gpu_mem": ("command: x\nresources: {gpu_mem: 10 apples}", r"s.yaml:2: gpu_mem is '10 apples'"),
    "bare timeout": ("command: x\nresources: {timeout: 90}", r"s.yaml:2: timeout 90 has no unit"),
    "on_nan": ("command: x\nresources: {on_nan: kill}", r"s.yaml:2: on_nan is 'kill': write mark"),
    "bare stall": ("command: x\nresources: {stall: 20}", r"s.yaml:2: stall: '20' has no unit"),
    "the same key twice": ("command: x\ncommand: y", r"s.yaml:2: 'command' is here a second"),
    "broken YAML": ("command: [x", r"s.yaml:\d: "),
    "no mapping": ("- a\n- b", r"a sweep must be a mapping"),
    "nothing": ("", r"s.yaml is empty"),
    "a tag": ("command: !python/object x", r"s.yaml:1: the tag"),
    "unknown macro": (
        "program: a.py\ncommand: ['${progam}']",
        r"s.yaml:2: there is no \$\{progam\}",
    ),
    "macro without program": ("command: ['${program}']", r"s.yaml:1: .* add program: SCRIPT"),
    "NUL": ('command: x {a}\nparameters:\n  a: "a\\0b"', r"s.yaml:3: a: .* NUL"),
    "probabilities in a grid": (
        "command: x {a}\nparameters:\n  a: {values: [1, 2], probabilities: [1, 1]}",
        r"s.yaml:2: probabilities need method: random",
    ),
    "too few probabilities": (
        "command: x {a}\nparameters:\n  a: {values: [1, 2], probabilities: [1]}",
        r"s.yaml:3: a: probabilities must be numbers",
    ),
    "twice in one product": (
        "command: x {args}\nparameters:\n  a: 1\n  zip: {a: [1], b: [2]}",
        r"s.yaml:3: the parameter a is there twice",
    ),
}


@pytest.mark.parametrize(("text", "message"), FAULTS.values(), ids=FAULTS)
def test_an_error_names_its_file_and_line(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        plan_sweep(read_yaml(text, "s.yaml"))

    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


WORDS = {
    "no equals sign": ("lr", "'lr' is not a parameter: write name=value"),
    "nothing": ("lr=", "lr: it has no value"),
    "only blanks": ("lr= ", "lr: it has no value"),
    "missing value": ("lr=1,,2", "lr: a value is missing in '1,,2'"),
    "trailing comma": ("lr=1,", "lr: a value is missing"),
    "open bracket": ("lr=[1", r"lr: a '\]' is missing in '\[1'"),
    "open quote": ("lr='a", "lr: the quote 'a is not closed"),
    "rest": ("lr='a'b", "lr: cannot read 'b'"),
    "misspelt": ("lr=rnage(3)", r"lr: there is no function rnage\(…\): did you mean range\?"),
    "distribution among values": (
        "lr=1,uniform(0,1)",
        "lr: a distribution or a zip must be the only value",
    ),
    "names without zip": ("a,b=1", "a,b: several names need zip"),
    "zip of another size": (r"a,b=zip([1],[2],[3])", "a,b: 2 names, but 3 lists"),
    "no step": ("lr=range(1,2,0)", "lr: the step is 0"),
    "empty range": ("lr=range(0)", "lr: it has no values"),
    "a count of no number": ("lr=linspace(0,1,2.5)", "lr: the count is 2.5"),
    "no name": ("=1", "'=1' is not a parameter"),
    "odd name": ("a b=1", "a b: 'a b' is not a parameter name"),
    "mapping without a value": ("lr={a}", r"lr: a mapping is written \{key:value\}"),
}


@pytest.mark.parametrize(("word", "message"), WORDS.values(), ids=WORDS)
def test_an_error_in_an_override_names_the_parameter(word: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan_sweep({"command": "x {args}"}, [word])


@pytest.mark.parametrize("key", ["command", "name", "dir"])
def test_a_file_that_is_not_text_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="is not valid Unicode text"):
        plan_sweep({"command": "x", key: "a \udcff{id}"})
    with pytest.raises(UsageError, match="is not valid Unicode text"):
        plan_sweep({"command": "x {v}"}, ["v=\udcff"])


def test_errors_in_toml_name_their_line() -> None:
    with pytest.raises(UsageError, match=r"s.toml:3: unknown key 'paramters'"):
        plan_sweep(read_toml('command = "x"\n\n[paramters]\na = 1\n', "s.toml"))
    with pytest.raises(UsageError, match=r"s.toml:2: "):
        read_toml('command = "x"\na = \n', "s.toml")


def test_an_exponentially_growing_alias_is_refused() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
    )

    with pytest.raises(UsageError, match="too large"):
        read_yaml(bomb, "s.yaml")
