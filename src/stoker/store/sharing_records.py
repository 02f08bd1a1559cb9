"""What is set aside on shared GPUs, what jobs were seen to need, and what is known of their kinds."""

from __future__ import annotations

import time

import msgspec

from stoker.core.job import Attempt
from stoker.core.sharing.profile import Profile
from stoker.store.database import Database
from stoker.store.jobs import FINAL_STATES

_KINDS = 2000
# In the column `cold`. A Stoker that knows of no caps takes both for cold, and lets no other job join.
_COLD, _CAPPED = 1, 2
_profiles = msgspec.json.Decoder(Profile)


class Reserved(msgspec.Struct, frozen=True):
    """What is set aside for an attempt: the whole GPU if it is cold, all that it can take if capped."""

    bytes: int
    cold: bool
    capped: bool = False


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """What a job needs that ran out of GPU memory before."""

    ooms: int
    bytes: int | None = None
    alone: bool = False
    above_bytes: int = 0


class SharingRecords:
    """Reads and writes inside the database's transactions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def reserve(self, attempt: Attempt, room: Reserved) -> None:
        """Record what is set aside; the number of an attempt that never began is used again."""
        self._database.write(
            "INSERT INTO reservation VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE"
            " SET bytes = excluded.bytes, cold = excluded.cold",
            (attempt.job, attempt.number, room.bytes, _CAPPED if room.capped else room.cold),
        )

    def live(self) -> dict[Attempt, Reserved]:
        """What is set aside for attempts that had a process when last heard of."""
        rows = self._database.execute(
            "SELECT job, number, bytes, cold FROM reservation JOIN job ON job.id = job"
            " AND attempt = number WHERE state IN ('starting', 'running', 'paused', 'suspended')"
        )
        return {
            Attempt(job, number): Reserved(room_bytes, cold == _COLD, cold == _CAPPED)
            for job, number, room_bytes, cold in rows
        }

    def reserved(self, job: int) -> dict[int, int]:
        """What was set aside for each attempt of a job."""
        sql = "SELECT number, bytes FROM reservation WHERE job = ?"
        return dict(self._database.execute(sql, (job,)).fetchall())

    def needs(self) -> dict[int, Need]:
        """What jobs need that ran out of memory and are not over."""
        rows = self._database.execute(
            "SELECT need.job, ooms, bytes, alone, above_bytes FROM need JOIN job ON job.id = need.job"  # noqa: S608 - ours
            f" WHERE state NOT IN ({FINAL_STATES})"
        )
        return {
            job: Need(ooms=ooms, bytes=need_bytes, alone=bool(alone), above_bytes=above_bytes)
            for job, ooms, need_bytes, alone, above_bytes in rows
        }

    def note_need(self, job: int, need: Need) -> None:
        """Remember what a job needs."""
        self._database.write(
            "INSERT OR REPLACE INTO need VALUES (?, ?, ?, ?, ?)",
            (job, need.ooms, need.bytes, need.alone, need.above_bytes),
        )

    def forget_need(self, job: int) -> None:
        """Delete the need of a job that has ended."""
        self._database.write("DELETE FROM need WHERE job = ?", (job,))

    def profiles(self) -> dict[tuple[str, str], Profile]:
        """Return all profiles of kinds; the newest is the last."""
        rows = self._database.execute(
            "SELECT kind, model, facts FROM profile ORDER BY learned_at_us"
        )
        return {(kind, model): _profiles.decode(facts) for kind, model, facts in rows}

    def learn(self, kind: str, model: str, profile: Profile) -> None:
        """Record the profile of a kind."""
        self._database.write(
            "INSERT OR REPLACE INTO profile VALUES (?, ?, ?, ?)",
            (kind, model, msgspec.json.encode(profile), time.time_ns() // 1000),
        )

    def forget_oldest(self, known: dict[tuple[str, str], Profile]) -> None:
        """Delete the oldest profiles beyond the limit."""
        while len(known) > _KINDS:
            oldest = next(iter(known))
            del known[oldest]
            self._database.write("DELETE FROM profile WHERE kind = ? AND model = ?", oldest)
