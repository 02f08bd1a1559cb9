"""Whatever is written in a sweep file, it is a sweep or a mistake: never a traceback."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import UsageError
from stoker.sweeps.plan import plan_sweep

WORDS = st.sampled_from(
    [
        *(
            "x",
            "a",
            "b",
            "{a}",
            "x {a} {b}",
            "{args}",
            "a == 1",
            "a > b",
            "range(3)",
            "zip([1],[2])",
        ),
        *(
            "uniform(0, 1)",
            "range(",
            "choice()",
            "${program}",
            "grid",
            "random",
            "1h",
            "10G",
            "'",
            "",
        ),
        *("a.b", "lr-x", "/", "..", "\n", "{{", "}", "range(1,2,0)", "logspace(-999,999,3)", "é"),
    ]
)
SCALARS = (
    WORDS | st.integers(-3, 5) | st.floats(width=16) | st.booleans() | st.none() | st.just(10**30)
)
KEYS = st.sampled_from(
    [
        *(
            "a",
            "b",
            "zip",
            "value",
            "values",
            "min",
            "max",
            "mu",
            "sigma",
            "q",
            "distribution",
            "when",
        ),
        *(
            "probabilities",
            "parameters",
            "name",
            "goal",
            "regex",
            "gpus",
            "gpu_mem",
            "timeout",
            "a,b",
        ),
    ]
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
TOP = st.sampled_from(
    [
        *("command", "program", "name", "parameters", "fixed", "exclude", "method", "samples"),
        *("run_cap", "seed", "repeats", "resources", "metric", "dir"),
    ]
)


@given(st.dictionaries(TOP, TREES, max_size=6), st.lists(WORDS.map(lambda w: f"a={w}"), max_size=2))
@settings(max_examples=300)
def test_any_definition_is_a_sweep_or_a_usage_error(tree: dict[str, Any], words: list[str]) -> None:
    with contextlib.suppress(UsageError):
        for _run in itertools.islice(plan_sweep({"command": "x {args}", **tree}, words), 20):
            pass


@given(TREES, st.sampled_from(["grid", "random"]), st.none() | st.integers(1, 5))
@settings(max_examples=300)
def test_any_parameters_are_a_sweep_or_a_usage_error(
    tree: Any, method: str, samples: int | None
) -> None:
    definition = {"command": "x {args}", "parameters": tree, "method": method, "samples": samples}
    with contextlib.suppress(UsageError):
        for run in itertools.islice(plan_sweep(definition), 20):
            assert run.command.startswith("x")
