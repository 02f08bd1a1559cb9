"""Environment of jobs on a node: its own folders and PATH, and what `join` adds."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.cluster import node_environment
from stoker.cluster.node_environment import fit_environment, own_environment, parse_variables
from stoker.errors import StokerError, UsageError

HERE = {"HOME": "/home/me", "PATH": "/usr/bin:/bin", "LANG": "C"}


def test_what_belongs_to_the_machine_is_its_own_and_the_rest_is_the_jobs() -> None:
    own = own_environment("/home/me/.stoker", HERE, {"DATA": "/mnt"}, None)
    job = {
        "HOME": "/home/you",
        "TMPDIR": "/scratch",
        "PATH": "/opt/bin",
        "STOKER_HOME": "/x",
        "XDG_CACHE_HOME": "/home/you/.cache",
        "LANG": "de",
        "SEED": "1",
        "DATA": "/data",
    }
    assert fit_environment(job, own) == {
        "HOME": "/home/me",
        "PATH": "/usr/bin:/bin",
        "STOKER_HOME": "/home/me/.stoker",
        "LANG": "de",
        "SEED": "1",
        "DATA": "/mnt",
    }


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_active_environment_stays_first_if_the_machine_has_it(
    tmp_path: Path, variable: str
) -> None:
    (tmp_path / "bin").mkdir()
    path = f"{tmp_path}/bin:{tmp_path}/missing:/opt/bin"
    job = {"PATH": path, variable: str(tmp_path)}
    own = {"PATH": "/usr/bin"}
    assert fit_environment(job, own)["PATH"] == f"{tmp_path}/bin:/usr/bin"
    assert fit_environment({"PATH": path}, own)["PATH"] == "/usr/bin"


def test_a_setup_adds_what_it_sets(tmp_path: Path) -> None:
    (tmp_path / "activate").write_text("export VENV=1 PATH=/venv/bin:$PATH; unused=2\n")
    setup = f"echo loading; . {tmp_path}/activate; export TEXT=$'a\\nb' STOKER_HOME=/x"
    own = own_environment("/s", HERE, {"VENV": "2"}, setup)
    assert own == {
        "HOME": "/home/me",
        "PATH": "/venv/bin:/usr/bin:/bin",
        "STOKER_HOME": "/s",
        "TEXT": "a\nb",
        "VENV": "2",
    }


def test_a_setup_that_fails_or_hangs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StokerError, match=r"--setup fails \(.*nowhere.*\): source /nowhere"):
        own_environment("/s", HERE, {}, "source /nowhere")
    with pytest.raises(StokerError, match=r"--setup fails \(no reason given\): false"):
        own_environment("/s", HERE, {}, "false")
    monkeypatch.setattr(node_environment, "_SETUP_S", 0.01)
    with pytest.raises(StokerError, match="--setup has not ended"):
        own_environment("/s", HERE, {}, "sleep 60")


def test_variables_are_names_and_values() -> None:
    assert parse_variables(["A=", "B=x=y", "_c=1"]) == {"A": "", "B": "x=y", "_c": "1"}


@pytest.mark.parametrize("text", ["A", "=x", "1A=x", "A-B=x", "Ä=x", "A=\0", "STOKER_HOME=/x"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--env"):
        parse_variables([text])
