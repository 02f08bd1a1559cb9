"""The imports that a script makes first, read from its source."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stoker.warm.static_imports import find_static_imports, load_part


def names_in(folder: Path, source: str) -> list[str]:
    script = folder / "train.py"
    script.write_text(source)
    return find_static_imports(str(script)).names


def test_imports_at_the_top_are_found_in_their_order(tmp_path: Path) -> None:
    source = '"""Docs."""\nfrom __future__ import annotations\nimport json, csv\nLR = 0.1\n'
    found = names_in(tmp_path, source + "def train():\n    pass\nfrom email import message\n")
    assert found == ["__future__", "json", "csv", "email"]


@pytest.mark.parametrize(
    "statement",
    [
        'import os; os.environ["OMP_NUM_THREADS"] = "1"',
        "import sys; sys.path.insert(0, 'lib')",
        "configure = print()",
        "if True:\n    import email",
        "for each in []:\n    pass",
    ],
)
def test_imports_behind_a_statement_that_may_change_them_are_left_out(
    tmp_path: Path, statement: str
) -> None:
    assert "csv" not in names_in(tmp_path, f"{statement}\nimport csv\n")


def test_the_search_ends_at_the_users_own_modules(tmp_path: Path) -> None:
    (tmp_path / "csv.py").write_text("")
    (tmp_path / "models").mkdir()
    for own in ("import csv", "import models.net", "from . import near", "import no_such"):
        assert names_in(tmp_path, f"import json\n{own}\nimport email\n") == ["json"]


def test_optional_imports_and_those_for_type_checkers_do_no_harm(tmp_path: Path) -> None:
    source = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import socket
try:
    import csv
except ImportError:
    csv = None
import json
"""
    assert names_in(tmp_path, source) == ["typing", "csv", "json"]


@pytest.mark.parametrize("source", ["def (", "\0", "x = '" + "(" * 3000])
def test_a_script_that_cannot_be_parsed_has_none(tmp_path: Path, source: str) -> None:
    assert names_in(tmp_path, source) == []
    assert find_static_imports(str(tmp_path / "missing.py")).names == []


def test_parts_that_a_package_loads_late_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "lazy_library"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import importlib\n"
        "def __getattr__(name):\n"
        "    if name in ('Config', 'Model'):\n"
        "        return importlib.import_module('lazy_library.' + name.lower())\n"
        "    raise AttributeError(name)\n"
    )
    for part in ("config", "model", "unused"):
        (package / f"{part}.py").write_text("")
    monkeypatch.syspath_prepend(str(package.parent))
    script = tmp_path / "train.py"
    script.write_text(
        "import lazy_library as lazy\nfrom lazy_library import Config, Missing\n"
        "def train():\n    return lazy.Model\n"
    )
    found = find_static_imports(str(script))
    assert found.names == ["lazy_library"]
    __import__("lazy_library")
    for module, part in found.parts:
        load_part(module, part)
    loaded = {name for name in sys.modules if name.startswith("lazy_library.")}
    assert loaded == {"lazy_library.config", "lazy_library.model"}
