from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from stoker.cli import git_state as asked
from stoker.cli.git_state import GitQuery


@pytest.fixture(autouse=True)
def no_git_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode().strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-b", "main")
    (folder / "a").write_text("x")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "x")
    return folder


def ask(folder: Path) -> object:
    return GitQuery(os.fsencode(folder)).answer()


def test_a_clean_repository_has_its_commit_also_in_subfolders(repository: Path) -> None:
    (repository / "deep").mkdir()

    assert ask(repository / "deep") == {
        "commit": git(repository, "rev-parse", "HEAD"),
        "dirty": False,
    }


@pytest.mark.parametrize("how", ["changed", "added", "deleted"])
def test_a_changed_file_makes_it_dirty(repository: Path, how: str) -> None:
    if how == "changed":
        (repository / "a").write_text("y")
    elif how == "added":
        (repository / "b").write_text("y")
        git(repository, "add", "b")
    else:
        (repository / "a").unlink()

    assert ask(repository) == {"commit": git(repository, "rev-parse", "HEAD"), "dirty": True}


def test_a_file_that_is_not_tracked_does_not_make_it_dirty(repository: Path) -> None:
    (repository / "output.txt").write_text("y")

    assert ask(repository) == {"commit": git(repository, "rev-parse", "HEAD"), "dirty": False}


def test_outside_of_a_repository_no_process_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_words: object, **_options: object) -> int:
        raise AssertionError("a process was started")

    monkeypatch.setattr(os, "posix_spawnp", refuse)

    assert ask(tmp_path) is None


def test_an_empty_repository_has_no_commit(tmp_path: Path) -> None:
    git(tmp_path, "init")

    assert ask(tmp_path) is None


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("where", ["plain", "detached", "worktree"])
def test_without_git_the_commit_is_read_and_counts_as_dirty(
    repository: Path, monkeypatch: pytest.MonkeyPatch, packed: bool, where: str
) -> None:
    folder = repository
    if where == "worktree":
        folder = repository.parent / "worktree"
        git(repository, "worktree", "add", "-b", "other", str(folder))
    elif where == "detached":
        git(repository, "checkout", "--detach")
    if packed:
        git(repository, "pack-refs", "--all")
    commit = git(folder, "rev-parse", "HEAD")
    monkeypatch.setenv("PATH", "/nonexistent")

    assert ask(folder) == {"commit": commit, "dirty": True}


def test_a_git_that_takes_too_long_is_not_waited_for(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(asked, "_TIMEOUT_S", 0.05)

    assert ask(repository) == {"commit": commit, "dirty": True}


def test_a_folder_that_only_looks_like_a_repository_has_no_commit(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: /nonexistent\n")

    assert ask(tmp_path) is None
