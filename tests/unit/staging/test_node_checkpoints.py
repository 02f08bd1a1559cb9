"""Checkpoint folders travel between a node and the head: whole, or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from stoker.staging import folder_swap
from stoker.staging.bundle import pack
from stoker.staging.manifest import StagingError
from stoker.staging.node_cache import CollectedResults, NodeCache, Piece, WorkingCopy
from stoker.staging.node_checkpoints import NodeCheckpoints
from stoker.staging.transfer import bring_checkpoints, ship

LIMIT_BYTES = 10_000


class Node:
    """A node as the head sees it; `unreachable` calls fail before the others come through."""

    def __init__(self, folder: Path) -> None:
        self.cache = NodeCache(str(folder / "node_cache"))
        self.checkpoints = NodeCheckpoints(str(folder / "checkpoints"), self.cache.blobs)
        self.fetched: list[str] = []
        self.unreachable = 0

    def missing(self, manifest: bytes) -> list[str]:
        return self.cache.missing(manifest)

    def put(self, pieces: list[Piece]) -> list[int]:
        return self.cache.put(pieces)

    def lay_out(self, manifest: bytes, name: str) -> WorkingCopy:
        return self.checkpoints.lay_out(manifest, int(name))

    def collect(self, name: str, _results: bytes, limit_bytes: int) -> CollectedResults:
        return self.checkpoints.collect(int(name), limit_bytes)

    def fetch(self, name: str, digest: str, offset: int) -> bytes | None:
        if self.unreachable:
            self.unreachable -= 1
            raise ConnectionError("gone")
        self.fetched.append(digest)
        return self.checkpoints.fetch(int(name), digest, offset)

    def done(self, name: str) -> None:
        self.checkpoints.delete(int(name))


class Places(NamedTuple):
    """The folder of job 7 on the head and on a node."""

    here: Path
    there: Path
    node: Node

    def bring(self, limit_bytes: int = LIMIT_BYTES) -> str | None:
        return bring_checkpoints(
            self.node, "7", str(self.here), limit_bytes, pause=lambda _seconds: None
        )

    def send(self) -> None:
        ship(pack(str(self.here)), self.node, "7", pause=lambda _seconds: None)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    node = Node(tmp_path / "node")
    here, there = tmp_path / "head" / "0" / "7", Path(node.checkpoints.path(7))
    for folder in (here, there):
        folder.mkdir(parents=True)
    return Places(here, there, node)


def read(folder: Path) -> dict[str, str]:
    """All files and links below a folder."""
    return {
        str(path.relative_to(folder)): (
            f"-> {os.readlink(path)}" if path.is_symlink() else path.read_text()
        )
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_folder_becomes_what_it_is_on_the_node(places: Places) -> None:
    write(places.here, old="deleted there", epoch1="same", last="1")
    write(places.there, epoch1="same", last="2", shards__a="a", shards__b="b")
    (places.there / "latest").symlink_to("shards/b")
    assert places.bring() is None
    expected = {
        "epoch1": "same",
        "last": "2",
        "latest": "-> shards/b",
        "shards/a": "a",
        "shards/b": "b",
    }
    assert read(places.here) == expected
    assert len(places.node.fetched) == 3  # the rest has not changed
    assert os.listdir(places.here.parent) == ["7"]


def test_a_folder_goes_to_a_node_that_has_another_one(places: Places) -> None:
    write(places.here, last="2", shards__a="a")
    write(places.there, last="1", stale="x")
    places.send()
    assert read(places.there) == {"last": "2", "shards/a": "a"}
    assert os.listdir(places.there.parent.parent) == ["0"]


def test_a_folder_beyond_the_limit_stays(places: Places) -> None:
    write(places.here, last="1")
    write(places.there, last="2", large="x" * LIMIT_BYTES)
    assert places.bring() == "0 MiB are more than sync.limit"
    assert read(places.here) == {"last": "1"}


def test_an_empty_folder_does_not_replace_checkpoints(places: Places) -> None:
    write(places.here, last="1")
    assert places.bring() is None
    assert read(places.here) == {"last": "1"}


def test_an_interrupted_transfer_changes_nothing_and_goes_on_where_it_stopped(
    places: Places,
) -> None:
    write(places.here, last="1")
    write(places.there, last="2", more="3")
    fetch = places.node.fetch

    def fail(name: str, digest: str, offset: int) -> bytes | None:
        if places.node.fetched:
            raise ConnectionError("gone")
        return fetch(name, digest, offset)

    places.node.fetch = fail  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        places.bring()
    assert read(places.here) == {"last": "1"}
    places.node.fetch = fetch  # type: ignore[method-assign]
    assert places.bring() is None
    assert read(places.here) == {"last": "2", "more": "3"}
    assert len(places.node.fetched) == 2
    assert os.listdir(places.here.parent) == ["7"]


def test_what_an_interrupted_transfer_has_left_of_older_checkpoints_is_removed(
    places: Places,
) -> None:
    write(places.there, last="2")
    places.node.unreachable = 100
    with pytest.raises(ConnectionError):
        places.bring()
    write(places.there, last="3")
    places.node.unreachable = 0
    assert places.bring() is None
    assert os.listdir(places.here.parent) == ["7"]
    assert read(places.here) == {"last": "3"}


def test_an_absolute_link_into_the_folder_becomes_relative(places: Places) -> None:
    write(places.there, shards__b="b")
    (places.there / "latest").symlink_to(places.there / "shards" / "b")
    (places.there / "shards" / "up").symlink_to(places.there)
    (places.there / "data").symlink_to("/datasets")
    assert places.bring() is None
    assert read(places.here) == {"latest": "-> shards/b", "shards/b": "b", "shards/up": "-> .."}


def test_a_file_that_changes_while_it_is_read_keeps_the_folder_there(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(places.there, last="2")

    def change(*_arguments: object) -> tuple[str, int]:
        write(places.there, last="33")
        return "0" * 64, 1

    monkeypatch.setattr("stoker.staging.tree_scan.hash_open", change)
    assert places.bring() == "last: it changes while it is read"
    assert read(places.here) == {}


def test_a_full_disk_of_the_head_changes_nothing(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(places.here, last="1")
    write(places.there, last="2")

    def fail(_new: str, _path: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("stoker.staging.transfer.put_in_place", fail)
    with pytest.raises(StagingError, match=r"cannot write in .*: No space left on device"):
        places.bring()
    assert read(places.here) == {"last": "1"}


def test_a_node_that_restarts_meanwhile_collects_again(places: Places) -> None:
    write(places.there, last="2")
    collect = places.node.collect

    def restart(name: str, _results: bytes, limit_bytes: int) -> CollectedResults:
        found = collect(name, _results, limit_bytes)
        places.node.collect = collect  # type: ignore[method-assign]
        places.node.checkpoints = NodeCheckpoints(
            str(places.there.parent.parent), places.node.cache.blobs
        )
        return found

    places.node.collect = restart  # type: ignore[method-assign]
    assert places.bring() is None
    assert read(places.here) == {"last": "2"}


@pytest.mark.parametrize("can_exchange", [True, False])
def test_folders_change_places_on_every_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    if not can_exchange:

        def refuse(_one: str, _other: str) -> None:
            raise OSError(errno.EINVAL, "Invalid argument")

        monkeypatch.setattr(folder_swap, "_exchange", refuse)
    write(tmp_path / "new", a="new")
    write(tmp_path / "old", a="old")
    folder_swap.put_in_place(str(tmp_path / "new"), str(tmp_path / "old"))
    assert (read(tmp_path / "old"), read(tmp_path / "new")) == ({"a": "new"}, {"a": "old"})
    assert sorted(os.listdir(tmp_path)) == ["new", "old"]


def test_only_old_folders_of_other_jobs_are_pruned(places: Places) -> None:
    checkpoints = places.node.checkpoints
    for job in (7, 8, 9, 1009):
        write(Path(checkpoints.path(job)), last="x")
    for job in (7, 8, 1009):
        for path in (Path(checkpoints.path(job)) / "last", Path(checkpoints.path(job))):
            os.utime(path, (1, 1))
    left = places.there.parent.parent / ".new-x"
    left.mkdir()
    os.utime(left, (1, 1))
    checkpoints.prune({8}, 3600)
    assert sorted(os.listdir(places.there.parent)) == ["8", "9"]
    assert not os.path.exists(checkpoints.path(1009))
    assert not left.exists()


def test_a_change_shows_in_the_signature(places: Places) -> None:
    checkpoints = places.node.checkpoints
    assert not checkpoints.signature(7)
    assert not checkpoints.signature(12)
    write(places.there, shards__a="a")
    first = checkpoints.signature(7)
    assert first
    assert checkpoints.signature(7) == first
    write(places.there, shards__a="aa")
    assert checkpoints.signature(7) != first
