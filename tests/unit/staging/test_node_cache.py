from __future__ import annotations

import errno
import hashlib
import os
import threading
from pathlib import Path

import pytest

from stoker.snapshot import copy_content
from stoker.staging.blobs import MAX_CHUNK_BYTES
from stoker.staging.manifest import ManifestEntry, StagingError, TreeManifest
from stoker.staging.node_cache import NodeCache, Piece, WorkingCopy
from stoker.staging.tree_scan import scan

CONTENT = b"print('hello')\n" * 100
DIGEST = hashlib.sha256(CONTENT).hexdigest()
SIZE = len(CONTENT)


@pytest.fixture
def node_cache(tmp_path: Path) -> NodeCache:
    return NodeCache(str(tmp_path / "node_cache"))


@pytest.fixture
def tree(tmp_path: Path) -> bytes:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_bytes(CONTENT)
    return scan(str(folder)).encoded


def lay_out(node_cache: NodeCache, tree: bytes, name: str) -> Path:
    folder = node_cache.lay_out(tree, name).folder
    assert folder is not None
    return Path(folder)


def copies(tmp_path: Path) -> list[str]:
    return os.listdir(tmp_path / "node_cache" / "copies")


def test_pieces_may_come_twice_late_and_with_gaps(node_cache: NodeCache, tree: bytes) -> None:
    assert node_cache.missing(tree) == [DIGEST]
    assert node_cache.put([Piece(DIGEST, SIZE, 500, CONTENT[500:])]) == [0]
    assert node_cache.put([Piece(DIGEST, SIZE, 0, CONTENT[:600])]) == [600]
    assert node_cache.put([Piece(DIGEST, SIZE, 0, CONTENT[:300])]) == [600]
    assert node_cache.put([Piece(DIGEST, SIZE, 500, CONTENT[500:])]) == [SIZE]
    assert node_cache.put([Piece(DIGEST, SIZE, 0, CONTENT[:300])]) == [SIZE]
    assert node_cache.missing(tree) == []


def test_a_content_with_a_wrong_digest_is_discarded(node_cache: NodeCache, tree: bytes) -> None:
    assert node_cache.put([Piece(DIGEST, SIZE, 0, b"x" * SIZE)]) == [0]
    assert node_cache.missing(tree) == [DIGEST]
    assert node_cache.put([Piece(DIGEST, SIZE, 0, CONTENT)]) == [SIZE]


@pytest.mark.parametrize(
    ("digest", "size", "offset", "data"),
    [
        ("../../x", 1, 0, b"x"),
        (DIGEST, 1, 0, b"xx"),
        (DIGEST, 1, -1, b"x"),
        (DIGEST, 1 << 40, 0, b"x"),
        (DIGEST, MAX_CHUNK_BYTES + 1, 0, b"x" * (MAX_CHUNK_BYTES + 1)),
    ],
)
def test_invalid_pieces_are_refused(
    node_cache: NodeCache, digest: str, size: int, offset: int, data: bytes
) -> None:
    with pytest.raises(StagingError):
        node_cache.put([Piece(digest, size, offset, data)])


def test_two_senders_may_send_the_same_content_at_once(node_cache: NodeCache, tree: bytes) -> None:
    start = threading.Barrier(4)
    ends: list[int] = []

    def send() -> None:
        start.wait()
        have = 0
        while have < SIZE:
            (have,) = node_cache.put([Piece(DIGEST, SIZE, have, CONTENT[have : have + 7])])
        ends.append(have)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert ends == [SIZE] * 4
    assert node_cache.missing(tree) == []


def test_changes_in_a_copy_do_not_change_the_cache(
    node_cache: NodeCache, tree: bytes, tmp_path: Path
) -> None:
    node_cache.put([Piece(DIGEST, SIZE, 0, CONTENT)])
    one = lay_out(node_cache, tree, "1.1")
    (one / "train.py").write_text("changed")

    assert lay_out(node_cache, tree, "1.1") == one
    assert (one / "train.py").read_text() == "changed"
    other = lay_out(node_cache, tree, "1.2")
    assert (other / "train.py").read_bytes() == CONTENT


def test_a_damaged_content_is_requested_again_and_leaves_no_partial_copy(
    node_cache: NodeCache, tree: bytes, tmp_path: Path
) -> None:
    node_cache.put([Piece(DIGEST, SIZE, 0, CONTENT)])
    blob = tmp_path / "node_cache" / "blobs" / DIGEST[:2] / DIGEST
    blob.chmod(0o600)
    blob.write_bytes(b"\0" * SIZE)

    assert node_cache.lay_out(tree, "1.1") == WorkingCopy(None, [DIGEST])
    assert copies(tmp_path) == []
    assert node_cache.missing(tree) == [DIGEST]


def test_a_full_disk_gives_one_line_and_leaves_no_partial_copy(
    node_cache: NodeCache, tree: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node_cache.put([Piece(DIGEST, SIZE, 0, CONTENT)])

    def full(_reader: int, _writer: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("stoker.staging.working_copies.copy_content", full)
    with pytest.raises(
        StagingError, match=r"no space is left in .*node_cache: free some"
    ) as raised:
        node_cache.lay_out(tree, "1.1")
    assert raised.value.errno == errno.ENOSPC
    assert copies(tmp_path) == []


def test_a_tree_that_does_not_fit_is_refused_before_it_is_sent(
    node_cache: NodeCache, tmp_path: Path
) -> None:
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    large = TreeManifest([ManifestEntry(b"x", b"f", 0o644, free, DIGEST)]).encoded
    with pytest.raises(StagingError, match="no space is left") as raised:
        NodeCache(str(tmp_path / "node_cache"), limit_bytes=free).missing(large)
    assert raised.value.errno == errno.ENOSPC
    with pytest.raises(StagingError, match="larger than a node's limit"):
        NodeCache(str(tmp_path / "node_cache"), limit_bytes=free - 1).missing(large)


def test_a_finished_copy_is_never_made_again(
    node_cache: NodeCache, tree: bytes, tmp_path: Path
) -> None:
    node_cache.put([Piece(DIGEST, SIZE, 0, CONTENT)])
    folder = lay_out(node_cache, tree, "1.1")
    (folder / "locked").mkdir()
    (folder / "locked" / "x").write_text("x")
    (folder / "locked").chmod(0)

    node_cache.done("1.1")
    node_cache.done("1.1")

    assert copies(tmp_path) == []
    with pytest.raises(StagingError, match="is finished"):
        node_cache.lay_out(tree, "1.1")


def test_a_copy_that_is_finished_while_it_is_made_is_deleted(
    node_cache: NodeCache, tree: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node_cache.put([Piece(DIGEST, SIZE, 0, CONTENT)])

    def copy_and_be_done(reader: int, writer: int) -> None:
        copy_content(reader, writer)
        node_cache.done("1.1")

    monkeypatch.setattr("stoker.staging.working_copies.copy_content", copy_and_be_done)
    with pytest.raises(StagingError, match="is finished"):
        node_cache.lay_out(tree, "1.1")
    assert copies(tmp_path) == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", ".hidden", "x" * 101, "a\n"])
def test_names_of_copies_that_are_paths_are_refused(
    node_cache: NodeCache, tree: bytes, name: str
) -> None:
    for call in (
        lambda: node_cache.lay_out(tree, name),
        lambda: node_cache.done(name),
        lambda: node_cache.collect(name, b"results", 1),
    ):
        with pytest.raises(StagingError):
            call()


def test_pruning_deletes_the_least_recently_used_contents_and_keeps_those_in_use(
    node_cache: NodeCache,
) -> None:
    digests = []
    for number in range(4):
        data = bytes([number]) * 1000
        digests.append(hashlib.sha256(data).hexdigest())
        node_cache.put([Piece(digests[-1], 1000, 0, data)])
    trees = [
        TreeManifest([ManifestEntry(b"x", b"f", 0o644, 1000, each)]).encoded for each in digests
    ]
    for age, digest in enumerate(digests):
        os.utime(node_cache.blobs.path(digest), (10_000 - age, 10_000 - age))
    node_cache.missing(trees[3])  # wanted again, just now

    assert node_cache.prune(2500) == 2000
    assert [node_cache.missing(tree) for tree in trees] == [[], [digests[1]], [digests[2]], []]
    assert node_cache.prune(0) == 0
    assert node_cache.prune(0, spare_s=-1) == 2000
