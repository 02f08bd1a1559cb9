from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.gpus.folder_watch import CREATE, FolderChanges

PATIENCE_S = 20.0


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[FolderChanges]:
    watch = FolderChanges()
    yield watch
    watch.close()


def is_readable(watch: FolderChanges, within_s: float = 0.0) -> bool:
    return bool(select.select([watch], [], [], within_s)[0])


def test_a_change_is_seen_once(watch: FolderChanges, tmp_path: Path) -> None:
    assert watch.begin(str(tmp_path))
    (tmp_path / "new").mkdir()
    assert is_readable(watch, PATIENCE_S)
    assert watch.read()["new"] & CREATE
    assert watch.read() == {}
    assert not is_readable(watch)


def test_after_a_burst_changes_are_seen_later(
    watch: FolderChanges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 1000.0)
    assert watch.begin(str(tmp_path))
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        assert watch.read(), number
    (tmp_path / "more").mkdir()
    assert watch.read() == {}
    assert is_readable(watch, PATIENCE_S)
    assert "more" in watch.read()


def test_changes_during_a_rest_are_not_lost(watch: FolderChanges, tmp_path: Path) -> None:
    assert watch.begin(str(tmp_path))
    watch.rest(0.01)
    (tmp_path / "new").mkdir()
    assert is_readable(watch, PATIENCE_S)
    assert "new" in watch.read()
    assert not is_readable(watch)


def test_a_rest_ends_also_where_no_folder_is_watched(watch: FolderChanges, tmp_path: Path) -> None:
    assert not watch.begin(str(tmp_path / "missing"))
    watch.rest(0.01)
    assert is_readable(watch, PATIENCE_S)
    assert watch.read() == {}
    assert not is_readable(watch)


def test_a_folder_that_was_made_anew_is_watched_again(watch: FolderChanges, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    assert watch.begin(str(folder))
    folder.rmdir()
    assert "" in watch.read()
    assert not watch.is_active
    assert not watch.begin(str(folder))
    folder.mkdir()
    assert watch.begin(str(folder))
    (folder / "new").mkdir()
    assert "new" in watch.read()


def test_many_changes_at_once_are_not_read_one_by_one(watch: FolderChanges, tmp_path: Path) -> None:
    assert watch.begin(str(tmp_path))
    for _ in range(2000):
        os.mkdir(tmp_path / "x")
        os.rmdir(tmp_path / "x")
    assert is_readable(watch, PATIENCE_S)
    assert [*watch.read()] == [""]
    (tmp_path / "new").mkdir()
    assert is_readable(watch, PATIENCE_S)
    assert "new" in watch.read()


def test_lost_changes_have_an_empty_name(watch: FolderChanges, tmp_path: Path) -> None:
    assert watch.begin(str(tmp_path))
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for _ in range(most // 2 + 1):
        os.mkdir(tmp_path / "x")
        os.rmdir(tmp_path / "x")
    assert is_readable(watch, PATIENCE_S)
    assert "" in watch.read()
