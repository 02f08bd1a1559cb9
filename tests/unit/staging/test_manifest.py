from __future__ import annotations

import contextlib
import os
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.staging.manifest import FILE, FOLDER, LINK, ManifestEntry, StagingError, TreeManifest
from stoker.staging.tree_scan import scan
from unit.staging.tree_samples import Tree, grow, trees

DIGEST = "0" * 64


@given(trees)
def test_a_manifest_survives_encoding_and_equal_trees_have_equal_ids(tree: Tree) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        grow(os.fsencode(one), tree)
        grow(os.fsencode(other), dict(reversed(list(tree.items()))))

        manifest = scan(one)

        assert TreeManifest.decode(manifest.encoded).entries == manifest.entries
        assert scan(other).id == manifest.id


@given(trees, trees)
def test_different_trees_have_different_ids(tree: Tree, another: Tree) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        grow(os.fsencode(one), tree)
        grow(os.fsencode(other), another)

        assert (scan(one).id == scan(other).id) == (tree == another)


@given(st.binary(max_size=300))
def test_invalid_bytes_are_refused_as_a_manifest(data: bytes) -> None:
    with contextlib.suppress(StagingError):
        assert TreeManifest.decode(data).encoded == data


@pytest.mark.parametrize(
    "path",
    [b"../x", b"a/../../x", b"/etc/x", b"", b".", b"a//b", b"a/", b"./a", b"a\0b", b"x" * 256],
)
def test_paths_that_leave_the_tree_are_refused(path: bytes) -> None:
    above = [ManifestEntry(b"a", FOLDER, 0o755)]
    with pytest.raises(StagingError, match="not a path within a tree"):
        TreeManifest([*above, ManifestEntry(path, FILE, 0o644, 0, DIGEST)])


@pytest.mark.parametrize("kind", [FILE, LINK])
def test_entries_below_a_link_or_a_file_are_refused(kind: bytes) -> None:
    above = (
        ManifestEntry(b"a", LINK, target=b"/etc")
        if kind == LINK
        else ManifestEntry(b"a", FILE, 0, 0, DIGEST)
    )
    with pytest.raises(StagingError, match="is in no folder"):
        TreeManifest([above, ManifestEntry(b"a/passwd", FILE, 0o644, 0, DIGEST)])


@pytest.mark.parametrize(
    "entry",
    [
        ManifestEntry(b"a", FILE, 0o4755, 0, DIGEST),
        ManifestEntry(b"a", FILE, 0o644, -1, DIGEST),
        ManifestEntry(b"a", FILE, 0o644, 0, "../../etc/passwd"),
        ManifestEntry(b"a", FOLDER, 0o755, 4096),
        ManifestEntry(b"a", LINK),
        ManifestEntry(b"a", b"p", 0o644),
    ],
)
def test_invalid_entries_are_refused(entry: ManifestEntry) -> None:
    with pytest.raises(StagingError, match="not a valid file, folder or link"):
        TreeManifest([entry])


def test_the_same_path_twice_is_refused() -> None:
    with pytest.raises(StagingError, match="twice"):
        TreeManifest(
            [ManifestEntry(b"a", FILE, 0o644, 0, DIGEST), ManifestEntry(b"a", FOLDER, 0o755)]
        )


def test_sockets_and_pipes_are_left_out(tmp_path: os.PathLike[str]) -> None:
    os.mkfifo(os.path.join(tmp_path, "pipe"))
    assert scan(os.fspath(tmp_path)).entries == ()


def test_a_file_that_changes_while_it_is_read_is_named(
    tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.path.join(tmp_path, "log")
    with open(path, "wb") as file:
        file.write(b"one")
    whole = os.read

    def read(fd: int, count: int) -> bytes:
        data = whole(fd, count)
        if data:
            with open(path, "ab") as file:
                file.write(b"more")
        return data

    monkeypatch.setattr("stoker.staging.tree_scan.os.read", read)
    with pytest.raises(StagingError, match=r"log: it changes while it is read"):
        scan(os.fspath(tmp_path))
