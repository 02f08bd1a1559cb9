"""What the head does on a machine over ssh, in a home of this machine."""

from __future__ import annotations

import io
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.cluster.ssh import on_box
from stoker.errors import StokerError
from stoker.gpus import topology

Home = Callable[..., Path]


@pytest.fixture
def make_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Return a function that makes a Stoker home with these files."""
    home = tmp_path / "home"
    monkeypatch.setenv("STOKER_HOME", str(home))

    def make(*names: str) -> Path:
        home.mkdir(mode=0o700)
        for name in names:
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
        return home

    return make


OF_ADD = ("software/1f/bin/stoker", "cluster/node.json", "cluster/change.lock", "cluster/token")
OF_QUEUE = ("cluster/queues/q/lease_file", "cluster/queues/q/supervisor.journal")


def files(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}


def clear() -> object:
    return on_box.clear({}, io.BytesIO())["kept"]


def test_a_home_that_add_has_made_is_removed(make_home: Home) -> None:
    home = make_home(*OF_ADD, *OF_QUEUE, topology.CACHE)

    assert clear() is None
    assert not home.exists()


def test_what_was_in_the_home_before_stays(make_home: Home) -> None:
    own = (
        "notes.txt",
        "runs/1/run.db",
        "logs/0/1.1.log",
        "cells/a.py",
        "stoker.db",
        topology.CACHE,
    )
    home = make_home(*own, "software/1f/bin/stoker", "cluster/node.json")

    assert clear() == str(home)
    assert files(home) == set(own)


def test_results_and_checkpoints_of_jobs_stay(make_home: Home) -> None:
    own = (
        "cluster/queues/a/checkpoints/0/5/model.pt",
        "cluster/queues/b/node_cache/copies/x/result",
        "cluster/queues/c/logs/7.1.log",
    )
    home = make_home(*own, *OF_ADD, *OF_QUEUE)

    assert clear() == str(home)
    assert files(home) == set(own)


def test_a_home_has_the_folder_of_one_connection_of_its_tunnel(make_home: Home) -> None:
    make_home(*OF_ADD)
    folders = []
    for _ in range(2):
        folders.append(Path(on_box.prepare_tunnel({"digest": "1f"}, io.BytesIO())["folder"]))
        assert stat.S_IMODE(folders[-1].stat().st_mode) == 0o700
        (folders[-1] / "7866").touch()

    assert [folder.exists() for folder in folders] == [False, True]
    clear()
    assert not folders[1].exists()


def test_an_environment_that_cannot_be_completed_does_not_count_as_complete(
    make_home: Home, tmp_path: Path
) -> None:
    home = make_home("notes.txt")
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        # In the place of the program `stoker`.
        archive.add(tmp_path, "../../../bin/stoker", recursive=False)
    stream.seek(0)

    with pytest.raises(StokerError, match="cannot unpack"):
        on_box.unpack({"digest": "1f"}, stream)
    assert files(home) == {"notes.txt"}
    assert on_box.look({}, io.BytesIO())["environments"] == []
