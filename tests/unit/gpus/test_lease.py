from __future__ import annotations

import os
import pwd
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from patience import until
from stoker.gpus import lease, lease_holder
from stoker.gpus.lease_holder import Holder, holder

KEY = "GPU-1a2b"
TAKE_AND_WAIT = """
import sys, time
from stoker.gpus import lease, lease_holder
held = lease.take(sys.argv[1], "another run")
print("held" if held else "unheld", flush=True)
time.sleep(600 if held else 0)
"""
# A taker whose job inherits the descriptor; the job's pid is told.
TAKE_FOR_A_JOB = """
import os, subprocess, sys, time
from stoker.gpus import lease, lease_holder
held = lease.take(sys.argv[1], "another run")
job = subprocess.Popen(["sleep", "600"], pass_fds=[held.fd], stdout=subprocess.DEVNULL)
print(job.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "leases"
    monkeypatch.setenv("STOKER_LEASE_DIR", str(folder))
    return folder


@contextmanager
def another_process(script: str, key: str = KEY) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process, and the first word it says; it is gone when the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, key], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def taken(key: str = KEY) -> lease.Lease:
    held = lease.take(key, "this run")
    assert held is not None
    return held


def is_free(key: str = KEY) -> bool:
    held = lease.take(key, "a look")
    if held is None:
        return False
    held.release()
    return True


def test_a_held_lease_is_refused_to_another_process() -> None:
    with another_process(TAKE_AND_WAIT) as (_, said):
        assert said == "held"
        assert lease.take(KEY, "this run") is None
        assert is_free("GPU-other")


def test_a_lease_is_available_again_after_its_release() -> None:
    held = taken()
    with another_process(TAKE_AND_WAIT) as (_, said):
        assert said == "unheld"
    held.release()
    with another_process(TAKE_AND_WAIT) as (_, said):
        assert said == "held"


def test_a_job_keeps_the_lease_that_its_scheduler_leaves_to_it() -> None:
    held = lease.take(KEY, "run 1")
    assert held is not None
    with subprocess.Popen(["sleep", "600"], pass_fds=held.fds) as job:
        held.leave_to_jobs()
        assert lease.take(KEY, "run 2") is None
        job.kill()
    again = lease.take(KEY, "run 2")
    assert again is not None
    again.release()


def test_even_one_process_holds_a_gpu_only_once() -> None:
    held = taken()
    assert lease.take(KEY, "again") is None
    held.release()


def test_a_killed_holder_without_jobs_releases_its_lease() -> None:
    with another_process(TAKE_AND_WAIT) as (process, _):
        process.kill()
        process.wait()
        assert is_free()


def test_a_job_keeps_the_lease_after_its_scheduler_was_killed() -> None:
    with another_process(TAKE_FOR_A_JOB) as (process, said):
        job = int(said)
        try:
            process.kill()
            process.wait()
            assert not is_free()
            told = holder(KEY)
            assert told is not None
            assert (told.pid, told.what) == (process.pid, "another run")
        finally:
            os.kill(job, signal.SIGKILL)
        until(is_free)


def test_a_release_frees_the_gpu_also_where_a_leftover_has_the_descriptor_open() -> None:
    held = taken()
    with subprocess.Popen(["sleep", "600"], pass_fds=[held.fd]) as leftover:
        held.release()
        try:
            assert is_free()
        finally:
            leftover.kill()


def test_a_lease_is_not_inherited_by_accident() -> None:
    held = taken()
    with subprocess.Popen(["sleep", "600"], close_fds=False) as stranger:
        os.close(held.fd)
        try:
            assert is_free()
        finally:
            stranger.kill()


def test_a_file_that_a_cleaner_removed_is_noticed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our open and our lock the file vanishes: a lock on it would exclude nobody."""
    opened: list[int] = []

    def open_and_lose(path: str) -> int:
        fd = original(path)
        if not opened:
            os.unlink(path)
        opened.append(fd)
        return fd

    original = lease._open
    monkeypatch.setattr(lease, "_open", open_and_lose)
    held = taken()

    assert len(opened) == 2
    assert os.fstat(held.fd).st_ino == os.stat(folder / f"gpu-{KEY}").st_ino
    with another_process(TAKE_AND_WAIT) as (_, said):
        assert said == "unheld"
    held.release()


def test_a_file_that_was_replaced_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced: list[str] = []

    def open_and_replace(path: str) -> int:
        fd = original(path)
        if not replaced:
            os.unlink(path)
            Path(path).touch()
            replaced.append(path)
        return fd

    original = lease._open
    monkeypatch.setattr(lease, "_open", open_and_replace)
    held = taken()

    assert os.fstat(held.fd).st_ino == os.stat(folder / f"gpu-{KEY}").st_ino
    held.release()


@pytest.mark.parametrize(
    "key",
    [
        "MIG-GPU-1/2/0",
        "..",
        "../../etc/passwd",
        ".",
        "",
        "a b",
        "ü€",
        "名" * 100,
        "\udcff",
        "x" * 5000,
        "a\nb",
        "100%",
        "\0",
    ],
    ids=lambda key: ascii(key)[1:20],
)
def test_any_name_can_be_leased_within_the_folder(folder: Path, key: str) -> None:
    held = taken(key)

    (file,) = os.listdir(folder)
    assert file.startswith("gpu-")
    assert lease.take(key, "again") is None
    held.release()
    assert is_free(key)


@pytest.mark.parametrize(
    ("one", "other"),
    [("a/b", "a%2fb"), ("€", " ac"), ("GPU-a", "GPU-A"), ("x" * 300 + "1", "x" * 300 + "2")],
    ids=lambda key: ascii(key)[1:20],
)
def test_different_names_are_different_gpus(one: str, other: str) -> None:
    held = taken(one)
    assert is_free(other)
    held.release()


def test_a_holder_is_described_with_its_work_and_start() -> None:
    before = time.time()
    held = taken()

    told = holder(KEY)
    held.release()

    assert told is not None
    assert (told.pid, told.what) == (os.getpid(), "this run")
    assert before <= told.since <= time.time()
    assert told.user


def test_a_released_or_untaken_lease_has_no_holder() -> None:
    assert holder(KEY) is None
    taken().release()
    assert holder(KEY) is None


def test_asking_for_a_holder_creates_no_file(folder: Path) -> None:
    assert holder(KEY) is None
    assert not folder.exists()


@pytest.mark.parametrize(
    "note", ["", "nonsense", "[]", '{"pid": "x"}', "null", "5", "[" * 1024, '{"pid": Infinity}']
)
def test_a_holder_with_an_unreadable_note_is_still_described(folder: Path, note: str) -> None:
    held = taken()
    (folder / f"gpu-{KEY}").write_text(note)

    told = holder(KEY)
    held.release()

    user = pwd.getpwuid(os.getuid()).pw_name
    assert told == Holder(os.getpid(), user, "another Stoker", 0.0)


def test_a_process_that_got_the_pid_of_a_dead_holder_is_not_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lock lives on in a job; the pid that took it belongs to a younger process by now."""
    held = taken()
    with subprocess.Popen(["sleep", "600"]) as younger:
        monkeypatch.setattr(lease_holder, "_locking_pid", lambda _fd: younger.pid)
        monkeypatch.setattr(lease_holder, "_first_seen", lambda _fd, _pid: 0.0)
        told = holder(KEY)
        younger.kill()
    held.release()

    assert told is not None
    assert (told.user, str(told)) == ("?", f"an unknown user's this run (pid {younger.pid})")


def test_without_the_kernels_list_of_locks_the_user_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease_holder, "_locking_pid", lambda _fd: None)
    held = taken()

    told = holder(KEY)
    held.release()

    assert told is not None
    assert (told.pid, told.user, told.what) == (os.getpid(), "?", "this run")


def test_a_shorter_note_leaves_nothing_of_a_longer_one() -> None:
    long = lease.take(KEY, "x" * 500)
    assert long
    os.close(long.fd)
    held = taken()

    told = holder(KEY)
    held.release()

    assert told is not None
    assert told.what == "this run"


def test_all_users_can_use_the_folder_and_its_files(folder: Path) -> None:
    old = os.umask(0o077)
    try:
        held = taken()
    finally:
        os.umask(old)
    held.release()

    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o1777
    assert stat.S_IMODE(os.stat(folder / f"gpu-{KEY}").st_mode) == 0o666


def test_a_symlink_instead_of_a_lease_file_is_not_followed(folder: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    folder.mkdir()
    (folder / f"gpu-{KEY}").symlink_to(precious)

    with pytest.raises(OSError, match="not a plain file"):
        lease.take(KEY, "this run")

    assert precious.read_text() == "keep me"
    assert holder(KEY) is None


def test_a_file_instead_of_the_lease_folder_is_an_error(folder: Path) -> None:
    folder.write_text("")

    with pytest.raises(NotADirectoryError):
        lease.take(KEY, "this run")


class TestRootsFolder:
    """Root may make /run/stoker/leases, also while Stokers hold leases in /tmp."""

    @pytest.fixture(autouse=True)
    def folders(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
        """Return root's folder, which is not there yet, and the shared one."""
        monkeypatch.delenv("STOKER_LEASE_DIR")
        root, shared = tmp_path / "run", tmp_path / "shared"
        monkeypatch.setattr(lease, "ROOT_FOLDER", str(root))
        monkeypatch.setattr(lease, "SHARED_FOLDER", str(shared))
        monkeypatch.setattr(lease, "_ROOT_UID", os.getuid())
        return root, shared

    @staticmethod
    def make(folder: Path, mode: int = 0o1777) -> None:
        folder.mkdir()
        folder.chmod(mode)

    def test_the_root_folder_is_used_if_it_exists(self, folders: tuple[Path, Path]) -> None:
        root, shared = folders
        self.make(root)
        held = taken()
        assert os.listdir(root) == [f"gpu-{KEY}"]
        assert not shared.exists()
        assert held.is_in_force()
        assert lease.take(KEY, "another") is None
        held.release()
        assert is_free()

    def test_a_lease_from_before_it_existed_still_excludes_others(
        self, folders: tuple[Path, Path]
    ) -> None:
        early = taken()
        self.make(folders[0])
        assert not early.is_in_force()
        assert not is_free()

        assert early.renew("this run")

        assert early.is_in_force()
        assert len(early.fds) == 2
        assert not is_free()
        early.release()
        assert is_free()

    def test_a_lease_from_before_is_kept_also_where_another_has_roots_folder(
        self, folders: tuple[Path, Path]
    ) -> None:
        early = taken()
        self.make(folders[0])
        with monkeypatched_shared_folder(folders[1]):
            other = taken()
        assert not early.renew("this run")
        assert not early.is_in_force()
        other.release()
        assert early.renew("this run")
        early.release()

    def test_with_a_root_folder_the_shared_folder_does_not_matter(
        self, folders: tuple[Path, Path]
    ) -> None:
        root, shared = folders
        self.make(root)
        self.make(shared)
        os.mkfifo(shared / f"gpu-{KEY}")
        assert is_free()

    def test_the_root_folder_must_belong_to_root(
        self, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.make(folders[0])
        monkeypatch.setattr(lease, "_ROOT_UID", os.getuid() + 1)
        with pytest.raises(OSError, match="sudo chown root"):
            lease.take(KEY, "this run")


@contextmanager
def monkeypatched_shared_folder(folder: Path) -> Iterator[None]:
    """See another shared folder, as a Stoker in a container does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease, "SHARED_FOLDER", f"{folder}-of-a-container")
        yield


def test_a_lease_whose_file_was_removed_is_not_in_force_until_it_is_renewed(folder: Path) -> None:
    held = taken()
    (folder / f"gpu-{KEY}").unlink()
    assert not held.is_in_force()

    assert held.renew("this run")

    assert held.is_in_force()
    assert not is_free()
    held.release()


def test_a_lease_folder_without_the_sticky_bit_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(OSError, match=f"chmod 1777 {folder}"):
        lease.take(KEY, "this run")
