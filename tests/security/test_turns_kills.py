"""Users whose daemons, supervisors and jobs are killed at random, on GPUs that all of them want."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from fault.table import PROPERTY, Entry
from patience import until
from scale import LONG
from security.members import Member, make_gpus
from security.second_user import SecondUser, make_second_user, remove_second_user

USERS, GPUS, ROUNDS = (20, 8, 1000) if LONG else (3, 2, 3)
JOBS = 3000 if LONG else 300  # of each user: more than can be done
_LOOK_S = 0.1
_MOST_IDLE_S = 2.0
_DOUBLE = 77
# A job holds a lock of its GPU while it lives: one that finds it held has met another on the same GPU.
_JOB = (
    "flock -n -E {double} {folder}/$CUDA_VISIBLE_DEVICES sleep {seconds}"
    " || [ $? != {double} ] || id -u >> {folder}/double"
)


class GpuUse:
    """Watches the locks of the jobs: who uses which GPU, and for how long none does."""

    def __init__(self, folder: Path, gpus: int) -> None:
        folder.mkdir()
        folder.chmod(0o777)
        for name in [*map(str, range(gpus)), "double"]:
            (folder / name).touch()
            (folder / name).chmod(0o666)
        self.folder = folder
        self.looks: Counter[int] = Counter()  # by uid: at how many looks it used a GPU
        self.idle_s: list[float] = []  # every gap between two jobs on a GPU that was seen
        self._gpus = {(folder / str(gpu)).stat().st_ino: gpu for gpu in range(gpus)}
        self._used_at = dict.fromkeys(range(gpus), time.monotonic())
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def begin(self) -> None:
        """Watch from now on, when every GPU has a job."""
        self._used_at = dict.fromkeys(self._used_at, time.monotonic())
        self._thread.start()

    def end(self) -> None:
        """Watch no more."""
        self._is_over.set()
        self._thread.join()

    def users(self) -> dict[int, int]:
        """Return the user of each GPU in use."""
        found = {}
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            gpu = self._gpus.get(int(words[5].rpartition(":")[2])) if words[1] == "FLOCK" else None
            if gpu is not None:
                try:
                    found[gpu] = os.stat(f"/proc/{words[4]}").st_uid
                except FileNotFoundError:
                    found[gpu] = -1  # flock(1) was killed, and its child still has the lock
        return found

    def doubles(self) -> list[str]:
        """Return the users whose jobs met another on their GPU."""
        return (self.folder / "double").read_text().split()

    def _watch(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            users, now = self.users(), time.monotonic()
            for gpu, uid in users.items():
                self.looks[uid] += 1
                gap_s = now - self._used_at[gpu]
                if gap_s > 2 * _LOOK_S:
                    self.idle_s.append(gap_s)
                self._used_at[gpu] = now


@pytest.fixture
def users(account: SecondUser, shared_folder: Path) -> Iterator[list[SecondUser]]:
    with contextlib.ExitStack() as stack:
        made = []
        for number in range(USERS):
            user = make_second_user(f"stokerkill{os.getpid()}-{number}")
            stack.callback(remove_second_user, user)
            stack.callback(until, lambda uid=user.uid: not _kill_all(uid), "all processes end")
            made.append(user)
        yield made


@pytest.mark.timeout(7200 if LONG else 240)
def test_kills_book_no_gpu_twice_leave_none_idle_and_starve_nobody(
    users: list[SecondUser],
    shared_folder: Path,
    leases: Path,
    nvml_library: str,
    record_property: Callable[[str, object], None],
) -> None:
    dice = random.Random(19)
    box = make_gpus(shared_folder / "nvml", nvml_library, GPUS)
    use = GpuUse(shared_folder / "use", GPUS)
    members = [Member(user, shared_folder, leases, box) for user in users]
    for member in members:
        line = _JOB.format(double=_DOUBLE, folder=use.folder, seconds=dice.choice((0.5, 1, 2)))
        member.ok("add", "-q", "--batch", "-", stdin=f"{line}\n" * JOBS)
    until(lambda: len(use.users()) == GPUS, "every GPU is used")
    use.begin()
    for _ in range(ROUNDS):
        time.sleep(dice.uniform(0.1, 1.0))
        _kill_something(dice.choice(members), dice)
    before = use.looks.copy()
    until(lambda: all(use.looks[each.uid] > before[each.uid] for each in users), "each has a turn")
    use.end()

    parts = [use.looks[user.uid] for user in users]
    longest_s = max(use.idle_s, default=0.0)
    print(f"parts {sorted(parts)}, gaps over 2 s {[s for s in use.idle_s if s > _MOST_IDLE_S]}")
    idle = sum(gap_s > _MOST_IDLE_S for gap_s in use.idle_s)
    starved = sum(part < 0.5 * sum(parts) / len(parts) for part in parts)
    entry = Entry("kills beside other users", ROUNDS, 0, len(use.doubles()), 0, 0, starved)
    record_property(PROPERTY, [*entry, {"GPU idle over 2 s": idle, "users": USERS}])
    assert use.doubles() == []
    if LONG:  # a busy machine may need longer for anything
        assert longest_s <= _MOST_IDLE_S
        assert starved == 0


def _kill_something(member: Member, dice: random.Random) -> None:
    """Kill a daemon, its supervisor, both, or a job; then make sure that a daemon runs."""
    found = _processes(member.user.uid)
    parts = {
        name: [pid for pid, command in found.items() if f"stoker.{name}" in command]
        for name in ("daemon", "supervisor")
    }
    parts["job"] = [pid for pid, command in found.items() if command.startswith("flock")]
    names = dice.choice((["daemon"], ["supervisor"], ["daemon", "supervisor"], ["job"]))
    _kill(pid for name in names for pid in parts[name])
    if "daemon" in names:
        member.ok("daemon", "start")


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _kill_all(uid: int) -> dict[int, str]:
    """Kill all processes of a user; returns those that had not ended yet."""
    found = _processes(uid)
    _kill(found)
    return found


def _processes(uid: int) -> dict[int, str]:
    """Return the living processes of a user, with their command lines."""
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == uid:
                    command = Path(entry.path, "cmdline").read_bytes()
                    if (
                        not command
                    ):  # it has ended; a test before may have made this process its parent
                        with contextlib.suppress(ChildProcessError):
                            os.waitpid(int(entry.name), os.WNOHANG)
                        continue
                    found[int(entry.name)] = command.replace(b"\0", b" ").decode()
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found
