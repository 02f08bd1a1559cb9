"""The large libraries that a program imports late, and when a worker may import them ahead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.warm.late_imports import find_late_imports, reads_of_environment


def names_in(folder: Path, source: str) -> list[str]:
    script = folder / "train.py"
    script.write_text(source)
    return find_late_imports(str(script)).names


@pytest.mark.parametrize(
    "source",
    [
        "def main():\n    import torch\nmain()",
        "class Net:\n    def build(self):\n        with open('x'):\n            import torch",
        "if __name__ == '__main__':\n    import torch",
        "try:\n    from torch import nn\nexcept ImportError:\n    nn = None",
        "import os\nos.environ['X'] = '1'\nimport torch",
        "import os\nos.environ.setdefault('X', '1')\nimport torch",
        "import os\nos.environ.update({'X': '1'}, WANDB_MODE='offline')\nimport torch",
        "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = input()\nimport torch",
        "import os, subprocess\nenv = dict(os.environ)\nsubprocess.run('x', env=os.environ)\nimport torch",
        "import os\nif 'X' in os.environ or os.environ.get('Y') == os.environ['Z']:\n    pass\nimport torch",
        "import warnings\nwarnings.filterwarnings('ignore')\nimport torch",
        "import sys\nsys.path.append('..')\nimport torch",
        "import os, sys\nsys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))\nimport torch",
        "import argparse, tqdm, yaml\nargs = argparse.ArgumentParser().parse_args()\nimport torch",
        "import importlib\nimportlib.import_module('json')\nimport torch",
    ],
)
def test_a_late_import_of_a_large_library_is_found(tmp_path: Path, source: str) -> None:
    assert names_in(tmp_path, source) == ["torch"]


@pytest.mark.parametrize(
    "hazard",
    [
        "import os\nos.environ['OMP_NUM_THREADS'] = '1'",
        "import os\nos.environ.setdefault('PYTORCH_CUDA_ALLOC_CONF', '')",
        "import os\nos.environ.update(HF_HOME='x')",
        "import os\nos.putenv('MKL_NUM_THREADS', '1')",
        "import os\ndel os.environ['LD_LIBRARY_PATH']",
        "import os\nos.environ[input()] = '1'",
        "import os\nos.environ.update(vars())",
        "import os\nos.environ |= {'X': '1'}",
        "import os\nchange(os.environ)",
        "import os\nos.environb[b'X'] = b'1'",
        "from os import environ\nenviron['X'] = '1'",
        "import sys\nsys.path.insert(0, input())",
        "import sys\nsys.path = []",
        "import sys\nsys.path[0] = 'lib'",
        "import sys\nsys.modules['torch'] = None",
        "import sys\nsys.modules.pop('torch', None)",
        "from sys import path",
        "from dotenv import load_dotenv",
        "import unknown_package",
        "import importlib\nimportlib.import_module(input())",
        "exec(input())",
        "import os\nos.sched_setaffinity(0, [0])",
        "import ctypes\nctypes.CDLL(None).setenv(b'OMP_NUM_THREADS', b'1', 1)",
    ],
)
def test_nothing_is_imported_ahead_of_what_it_may_depend_on(tmp_path: Path, hazard: str) -> None:
    assert names_in(tmp_path, "def main():\n    import torch\n") == ["torch"]
    assert names_in(tmp_path, f"{hazard}\ndef main():\n    import torch\n") == []
    assert names_in(tmp_path, f"def main():\n    import torch\n{hazard}\n") == []


@pytest.mark.parametrize(
    "source",
    [
        "import sys\nif len(sys.argv) > 1:\n    import torch",
        "if True:\n    pass\nelse:\n    import torch",
        "try:\n    pass\nexcept ImportError:\n    import torch",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch",
        "def main(kind):\n    match kind:\n        case 1:\n            import torch",
    ],
)
def test_an_import_that_a_condition_decides_about_is_left_to_the_program(
    tmp_path: Path, source: str
) -> None:
    assert names_in(tmp_path, source) == []


def test_the_program_s_own_modules_are_searched_too(tmp_path: Path) -> None:
    package = tmp_path / "models"
    package.mkdir()
    (package / "__init__.py").write_text("from .net import Net\n")
    (package / "net.py").write_text("import numpy as np\nfrom . import layers\n")
    (package / "layers.py").write_text("import scipy.linalg\n")
    source = "import models\nfrom models.net import Net\nimport torch\n"
    assert names_in(tmp_path, source) == ["numpy", "scipy.linalg", "torch"]
    stamps = find_late_imports(str(tmp_path / "train.py")).stamps
    assert {os.path.basename(path) for path, _ns, _size in stamps} == {
        "train.py",
        "__init__.py",
        "net.py",
        "layers.py",
    }

    (package / "layers.py").write_text("import os\nos.environ['OMP_NUM_THREADS'] = '1'\n")
    assert names_in(tmp_path, source) == []


def test_a_folder_of_the_program_that_hides_a_library_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    source = f"import sys\nsys.path.insert(0, {str(tmp_path / 'lib')!r})\nimport torch\n"
    assert names_in(tmp_path, source) == ["torch"]
    (tmp_path / "lib" / "torch.py").write_text("")
    assert names_in(tmp_path, source) == []
    assert names_in(tmp_path / "lib", "import torch\n") == []


def test_parts_that_the_program_takes_from_a_library_are_found(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "def main():\n    import transformers as tf\n    from torch import nn\n    tf.AutoModel(nn.Linear)\n"
    )
    found = find_late_imports(str(script))
    assert found.parts == [("torch", "nn"), ("transformers", "AutoModel")]


@pytest.mark.parametrize("source", ["def (", "\0", "x = '" + "(" * 3000])
def test_a_program_that_cannot_be_read_has_none(tmp_path: Path, source: str) -> None:
    assert names_in(tmp_path, f"import torch\n{source}") == []
    assert find_late_imports(str(tmp_path / "missing.py")).names == []


def test_a_program_that_is_too_large_has_none(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"part{number}.py").write_text("")
    source = "".join(f"import part{number}\n" for number in range(300))
    assert names_in(tmp_path, source + "import torch\n") == []


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("os.environ.get('X')", {"X"}),
        ("os.getenv('X')", {"X"}),
        ("'X' in os.environ", {"X"}),
        ("os.environb.get(b'X')", {"X"}),
        ("os.environ.copy()", {"X", "Y"}),
        ("os.environ.get('PATH')", set()),
    ],
)
def test_reads_of_variables_are_seen(text: str, read: set[str]) -> None:
    with reads_of_environment({"X", "Y"}) as found:
        eval(text, {"os": os})
    assert found == read
    eval(text, {"os": os})
    assert found == read
