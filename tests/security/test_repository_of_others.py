"""Jobs are added below folders that a second user can write, with a git repository of that user in it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from security.quick_queue import QuickQueue
from security.second_user import SecondUser

# A repository of the second user, whose filter and monitor leave a mark when git runs them.
REPOSITORY = """
top = sys.argv[3]
os.makedirs(top, exist_ok=True)
os.chmod(top, 0o1777)
os.chdir(top)
os.environ.update(HOME="/nonexistent", GIT_CONFIG_NOSYSTEM="1")
for words in (
    "init -q -b main",
    "config user.name eve",
    "config user.email eve@example.org",
    "config filter.evil.clean 'id -u >> {top}/ran; cat'",
    "config core.fsmonitor '{top}/hook'",
    "add a .gitattributes",
    "commit -q -m x",
):
    if words.startswith("add"):
        open("a", "w").write("x")
        open(".gitattributes", "w").write("* filter=evil")
        hook = os.open("hook", os.O_CREAT | os.O_WRONLY, 0o755)
        os.write(hook, f"#!/bin/sh\\nid -u >> {top}/ran\\n".encode())
        os.close(hook)
    assert os.system("git " + words.format(top=top)) == 0
os.utime("a", (1, 1))  # git must look into it again
os.unlink("ran")
open("ran", "w").close()
os.chmod("ran", 0o666)
"""


@pytest.fixture
def shared_tree(second_user: SecondUser, shared_folder: Path, quick_queue: QuickQueue) -> Path:
    """Return a folder of the second user, a git repository; the queue works in a folder below it."""
    top = shared_folder / "top"
    second_user.run(REPOSITORY, str(top))
    work = top / "mine"
    work.mkdir(0o755)
    quick_queue.work = quick_queue.stoker.work = work
    return top


def trust(queue: QuickQueue, folder: Path | str) -> None:
    """Tell git that the user trusts repositories of others."""
    config = Path(queue.env["HOME"]) / ".gitconfig"
    subprocess.run(
        ["git", "config", "--file", config, "--add", "safe.directory", str(folder)], check=True
    )


def test_a_job_can_be_added_below_a_repository_whose_head_is_a_pipe(
    shared_tree: Path, quick_queue: QuickQueue, second_user: SecondUser
) -> None:
    second_user.run(
        "os.unlink(sys.argv[3]); os.mkfifo(sys.argv[3], 0o666)", f"{shared_tree}/.git/HEAD"
    )

    job = quick_queue.add("true")

    assert quick_queue.show(job).get("git") is None


@pytest.mark.parametrize("name", ["packed-refs", "commondir", "refs/heads/main"])
def test_no_other_file_of_a_repository_is_waited_for(
    shared_tree: Path, quick_queue: QuickQueue, second_user: SecondUser, name: str
) -> None:
    source = """
    os.chdir(sys.argv[3])
    os.unlink("refs/heads/main")
    os.mkfifo(sys.argv[4], 0o666)
    """
    second_user.run(source, f"{shared_tree}/.git", name)

    job = quick_queue.add("true")

    assert quick_queue.show(job).get("git") is None


@pytest.mark.parametrize("trusted", [False, True], ids=["refused by git", "all trusted"])
def test_programs_that_a_repository_of_another_user_names_are_not_run(
    shared_tree: Path, quick_queue: QuickQueue, trusted: bool
) -> None:
    if trusted:
        trust(quick_queue, "*")

    job = quick_queue.add("true")
    quick_queue.ok("sweep", "--name", "s", "true {a}", "a=1,2")

    assert (shared_tree / "ran").read_text() == ""
    git = quick_queue.show(job)["git"]
    assert git["dirty"] is True  # nobody has shown it clean
    assert len(git["commit"]) == 40


def test_a_snapshot_within_a_repository_of_another_user_wants_it_to_be_trusted(
    shared_tree: Path, quick_queue: QuickQueue
) -> None:
    trust(quick_queue, "*")
    ended = quick_queue("add", "--snapshot", "true")
    assert ended.code == 1
    assert ended.err.count("\n") == 1
    assert f"git config --global --add safe.directory {shared_tree}" in ended.err

    trust(quick_queue, shared_tree)
    quick_queue.ok("add", "--snapshot", "true")

    assert (shared_tree / "ran").read_text() == ""


def test_a_repository_that_everybody_can_write_is_not_trusted(
    quick_queue: QuickQueue, second_user: SecondUser, shared_folder: Path
) -> None:
    queue = quick_queue
    top = shared_folder / "ours"
    top.mkdir(0o755)
    subprocess.run(["git", "init", "-q", top], check=True)
    (top / "a").write_text("x")
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", top, *identity, "add", "a"], check=True)
    subprocess.run(["git", "-C", top, *identity, "commit", "-q", "-m", "x"], check=True)
    os.utime(top / "a", (1, 1))
    (top / ".git" / "config").chmod(0o666)
    (top / ".git" / "info" / "attributes").touch(0o666)
    (top / ".git" / "info" / "attributes").chmod(0o666)
    source = """
    top = sys.argv[3]
    with open(top + "/.git/config", "a") as file:
        file.write(f'[filter "evil"]\\nclean = touch {top}/../ran; cat\\n')
    with open(top + "/.git/info/attributes", "a") as file:
        file.write("* filter=evil\\n")
    """
    second_user.run(source, str(top))
    queue.work = queue.stoker.work = top

    queue.add("true")

    assert not (shared_folder / "ran").exists()
