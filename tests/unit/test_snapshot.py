from __future__ import annotations

import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from stoker import snapshot
from stoker.errors import StokerError


@pytest.fixture(autouse=True)
def no_git_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    return work


def git(folder: Path, *words: str) -> None:
    who = [
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.org",
        "-c",
        "protocol.file.allow=always",
    ]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def take(folder: Path, home: Path) -> Path:
    return home / "snapshots" / snapshot.take(str(folder), str(home))


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def test_a_snapshot_keeps_contents_links_and_what_can_be_executed(work: Path, home: Path) -> None:
    (work / "train.py").write_text("one")
    (work / "run.sh").write_text("#!/bin/sh")
    (work / "run.sh").chmod(0o755)
    (work / "deep" / "er").mkdir(parents=True)
    (work / "deep" / "er" / "x").write_bytes(b"\0\xff")
    (work / "link").symlink_to("train.py")
    (work / "dangling").symlink_to("nowhere")
    (work / "folder").symlink_to("deep")

    copy = take(work, home)

    assert (copy / "train.py").read_text() == "one"
    assert (copy / "deep/er/x").read_bytes() == b"\0\xff"
    assert os.readlink(copy / "link") == "train.py"
    assert os.readlink(copy / "dangling") == "nowhere"
    assert os.readlink(copy / "folder") == "deep"
    assert stat.S_IMODE((copy / "run.sh").stat().st_mode) == 0o555
    assert stat.S_IMODE((copy / "train.py").stat().st_mode) == 0o444
    assert (copy / "train.py").stat().st_mtime_ns == (work / "train.py").stat().st_mtime_ns


def test_editing_a_file_changes_no_snapshot_and_equal_trees_are_one(work: Path, home: Path) -> None:
    (work / "train.py").write_text("one")
    first = take(work, home)

    (work / "train.py").write_text("two")
    second = take(work, home)
    (work / "train.py").write_text("one")
    third = take(work, home)

    assert (first / "train.py").read_text() == "one"
    assert (second / "train.py").read_text() == "two"
    assert third == first
    assert len(os.listdir(home / "snapshots")) == 2


@pytest.mark.parametrize("change", ["mode", "name", "link", "more"])
def test_every_difference_makes_another_snapshot(work: Path, home: Path, change: str) -> None:
    (work / "a").write_text("x")
    first = take(work, home)

    if change == "mode":
        (work / "a").chmod(0o755)
    elif change == "name":
        (work / "a").rename(work / "b")
    elif change == "link":
        (work / "a").unlink()
        (work / "a").symlink_to("x")
    else:
        (work / "b").write_text("")

    assert take(work, home) != first


def test_in_a_repository_all_of_it_is_copied_but_what_git_ignores(work: Path, home: Path) -> None:
    git(work, "init")
    (work / ".gitignore").write_text("*.ckpt\n/data/\n")
    (work / "data").mkdir()
    (work / "data" / "huge").write_text("x")
    (work / "model.ckpt").write_text("x")
    (work / "committed").write_text("x")
    (work / "deleted").write_text("x")
    (work / "src").mkdir()
    (work / "src" / "main.py").write_text("x")
    git(work, "add", ".")
    git(work, "commit", "-m", "x")
    (work / "deleted").unlink()
    (work / "new").write_text("x")

    name = snapshot.take(str(work / "src"), str(home))

    copy, _, inside = name.partition("/")
    assert inside == "src"
    assert files(home / "snapshots" / copy) == {".gitignore", "committed", "new", "src/main.py"}
    assert snapshot.take(str(work), str(home)) == copy


def test_submodules_and_repositories_within_are_copied_too(work: Path, home: Path) -> None:
    lib = work.parent / "lib"
    lib.mkdir()
    git(lib, "init")
    (lib / "lib.py").write_text("x")
    git(lib, "add", ".")
    git(lib, "commit", "-m", "x")
    git(work, "init")
    git(work, "submodule", "add", str(lib), "vendored")
    git(work, "clone", str(lib), "within")
    (work / "vendored" / "changed").write_text("x")

    copy = take(work, home)

    assert files(copy) == {".gitmodules", "vendored/lib.py", "vendored/changed", "within/lib.py"}


def test_a_folder_that_git_ignores_is_there_to_run_in(work: Path, home: Path) -> None:
    git(work, "init")
    (work / ".gitignore").write_text("out/\n")
    (work / "out").mkdir()

    assert take(work / "out", home).is_dir()


def test_file_names_that_are_not_utf8_are_kept(work: Path, home: Path) -> None:
    name = b"caf\xe9"
    with open(os.path.join(os.fsencode(work), name), "wb") as file:
        file.write(b"x")

    copy = take(work, home)

    assert os.listdir(os.fsencode(copy)) == [name]


def test_a_folder_name_that_is_not_utf8_is_refused(work: Path, home: Path) -> None:
    (work / ".git").mkdir()
    folder = os.path.join(os.fsencode(work), b"caf\xe9")
    os.mkdir(folder)

    with pytest.raises(StokerError, match="its name is not UTF-8"):
        snapshot.take(folder, str(home))


@pytest.mark.parametrize(
    ("in_git", "remedy"), [(True, r"in \.gitignore$"), (False, "git repository")]
)
def test_a_tree_that_is_too_large_is_refused_with_the_remedy(
    work: Path, home: Path, monkeypatch: pytest.MonkeyPatch, in_git: bool, remedy: str
) -> None:
    monkeypatch.setattr(snapshot, "MAX_FILES", 3)
    if in_git:
        git(work, "init")
    for number in range(4):
        (work / f"{number}").write_text("x")

    with pytest.raises(StokerError, match=remedy):
        take(work, home)

    assert os.listdir(home / "snapshots") == []


def test_an_unreadable_file_is_named(
    work: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "a").write_text("x")

    def refuse(_top: bytes, name: bytes) -> None:
        raise PermissionError(13, "Permission denied", name)

    monkeypatch.setattr(snapshot, "_describe", refuse)

    with pytest.raises(StokerError, match=r"Permission denied \(a\)"):
        take(work, home)


def test_a_home_within_the_tree_is_not_copied_into_itself(work: Path) -> None:
    (work / "a").write_text("x")
    home = work / "state"
    home.mkdir()
    (home / "stoker.db").write_text("x")

    copy = take(work, home)

    assert files(copy) == {"a"}
    assert take(work, home) == copy


def test_two_equal_snapshots_at_once_become_one(work: Path, home: Path) -> None:
    for number in range(200):
        (work / f"{number}").write_text("x" * 1000)
    taken: list[Path] = []

    threads = [threading.Thread(target=lambda: taken.append(take(work, home))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(taken)) == 1
    assert os.listdir(home / "snapshots") == [taken[0].name]
    assert len(files(taken[0])) == 200


def test_a_copy_that_fails_leaves_nothing(
    work: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "a").write_text("x")

    def fill(_reader: int, _writer: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(snapshot, "copy_content", fill)

    with pytest.raises(StokerError, match="No space left on device"):
        take(work, home)

    assert os.listdir(home / "snapshots") == []


def test_where_blocks_cannot_be_shared_the_content_is_copied(
    work: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "a").write_text("x" * 100_000)

    def refuse(*_what: object) -> int:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", refuse)

    assert (take(work, home) / "a").read_text() == "x" * 100_000
