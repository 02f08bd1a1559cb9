"""A box that several users share, in memory: their engines are real, leases and turn files are not."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from stoker.core.slot import Slot
from stoker.core.turns import decay
from stoker.engine.gpu_turns import GpuTurns
from stoker.gpus.box_file import BoxFile
from stoker.gpus.turn_files import Changes, Notice, OtherStoker
from stoker.service.reserve import end_reservation, read_reservations, reserve
from stoker.wire import EndReservation, Reserve, UserReservationInfo
from unit.engine.engine_harness import Harness, slots


class FakeBoard:
    """One Stoker's view of the box."""

    def __init__(self, box: Box, uid: int, name: str) -> None:
        self.uid = uid
        self.name = name
        self.is_watching = False
        self._box = box
        self._seen = (-1, frozenset[tuple[str, str]]())
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """Return a descriptor that is never readable: a test calls `on_change` itself."""
        return self._fd

    def watch(self) -> bool:
        """See changes."""
        self.is_watching = True
        return True

    def changes(self) -> Changes:
        """Compare with what was seen last."""
        before, self._seen = self._seen, (self._box.version, frozenset(self._box.leases().items()))
        return Changes(before[0] != self._seen[0], before[1] != self._seen[1])

    def read(self, now: float) -> list[OtherStoker]:
        """Return the notices of the others."""
        return [
            OtherStoker(name, self._box.uids[name], name not in self._box.dead, notice)
            for name, notice in self._box.notices.items()
            if name != self.name
        ]

    def inherit(self, now: float) -> float:
        """Take the last notices of daemons that were killed."""
        dead = [
            n for n in self._box.dead & self._box.notices.keys() if self._box.uids[n] == self.uid
        ]
        return sum(
            decay(notice.use_s, now - notice.at_s)
            for notice in (self._box.notices.pop(name) for name in dead)
        )

    def publish(self, notice: Notice) -> bool:
        """Put a notice on the board."""
        self._box.notices[self.name] = notice
        self._box.uids[self.name] = self.uid
        self._box.version += 1
        return True

    def keep_alive(self, now: float) -> bool:
        """Notices stay."""
        return True

    def holders(self, keys: Iterable[str]) -> Mapping[str, int]:
        """Return who holds GPUs."""
        leases = self._box.leases()
        return {key: self._box.members[leases[key]].uid for key in keys if key in leases}

    def close(self, *, keep: bool) -> None:
        """End."""
        os.close(self._fd)


class _Foreign(set[str]):
    """The leases of all others, as the executor of one member sees them."""

    def __init__(self, box: Box, name: str) -> None:
        super().__init__()
        self._box = box
        self._name = name

    def __contains__(self, key: object) -> bool:
        return any(
            key in member.executor.leased
            for name, member in self._box.members.items()
            if name != self._name
        )


class FakeBoxFile(BoxFile):
    """The rules of the box, which a test sets."""

    has_changed = False

    def refresh(self) -> bool:
        """Whether the test says that they have changed; one daemon is told."""
        has_changed, self.has_changed = self.has_changed, False
        return has_changed


class Member(Harness):
    """One user's daemon, which always has jobs of the same length waiting, if it has any."""

    def __init__(
        self, box: Box, home: Path, name: str, uid: int, gpus: int | tuple[Slot, ...]
    ) -> None:
        self.uid = uid
        self.name = name
        self.used_s = 0.0  # GPU time of its leases
        self.ran_s = 0.0  # GPU time of its jobs
        self.gathers = False  # it may hold GPUs while its jobs lack others
        self.is_down = False
        self.ends: dict[str, float] = {}
        super().__init__(home, gpus=gpus, board=FakeBoard(box, uid, name))
        self.executor.foreign = _Foreign(box, name)
        self._box = box
        self._crashes = 0
        self._follow_box()

    @property
    def turns(self) -> GpuTurns:
        """The turns of the daemon that lives now."""
        assert self.engine.turns is not None
        return self.engine.turns

    def _follow_box(self) -> None:
        self.turns.box_file = self._box.file

    def reserve(self, gpus: int, for_s: float, after_s: float = 0.0) -> UserReservationInfo:
        """Reserve GPUs, from now or later on."""
        order = Reserve(gpus=gpus, for_s=for_s, begin_at=self.now + after_s)
        return self.run(reserve(self.context, order))

    def end_reservation(self, number: int) -> UserReservationInfo:
        """End a reservation."""
        return self.run(end_reservation(self.context, EndReservation(id=number)))

    def reservations(self) -> list[UserReservationInfo]:
        """Return what is reserved."""
        return read_reservations(self.context)

    def holds(self) -> list[str]:
        """Return the GPUs whose leases it has."""
        return sorted(self.executor.leased)

    def crash(self, *, supervisor_too: bool) -> None:
        """Be killed at this moment, and be succeeded by another daemon; jobs go on."""
        self._leave_board()
        self.restart(supervisor_too=supervisor_too)
        self._follow_box()

    def go_down(self) -> None:
        """Be killed at this moment; `come_up` starts the next daemon."""
        self._leave_board()
        self.stop()
        self.executor.lose_client()
        self.is_down = True

    def come_up(self) -> None:
        """Start the next daemon."""
        self.is_down = False
        self.begin()
        self._follow_box()

    def _leave_board(self) -> None:
        assert self.board is not None
        self._box.dead.add(self.board.name)
        self._box.version += 1
        self._crashes += 1
        self.board = FakeBoard(self._box, self.uid, f"{self.name}.{self._crashes}")

    def step(self) -> bool:
        """Take one turn; whether there may be more to do at once."""
        if self.is_down:
            return False
        self.turns.on_change()
        self.engine.turn()
        return self.executor.has_reports or self.engine.patience_s() == 0

    def next_at(self) -> float:
        """When its engine takes the next turn that no event announces."""
        patience_s = self.engine.patience_s()
        return math.inf if patience_s is None else self.now + max(patience_s, 0.001)


class Snatcher(Member):
    """A user who claims all GPUs, takes each that is left to it, and gives it back after a moment."""

    def __init__(self, box: Box, home: Path, name: str, uid: int, hold_s: float) -> None:
        super().__init__(box, home, name, uid, box.gpus)
        self._hold_s = hold_s
        self._until: dict[str, float] = {}
        self._missed: set[str] = set()  # others have held them since
        box.post(name, uid, wants=box.gpus)

    def step(self) -> bool:
        """Take and give back."""
        before = set(self.executor.leased)
        for key, at in [*self._until.items()]:
            if self.now >= at:
                del self._until[key]
                self.executor.leased.discard(key)
        held = self._box.leases().keys()
        self._missed |= held - self._until.keys()
        for slot in slots(self._box.gpus):
            if slot.keys[0] in self._missed - held:
                self._missed.discard(slot.keys[0])
                self._until[slot.keys[0]] = self.now + self._hold_s
                self.executor.leased.add(slot.keys[0])
        return before != self.executor.leased

    def next_at(self) -> float:
        """When it gives the next GPU back."""
        return min(self._until.values(), default=math.inf)


class Box:
    """Users on the same GPUs. Time goes on only by `run`."""

    def __init__(self, folder: Path, gpus: int) -> None:
        self._folder = folder
        self.gpus = gpus
        self.now = 1000.0
        self.members: dict[str, Member] = {}
        self.notices: dict[str, Notice] = {}
        self.uids: dict[str, int] = {}
        self.dead: set[str] = set()
        self.file = FakeBoxFile()
        self.version = 0
        self.longest_idle_s = (
            0.0  # of a GPU that nobody held, or held without need, while others waited
        )
        self._idle_since: dict[str, float] = {}

    def leases(self) -> dict[str, str]:
        """Return the member that holds each GPU; two would be a double booking."""
        found: dict[str, str] = {}
        for name, member in self.members.items():
            for key in member.executor.leased:
                assert key not in found, f"{name} and {found[key]} both hold {key}"
                found[key] = name
        return found

    def add(self, name: str, uid: int, *groups: str) -> Member:
        """Let a user start a daemon; `groups` are its slots of several GPUs, such as 01 and 23."""
        home = self._folder / name
        home.mkdir()
        slots = tuple(
            Slot(index, tuple(gpus), tuple(f"GPU-{gpu}" for gpu in gpus))
            for index, gpus in enumerate(groups)
        )
        member = self.members[name] = Member(self, home, name, uid, slots or self.gpus)
        member.now = self.now
        return member

    def add_snatcher(self, name: str, uid: int, hold_s: float) -> None:
        """Let a user cheat who holds each GPU for so long."""
        home = self._folder / name
        home.mkdir()
        self.members[name] = member = Snatcher(self, home, name, uid, hold_s)
        member.now = self.now

    def post(self, name: str, uid: int, wants: int) -> None:
        """Put up the notice of a user who claims all GPUs and takes none."""
        keys = frozenset(key for slot in slots(self.gpus) for key in slot.keys)
        self.notices[name] = Notice(wants=wants, gpus=keys)
        self.uids[name] = uid
        self.version += 1

    def close(self) -> None:
        """End all daemons."""
        for member in self.members.values():
            member.close()

    def settle(self) -> None:
        """Take turns until nobody has anything to do at this moment."""
        for _ in range(1000):
            is_busy = [member.step() for member in self.members.values()]
            version, leases = self.version, self.leases()
            if not any(is_busy):
                again = [member.step() for member in self.members.values()]
                if not any(again) and (version, leases) == (self.version, self.leases()):
                    return
        raise AssertionError("the members never come to rest")

    def run(self, for_s: float, job_s: Mapping[str, float]) -> None:
        """Let time pass; the jobs of each member take so long."""
        end = self.now + for_s
        self.settle()
        while self.now < end:
            self._note_starts(job_s)
            self._advance(end)
            for member in self.members.values():
                for key, at in [*member.ends.items()]:
                    if at <= self.now:
                        del member.ends[key]
                        member.executor.end(key)
            self.settle()

    def _note_starts(self, job_s: Mapping[str, float]) -> None:
        for name, member in self.members.items():
            for key in member.executor.running:
                member.ends.setdefault(key, self.now + job_s[name])

    def _advance(self, end: float) -> None:
        """Go to the next end of a job, or time that an engine waits for; count use and idle GPUs."""
        moments = [at for member in self.members.values() for at in member.ends.values()]
        moments += [member.next_at() for member in self.members.values() if not member.is_down]
        then = min([*moments, end])
        passed_s, leases = then - self.now, self.leases()
        for name in leases.values():
            self.members[name].used_s += passed_s
        busy: set[str] = set()
        for member in self.members.values():
            in_use = member.executor.keys_in_use
            member.ran_s += passed_s * len(in_use)
            kept = member.executor.leased & member.turns.reserved.until.keys()
            busy |= member.executor.leased if member.gathers else in_use | kept
        has_waiting = any(notice.wants for notice in self.notices.values())
        for slot in slots(self.gpus):
            if slot.keys[0] in busy or not has_waiting:
                self._idle_since.pop(slot.keys[0], None)
            else:
                since = self._idle_since.setdefault(slot.keys[0], self.now)
                self.longest_idle_s = max(self.longest_idle_s, then - since)
        self.now = then
        for member in self.members.values():
            member.now = then
