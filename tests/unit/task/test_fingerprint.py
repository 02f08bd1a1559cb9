"""Fingerprints of functions: another one exactly when what a call runs has changed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SCRIPT = """
import functools
from stoker.task.fingerprint import take_fingerprint
import {module} as module

print(take_fingerprint(getattr(module, "train")))
"""
MAIN = """
{text}
from stoker.task.fingerprint import take_fingerprint
print(take_fingerprint(train))
"""


class Code:
    """Takes fingerprints of `train` in fresh processes: imported from a module, or of a script's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(textwrap.dedent(text))

    def imported(self, text: str) -> str:
        self.write("job.py", text)
        return self._run(SCRIPT.format(module="job"))

    def main(self, text: str) -> str:
        return self._run(MAIN.format(text=textwrap.dedent(text)))

    def _run(self, source: str) -> str:
        (self.folder / "script.py").write_text(source)
        words = [sys.executable, "-B", str(self.folder / "script.py")]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def code(tmp_path: Path) -> Code:
    return Code(tmp_path)


BASE = """
    RATE = 2
    def helper(x):
        return x * RATE
    class Net:
        def forward(self, x):
            return helper(x)
    def other():
        return 1
    def train(lr, k=1):
        "Train."
        names = {"a", "b", "c"}
        return Net().forward(lr) + k
    """

CHANGES = {
    "its own code": ("+ k", "- k"),
    "a default": ("k=1", "k=2"),
    "a helper of a helper": ("x * RATE", "x / RATE"),
    "a constant of the module": ("RATE = 2", "RATE = 3"),
    "a value in it": ('"c"', '"d"'),
}
NO_CHANGES = {
    "a comment": ("return 1", "return 1  # one"),
    "another function": ("return 1", "return 2"),
    "its docstring": ('"Train."', '"Train it."'),
    "blank lines": ("class Net", "\n\n    class Net"),
}


@pytest.mark.parametrize("way", ["imported", "main"])
def test_only_a_change_of_the_code_changes_the_fingerprint(code: Code, way: str) -> None:
    take = getattr(code, way)
    before = take(BASE)

    assert take(BASE) == before
    for what, (old, new) in CHANGES.items():
        assert take(BASE.replace(old, new)) != before, what
    for what, (old, new) in NO_CHANGES.items():
        assert take(BASE.replace(old, new)) == before, what


@pytest.mark.parametrize("way", ["imported", "main"])
@pytest.mark.parametrize(
    "use",
    [
        "import tools\ndef train(lr):\n    return tools.scale(lr)\n",
        "from tools import scale\ndef train(lr):\n    return scale(lr)\n",
        "from tools import *\ndef train(lr):\n    return scale(lr)\n",
        "def train(lr):\n    from tools import scale\n    return scale(lr)\n",
        "def train(lr):\n    import tools\n    return tools.scale(lr)\n",
        "import functools, tools\ntrain = functools.partial(tools.scale, 2)\n",
    ],
)
def test_functions_of_other_own_modules_count(code: Code, way: str, use: str) -> None:
    code.write("tools.py", "def scale(x):\n    return x * 2\ndef unused():\n    return 1\n")
    take = getattr(code, way)
    before = take(use)

    code.write("tools.py", "def scale(x):\n    return x * 2\ndef unused():\n    return 2\n")
    assert take(use) == before
    code.write("tools.py", "def scale(x):\n    return x * 3\ndef unused():\n    return 1\n")
    assert take(use) != before


def test_values_of_a_closure_count(code: Code) -> None:
    text = """
    def make(rate, names):
        def train(lr):
            return lr * rate, names
        return train
    train = make({}, {{"a": [1, 2]}})
    """

    assert code.main(text.format(1)) == code.main(text.format(1))
    assert code.main(text.format(1)) != code.main(text.format(2))


def test_the_state_of_a_callable_object_counts(code: Code) -> None:
    text = """
    class Train:
        def __init__(self, rate):
            self.rate = rate
        def __call__(self, lr):
            return lr * self.rate
    train = Train({})
    """

    assert code.main(text.format(1)) != code.main(text.format(2))
    assert code.main(text.format(1)) != code.main(text.format(1).replace("lr *", "lr +"))


def test_an_imported_module_counts_by_its_present_file(code: Code) -> None:
    code.write("job.py", "RATE = 1\ndef train(lr):\n    return lr * RATE\n")
    again = """
import pathlib, job
from stoker.task.fingerprint import take_fingerprint
before = take_fingerprint(job.train)
path = pathlib.Path(job.__file__)
path.write_text(path.read_text().replace("RATE = 1", "RATE = 2"))
print(before == take_fingerprint(job.train))
"""

    assert code._run(again) == "False\n"


@pytest.mark.parametrize(
    "text", ["train = max", "train = lambda lr: lr", "import json; train = json.loads"]
)
def test_every_callable_has_a_fingerprint(code: Code, text: str) -> None:
    assert len(code.main(text).strip()) == 12


def test_arrays_count_by_their_values(code: Code) -> None:
    text = """
    import numpy
    weights = numpy.arange(6).reshape(2, 3).T + {}
    def train(lr):
        return lr * weights
    """

    assert code.main(text.format(0)) == code.main(text.format(0))
    assert code.main(text.format(0)) != code.main(text.format(1))


def test_code_that_cannot_be_inspected_never_has_the_same_fingerprint(code: Code) -> None:
    text = """
    class Odd:
        def __repr__(self):
            raise RuntimeError("no")
    table = {Odd(): 1}
    def train(lr):
        return table
    """

    assert code.main(text) != code.main(text)
