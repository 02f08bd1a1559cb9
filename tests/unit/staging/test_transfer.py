from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoker.staging import transfer
from stoker.staging.bundle import pack
from stoker.staging.manifest import FILE, FOLDER, LINK, ManifestEntry, StagingError, TreeManifest
from stoker.staging.node_cache import CollectedResults, NodeCache
from stoker.staging.result_scan import leads_inside
from stoker.staging.transfer import FetchedResults, bring_back, ship
from stoker.staging.tree_scan import hash_open
from unit.staging.tree_samples import BadLine, Tree, grow, read, trees, unwritable

LIMIT = 1 << 30
BAD = hashlib.sha256(b"bad").hexdigest()


def insist(node: BadLine, work: Any) -> Any:
    """Ask until a line that loses much lets it through: every try goes on where the last one ended."""
    while True:
        try:
            return work()
        except ConnectionError:
            continue


@given(trees, st.integers(0, 2**32))
def test_any_tree_arrives_unchanged_over_an_unreliable_connection(tree: Tree, seed: int) -> None:
    with tempfile.TemporaryDirectory() as top:
        grow(os.fsencode(f"{top}/code"), tree)
        node = BadLine(f"{top}/depot", seed)
        bundle = pack(f"{top}/code")

        folder = insist(node, lambda: ship(bundle, node, "7.1", lambda _s: None))

        assert read(os.fsencode(folder)) == unwritable(tree)
        assert node.node_cache.missing(bundle.manifest.encoded) == []


@given(trees, trees, st.integers(0, 2**32))
def test_exactly_the_results_of_a_job_come_back_over_an_unreliable_connection(
    code: Tree, results: Tree, seed: int
) -> None:
    with tempfile.TemporaryDirectory() as top:
        code.pop(b"results", None)
        grow(os.fsencode(f"{top}/code"), code)
        node = BadLine(f"{top}/depot", seed)
        folder = insist(node, lambda: ship(pack(f"{top}/code"), node, "7.1", lambda _s: None))
        grow(os.fsencode(f"{folder}/results"), results)
        grow(os.fsencode(f"{folder}/elsewhere"), {b"x": (b"x", 0o644)})
        there = os.fsencode(f"{top}/cwd/results")

        def bring() -> FetchedResults:
            return bring_back(
                node, "7.1", b"results", os.fsdecode(there), LIMIT, lambda _seconds: None
            )

        brought = insist(node, bring)

        expected, left = _without_ways_out(results, b"")
        found = read(there) if os.path.isdir(there) else {}
        assert found == unwritable(expected)
        assert len(brought.left) == left
        assert not os.path.isdir(f"{top}/cwd/elsewhere")
        assert os.path.exists(folder) == bool(left)


def _without_ways_out(tree: Tree, below: bytes) -> tuple[Tree, int]:
    kept: Tree = {}
    left = 0
    for name, what in tree.items():
        path = os.path.join(below, name)
        if isinstance(what, dict):
            kept[name], more = _without_ways_out(what, path)
            left += more
        elif isinstance(what, str) and not leads_inside(path, what.encode()):
            left += 1
        else:
            kept[name] = what
    return kept, left


hostile_paths = st.lists(
    st.sampled_from([b"..", b".", b"", b"a", b"b", b"link", b"x"]), min_size=1, max_size=4
).map(b"/".join)
hostile_entries = st.builds(
    lambda path, kind, target: (
        ManifestEntry(path, FILE, 0o644, 3, BAD)
        if kind == FILE
        else ManifestEntry(path, LINK, target=target)
        if kind == LINK
        else ManifestEntry(path, FOLDER, 0o755)
    ),
    hostile_paths,
    st.sampled_from([FILE, FOLDER, LINK]),
    st.sampled_from([b"..", b"../..", b"/", b"../outside", b"a", b"link", b"."]),
)


class Liar:
    """A node that says what it likes."""

    def __init__(self, entries: list[ManifestEntry]) -> None:
        self._entries = entries

    def collect(self, _name: str, _results: bytes, _limit: int) -> CollectedResults:
        manifest = TreeManifest.__new__(TreeManifest)  # past all checks
        manifest.entries = tuple(sorted(self._entries))
        return CollectedResults(manifest.encoded, [], "/")

    def fetch(self, _name: str, _digest: str, offset: int) -> bytes:
        return b"bad"[offset:]

    def done(self, _name: str) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


@given(st.lists(hostile_entries, max_size=8))
@example([ManifestEntry(b"link", FOLDER, 0o755), ManifestEntry(b"link/x", FILE, 0o644, 3, BAD)])
@example([ManifestEntry(b"link", FILE, 0o644, 3, BAD)])
@example(
    [ManifestEntry(b"a", LINK, target=b"../../outside"), ManifestEntry(b"x", FILE, 0o644, 3, BAD)]
)
@example([ManifestEntry(b"../x", FILE, 0o644, 3, BAD)])
def test_a_hostile_node_cannot_write_outside_the_results_folder(
    entries: list[ManifestEntry],
) -> None:
    with tempfile.TemporaryDirectory() as top:
        for name in ("outside", "cwd/results"):
            os.makedirs(f"{top}/{name}")
        os.symlink("../../outside", f"{top}/cwd/results/link")  # laid by somebody before
        with contextlib.suppress(StagingError):
            bring_back(Liar(entries), "1.1", b"results", f"{top}/cwd/results", LIMIT)
        assert os.listdir(f"{top}/outside") == []
        assert os.listdir(f"{top}/cwd") == ["results"]
        assert sorted(os.listdir(top)) == ["cwd", "outside"]
        for folder, folders, files in os.walk(f"{top}/cwd/results"):
            for path in (os.path.join(folder, name) for name in (*folders, *files)):
                if path != f"{top}/cwd/results/link":
                    assert os.path.realpath(path).startswith(
                        (f"{os.path.realpath(top)}/cwd/results", f"{os.path.realpath(top)}/outside")
                    )


@pytest.fixture
def node_cache(tmp_path: Path) -> NodeCache:
    return NodeCache(str(tmp_path / "node_cache"))


def laid_out(node_cache: NodeCache, tmp_path: Path, **files: str) -> Path:
    code = tmp_path / "code"
    code.mkdir()
    for name, text in files.items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(text)
    return Path(ship(pack(str(code)), node_cache, "1.1"))


def bring(node_cache: NodeCache, tmp_path: Path, limit: int = LIMIT) -> FetchedResults:
    return bring_back(node_cache, "1.1", b"results", str(tmp_path / "cwd" / "results"), limit)


def test_only_new_and_changed_files_come_back(node_cache: NodeCache, tmp_path: Path) -> None:
    files = {"results/same": "same", "results/changed": "before", "train.py": "code"}
    folder = laid_out(node_cache, tmp_path, **files)
    (folder / "results/changed").write_text("after")
    (folder / "results/new").write_text("new")
    (folder / "train.py").write_text("changed as well")
    there = tmp_path / "cwd" / "results"
    there.mkdir(parents=True)
    (there / "same").write_text("edited here meanwhile")
    (there / "changed").write_text("older")

    brought = bring(node_cache, tmp_path)

    assert (brought.files, brought.left, brought.notice) == (2, [], None)
    assert read(os.fsencode(there)).keys() == {b"same", b"changed", b"new"}
    assert (there / "same").read_text() == "edited here meanwhile"
    assert (there / "changed").read_text() == "after"
    assert not folder.exists()


def test_a_missing_results_folder_is_no_error(node_cache: NodeCache, tmp_path: Path) -> None:
    laid_out(node_cache, tmp_path, a="a")
    assert bring(node_cache, tmp_path).files == 0
    assert not (tmp_path / "cwd").exists()


def test_above_the_limit_small_files_come_back_and_the_others_are_named_and_kept(
    node_cache: NodeCache, tmp_path: Path
) -> None:
    folder = laid_out(node_cache, tmp_path, a="a")
    (folder / "results").mkdir()
    (folder / "results" / "a-model.pt").write_bytes(b"x" * (2 << 20))
    (folder / "results" / "metrics.json").write_text("{}")

    brought = bring(node_cache, tmp_path, limit=1 << 20)

    assert os.listdir(tmp_path / "cwd" / "results") == ["metrics.json"]
    assert brought.notice == (
        f"results were left in {folder}/results on the node: a-model.pt (2 MiB, beyond sync.limit)"
    )
    assert (folder / "results" / "a-model.pt").exists()


def test_files_above_the_limit_are_not_read(
    node_cache: NodeCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = laid_out(
        node_cache, tmp_path, **{"results/same": "s" * 500, "results/grown": "before"}
    )
    (folder / "results" / "grown").write_text("g" * 300)
    (folder / "results" / "new").write_text("n" * 200)
    (folder / "results" / "small").write_text("s")
    reads: list[int] = []

    def read_file(fd: int, most: int) -> tuple[str, int]:
        reads.append(most)
        return hash_open(fd, most)

    monkeypatch.setattr("stoker.staging.tree_scan.hash_open", read_file)
    result_scan = node_cache.collect("1.1", b"results", 100)

    assert reads == [1, 500]
    assert result_scan.left == [
        "grown (0 MiB, beyond sync.limit)",
        "new (0 MiB, beyond sync.limit)",
    ]


@pytest.mark.parametrize("way", ["a file", "a folder that nobody can make"])
def test_results_that_cannot_be_written_are_kept_with_a_message_of_one_line(
    node_cache: NodeCache, tmp_path: Path, way: str
) -> None:
    folder = laid_out(node_cache, tmp_path, a="a")
    (folder / "results").mkdir()
    (folder / "results" / "x").write_text("x")
    in_the_way = tmp_path / "cwd" if way != "a file" else tmp_path / "cwd" / "results"
    in_the_way.parent.mkdir(exist_ok=True)
    in_the_way.write_text("")

    with pytest.raises(StagingError, match=rf"cannot write in .*; they were left in {folder}"):
        bring(node_cache, tmp_path)
    assert (folder / "results" / "x").exists()


def test_a_results_folder_that_became_a_link_is_not_followed(
    node_cache: NodeCache, tmp_path: Path
) -> None:
    folder = laid_out(node_cache, tmp_path, a="a")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("key")
    (folder / "results").symlink_to(tmp_path / "secret")

    assert "no longer a folder of the working tree" in (bring(node_cache, tmp_path).notice or "")
    assert not (tmp_path / "cwd").exists()


def test_the_results_folder_may_be_behind_a_link_of_the_user(
    node_cache: NodeCache, tmp_path: Path
) -> None:
    folder = laid_out(node_cache, tmp_path, **{"results/x": "x"})
    (folder / "results" / "y").write_text("y")
    (tmp_path / "scratch").mkdir()
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd" / "results").symlink_to(tmp_path / "scratch")

    bring(node_cache, tmp_path)

    assert (tmp_path / "scratch" / "y").read_text() == "y"


def test_a_result_that_cannot_be_written_is_named_and_the_others_come_back(
    node_cache: NodeCache, tmp_path: Path
) -> None:
    folder = laid_out(node_cache, tmp_path, a="a")
    (folder / "results" / "deep").mkdir(parents=True)
    (folder / "results" / "deep" / "x").write_text("x")
    (folder / "results" / "y").write_text("y")
    (tmp_path / "cwd" / "results").mkdir(parents=True)
    (tmp_path / "cwd" / "results" / "deep").symlink_to(tmp_path)

    brought = bring(node_cache, tmp_path)

    assert (tmp_path / "cwd" / "results" / "y").read_text() == "y"
    assert not (tmp_path / "x").exists()
    assert [line.split(" ")[0] for line in brought.left] == ["deep", "deep/x"]


def test_a_file_that_changes_after_it_was_packed_is_refused_by_name(
    node_cache: NodeCache, tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "live.log").write_text("before")
    bundle = pack(str(tmp_path / "code"))
    (tmp_path / "code" / "live.log").write_text("beyond")

    with pytest.raises(StagingError, match=r"live\.log: it has changed since it was read"):
        ship(bundle, node_cache, "1.1")


def test_large_files_are_sent_in_pieces(
    node_cache: NodeCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "MAX_CHUNK_BYTES", 10)
    monkeypatch.setattr("stoker.staging.node_cache.MAX_CHUNK_BYTES", 7)
    folder = laid_out(node_cache, tmp_path, a="0123456789" * 10, b="x" * 25)
    (folder / "results").mkdir()
    (folder / "results" / "z").write_text("z" * 100)
    bring(node_cache, tmp_path)
    assert (tmp_path / "cwd" / "results" / "z").read_text() == "z" * 100


def test_the_folder_of_a_run_replaces_the_same_folder_of_the_tree(
    node_cache: NodeCache, tmp_path: Path
) -> None:
    code, run = tmp_path / "code", tmp_path / "run"
    (code / "sub").mkdir(parents=True)
    (code / "sweeps").symlink_to("/scratch/sweeps")
    run.mkdir()
    (run / "params.json").write_text("{}")

    bundle = pack(str(code), inside="sub/empty", run=("sweeps/s/1", str(run)))
    folder = Path(ship(bundle, node_cache, "1.1"))

    assert (folder / "sweeps/s/1/params.json").read_text() == "{}"
    assert (folder / "sub/empty").is_dir()
    assert not (folder / "sweeps").is_symlink()
