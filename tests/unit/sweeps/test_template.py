from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.sweeps.hydra import to_hydra
from stoker.sweeps.inline import read_values
from stoker.sweeps.plan import plan_sweep
from stoker.sweeps.quoting import QuotingContext, Scanner

ECHO = f"{shlex.quote(sys.executable)} -c 'import json, sys; print(json.dumps(sys.argv[1:]))'"
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
NASTY = [
    "a b",
    "it's",
    'say "hi"',
    "$HOME",
    "$(date)",
    "`date`",
    "a;b",
    "a\nb",
    "a\\",
    "\\'",
    "-n",
    "*",
    "~",
    "grün ✓ 日本",
    "",
    "!!",
    "{x}",
    "${args}",
    "#x",
    "a\tb\r",
    "&& exit 1",
]


def run(command: str) -> str:
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=True)
    return done.stdout.decode()


def first_command(template: str, value: object) -> str:
    sweep = plan_sweep({"command": template, "parameters": {"x": {"value": value}}}, base="/b")
    return next(iter(sweep)).command


@pytest.mark.parametrize("value", NASTY)
@pytest.mark.parametrize(
    "template",
    [
        "{x}",
        "'{x}'",
        '"{x}"',
        "pre{x}post",
        '"a {x} b"',
        "'a {x} b'",
        "--v={x}",
        '"$(printf %s {x})"',
    ],
)
def test_a_value_arrives_unchanged_at_any_position(template: str, value: str) -> None:
    bare = template.strip("'\"")
    wanted = value if "printf" in template else bare.replace("{x}", value)

    assert json.loads(run(f"{ECHO} {first_command(template, value)}")) == [wanted]


@given(st.lists(TEXTS, min_size=1, max_size=6))
@settings(max_examples=20, deadline=None)
def test_quoting_survives_a_real_shell(values: list[str]) -> None:
    command = f"{ECHO} {{args}} {{x0}} \"{{x0}}\" '{{x0}}' {{params_json}}"
    names = {f"x{number}": {"value": value} for number, value in enumerate(values)}
    sweep = plan_sweep({"command": command, "parameters": names}, base="/b")
    (only,) = sweep

    *arguments, params = json.loads(run(only.command))

    expected = [f"--x{number}={value}" for number, value in enumerate(values)]
    assert arguments == [*expected, values[0], values[0], values[0]]
    assert json.loads(params) == {f"x{number}": value for number, value in enumerate(values)}


def test_all_arguments_pass_through_a_shell_inside_of_quotes() -> None:
    inner = first_command(f'sh -c "{ECHO} {{args}}"'.replace("'", "'"), "it's $HOME")

    assert json.loads(run(inner)) == ["--x=it's $HOME"]


def test_raw_is_not_quoted() -> None:
    assert first_command("{x:raw} {x}", "a b") == "a b 'a b'"


def test_braces_are_doubled_and_the_shells_own_stay() -> None:
    assert (
        first_command("awk '{{print}}' ${HOME} ${A:-b} {x}", 1) == "awk '{print}' ${HOME} ${A:-b} 1"
    )


def test_numbers_lists_and_booleans_are_written_for_programs() -> None:
    sweep = plan_sweep(
        {
            "command": "x {args} {hydra}",
            "parameters": {
                "lr": 1e-5,
                "on": True,
                "none": None,
                "dims": {"value": [64, 64]},
                "text": "a b",
                "map": {"value": {"k": "v w"}},
            },
        }
    )
    (only,) = sweep

    assert shlex.split(only.command)[1:] == [
        "--lr=1e-05",
        "--on=True",
        "--none=None",
        "--dims=[64, 64]",
        "--text=a b",
        '--map={"k": "v w"}',
        "lr=1e-05",
        "on=true",
        "none=null",
        "dims=[64,64]",
        "text='a b'",
        "map={k:'v w'}",
    ]


def test_built_in_placeholders_are_filled_in() -> None:
    sweep = plan_sweep(
        {"command": "x {a} {index} {id} {dir}", "parameters": {"a": [1, 2]}, "name": "n"},
        base="/some base",
    )
    last = list(sweep)[-1]

    assert shlex.split(last.command) == ["x", "2", "1", last.id, f"/some base/results/n/{last.id}"]


@given(TEXTS)
def test_a_text_for_hydra_is_unquoted_only_if_that_is_equivalent(text: str) -> None:
    written = to_hydra(text)

    if written == text:
        assert read_values(text) == [text]
    else:
        assert written[0] == written[-1] == "'"


@pytest.mark.parametrize(
    ("text", "context"),
    [
        ("echo ", QuotingContext.PLAIN),
        ("echo '", QuotingContext.SINGLE),
        ('echo "', QuotingContext.DOUBLE),
        ('echo "$(', QuotingContext.PLAIN),
        ('echo "$(a "', QuotingContext.DOUBLE),
        ('echo "$(( ', QuotingContext.PLAIN),
        ("echo \\' ", QuotingContext.PLAIN),
        ("echo \"it's ", QuotingContext.DOUBLE),
        ("echo 'say \"", QuotingContext.SINGLE),
        ("# don't\necho ", QuotingContext.PLAIN),
        ("echo a#'", QuotingContext.SINGLE),
        ("echo `", QuotingContext.BACKTICK),
        ("echo `a` ", QuotingContext.PLAIN),
        ('echo "$(a)" ', QuotingContext.PLAIN),
        ("(cd x; ", QuotingContext.PLAIN),
    ],
)
def test_the_scanner_tracks_quotes(text: str, context: QuotingContext) -> None:
    scanner = Scanner()
    scanner.read(text)

    assert scanner.context is context


def test_the_example_of_nested_arithmetic() -> None:
    sweep = plan_sweep({"command": 'sh -c "exit $(( {i} % 3 == 0 ))"'}, ["i=range(9)"])

    codes = [
        subprocess.run(["/bin/sh", "-c", each.command], check=False).returncode for each in sweep
    ]

    assert codes == [1, 0, 0, 1, 0, 0, 1, 0, 0]


@pytest.mark.parametrize(
    "place", ["{dir}", '"{dir}"', "'{dir}'", "{dir}/x", '"a {dir}/x"', "'a {dir}'", "$(echo {dir})"]
)
def test_a_portable_command_uses_the_folder_in_the_environment(place: str) -> None:
    definition = {
        "command": f"{ECHO} {{a}} {place} {{args_json_file}}",
        "parameters": {"a": {"value": 1}},
    }
    told = "/somewhere $else/it's"

    (run,) = plan_sweep(definition, base="/b", portable=True)
    (plain,) = plan_sweep(definition, base="/b")

    assert run.dir not in run.command
    assert (run.identity, run.dir) == (plain.identity, plain.dir)
    env = {"STOKER_RUN_DIR": told}
    printed = subprocess.check_output(["/bin/sh", "-c", run.command], env=env)
    expected = place.replace("{dir}", told).strip("'\"" if place[0] in "'\"" else "")
    if place.startswith("$("):
        assert json.loads(printed)[1:-1] == told.split()
    else:
        assert json.loads(printed) == ["1", expected, f"{told}/params.json"]
