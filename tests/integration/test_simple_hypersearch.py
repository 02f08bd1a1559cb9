"""The door of simple_hypersearch: the same lines in the same order."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys

import pytest

PATTERN = "python3 train_dnn.py --lr {lr} --batch_size {bs}"
PARAMETERS = ("-p", "lr", "0.001", "0.0005", "0.0001", "-p", "bs", "32", "64", "128")
GRID = [
    PATTERN.format(lr=lr, bs=bs)
    for lr, bs in itertools.product(("0.001", "0.0005", "0.0001"), ("32", "64", "128"))
]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    path = os.path.join(os.path.dirname(sys.executable), "simple_hypersearch")
    return subprocess.run([path, *words], capture_output=True, text=True, check=False, timeout=30)


def lines_of(*words: str) -> list[str]:
    done = run(*words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_a_grid_varies_the_last_parameter_fastest() -> None:
    assert lines_of(PATTERN, *PARAMETERS, "--sampling-mode", "grid") == GRID


def test_a_shuffled_grid_holds_every_combination_once() -> None:
    assert sorted(lines_of(PATTERN, *PARAMETERS)) == sorted(GRID)


@pytest.mark.parametrize("seed", [0, 1, 42])
def test_the_same_seed_prints_the_lines_of_the_original(seed: int) -> None:
    expected = list(GRID)
    random.seed(seed)
    random.shuffle(expected)

    assert lines_of(PATTERN, *PARAMETERS, "--seed", str(seed)) == expected
    assert lines_of(PATTERN, *PARAMETERS, "--seed", str(seed), "--n-samples", "5") == expected[:5]


def test_the_long_option_and_the_rules_of_format() -> None:
    found = lines_of("echo {{x}} {a:>5}", "--parameter", "a", "1", "--sampling-mode", "grid")

    assert found == ["echo {x}     1"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["echo {b}", "-p", "a", "1"], "asks for {b}, but -p only gives a"),
        (["echo {}", "-p", "a", "1"], "{} without a name"),
        (["echo {a:d}", "-p", "a", "1"], "cannot be filled in"),
        (["echo {a.x}", "-p", "a", "1"], "cannot be filled in"),
        (["echo {a", "-p", "a", "1"], "cannot be filled in"),
        (["echo {a}"], "no parameter is given"),
        (["echo {a}", "-p", "a"], "parameter a has no values"),
        (["echo {a}", "-p", "a", "1", "--n-samples", "-1"], "--n-samples -1"),
        ([], "PATTERN"),
    ],
)
def test_what_does_not_fit_is_one_clear_line(words: list[str], complaint: str) -> None:
    done = run(*words)

    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_reader_that_has_enough_ends_it_quietly() -> None:
    path = os.path.join(os.path.dirname(sys.executable), "simple_hypersearch")
    many = [str(n) for n in range(300)]
    process = subprocess.Popen(
        [path, "echo {a} {b}", "-p", "a", *many, "-p", "b", *many],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None

    assert process.communicate(timeout=30)[1] == b""
