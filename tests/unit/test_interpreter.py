"""How helper processes find Stoker's modules, and nobody else's."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

from stoker import interpreter

TOLD = "import json, sys\nprint(json.dumps([sys.path, sys.argv, __name__, sys.flags.isolated]))\n"


def run(*arguments: str, env: dict[str, str]) -> tuple[list[str], list[str], str, int]:
    words = interpreter.module_command("told", *arguments)
    ended = subprocess.run(words, env={**os.environ, **env}, capture_output=True, check=True)
    path, argv, name, isolated = json.loads(ended.stdout)
    return path, argv, name, isolated


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that Stoker is found in, with a module that tells how it was started."""
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "told.py").write_text(TOLD)
    monkeypatch.setattr(interpreter, "_ROOT", str(folder))
    return folder


def test_a_module_is_run_as_a_program_with_its_arguments(root: Path) -> None:
    _path, argv, name, isolated = run("--ready-fd", "5", "", env={})

    assert argv == [str(root / "told.py"), "--ready-fd", "5", ""]
    assert (name, isolated) == ("__main__", 1)


def test_modules_are_found_in_the_library_first_then_with_stoker_then_in_site_packages(
    root: Path, tmp_path: Path
) -> None:
    path, *_rest = run(env={"PYTHONPATH": str(tmp_path)})

    assert str(tmp_path) not in path
    assert "" not in path
    packages = [entry for entry in path if entry.endswith("-packages")]
    assert path.index(os.path.dirname(json.__path__[0])) < path.index(str(root))
    assert path.index(str(root)) < path.index(packages[0])


@pytest.mark.parametrize("in_use", [True, False])
def test_the_users_site_packages_are_passed_on_where_they_are_in_use(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_use: bool
) -> None:
    """After `pip install --user` the packages that Stoker needs lie there."""
    of_user = str(tmp_path / "user" / "site-packages")
    monkeypatch.setattr(site, "getusersitepackages", lambda: of_user)
    if in_use:
        monkeypatch.syspath_prepend(of_user)

    path, *_rest = run(env={})

    assert (of_user in path) is in_use


def test_stoker_is_started_from_its_own_folder() -> None:
    assert interpreter.module_command("stoker.daemon")[:2] == [sys.executable, "-I"]
    assert (Path(interpreter._ROOT) / "stoker" / "interpreter.py").samefile(interpreter.__file__)
