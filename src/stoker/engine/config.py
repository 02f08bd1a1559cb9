"""What a user can set for the daemon, each entry with its default and its meaning."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import msgspec

from stoker.cluster.settings import split_address
from stoker.core.selector import check_name
from stoker.core.sharing.rules import MOST_TENANTS, SharingRules, gpulimit_rules
from stoker.errors import NotFoundError, StokerError, UsageError
from stoker.gpus.slot_grammar import parse_slots
from stoker.store.config_records import forget_setting, read_settings, record_setting
from stoker.store.database import Database
from stoker.wire import Setting

_MOST_PLACES = 10_000


class ConfigEntry(msgspec.Struct, frozen=True):
    """A setting that exists."""

    default: str
    meaning: str
    check: Callable[[str], object]


def _count(text: str, least: int = 0) -> int:
    if not text.isdecimal() or len(text) > 12 or int(text) < least:
        raise ValueError(f"a whole number, {least} or more")
    return int(text)


def _positive(text: str) -> int:
    return _count(text, least=1)


def _places(text: str) -> int | None:
    if text == "auto":
        return None
    number = _positive(text)
    if number > _MOST_PLACES:
        raise ValueError(f"auto, or a whole number from 1 to {_MOST_PLACES}")
    return number


def _runs(text: str) -> int | None:
    return None if text == "-1" else _positive(text)


def _decimal(text: str) -> float:
    number = float(text) if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text) else 0.0
    if not number:
        raise ValueError("a number above 0")
    return number


def _fraction(text: str) -> float:
    number = float(text) if re.fullmatch(r"[01](\.\d{1,9})?", text) else 2.0
    if number > 1.0:
        raise ValueError("a fraction from 0 to 1: 0.2")
    return number


def _gpus(text: str) -> None:
    # Whether they exist is seen when the daemon starts; it must not be kept from starting by a slip.
    if text != "default":
        try:
            parse_slots(text, None, "0")
        except StokerError as error:
            raise ValueError(str(error)) from None


def _limit(text: str) -> int | None:
    return None if text == "none" else _positive(text)


def _only_by(verb: str) -> Callable[[str], None]:
    def check(text: str) -> None:
        if text != "none":
            raise ValueError(f"{verb} changes it")

    return check


_by_gpus = _only_by("stoker gpus add|drain|remove")


def _tenants(text: str) -> int:
    number = _positive(text)
    if number > MOST_TENANTS:
        raise ValueError(f"a whole number from 1 to {MOST_TENANTS}")
    return number


def _yes_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError("yes or no")
    return text == "yes"


def _ray_address(text: str) -> None:
    if text != "none":
        split_address(text, None)


def _lease(text: str) -> int:
    if not 10 <= _count(text) <= 86400:
        raise ValueError("seconds, from 10 to 86400")
    return int(text)


def _size(text: str) -> int:
    if text == "none":
        return 0
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    if not number.isdecimal() or int(number) * unit < 4096 or len(number) > 12:
        raise ValueError("none, or a size of at least 4K: 500K, 20M, 1G")
    return int(number) * unit


ENTRIES = {
    "gpus": ConfigEntry(
        "default", "slots: 0,1 or 0-3 or 0+1,2+3; default: every GPU not in use", _gpus
    ),
    "gpus-drained": ConfigEntry(
        "none", "slots on which nothing new starts (stoker gpus drain)", _by_gpus
    ),
    "gpus-removed": ConfigEntry(
        "none", "GPUs that are not used by default (stoker gpus remove)", _by_gpus
    ),
    "gpus-with-others": ConfigEntry(
        "no", "use detected GPUs also while others compute there: yes, no", _yes_no
    ),
    "cpu.jobs": ConfigEntry("auto", "jobs without GPU at once; auto: as many as CPUs", _places),
    "keep.days": ConfigEntry("90", "days for which ended jobs and their logs are kept", _positive),
    "keep.jobs": ConfigEntry("100000", "ended jobs that are kept at most", _count),
    "log.cap": ConfigEntry(
        "none", "size at which a log is cut in its middle: none, 20M, 1G", _size
    ),
    "brake": ConfigEntry(
        "3",
        "equal failures in a row that pause a project, or the jobs without one; 0: never",
        _count,
    ),
    "on_finish": ConfigEntry("none", "a shell command to run when a job has ended", str),
    "on_fail": ConfigEntry("none", "a shell command to run when a job has not succeeded", str),
    "notify": ConfigEntry("none", "where to send a word when a job has ended: an Apprise URL", str),
    "web": ConfigEntry("none", "where the web page is (stoker web)", _only_by("stoker web")),
    "share.most": ConfigEntry("16", "jobs that share a GPU at most", _tenants),
    "share.keep-memory": ConfigEntry(
        "0.05", "let none join a GPU while less of the machine's RAM is free", _fraction
    ),
    "share.with-others": ConfigEntry(
        "no", "share GPUs on which others compute too: yes, no", _yes_no
    ),
    "ray.address": ConfigEntry(
        "none", "the Ray cluster whose GPUs to use: HOST:PORT (stoker cluster up)", _ray_address
    ),
    "cluster.lease": ConfigEntry(
        "30",
        "seconds that a node may be cut off before its jobs run elsewhere",
        _lease,
    ),
    "sync.limit": ConfigEntry(
        "1G", "results that --sync brings back of a job: none, 20M, 1G", _size
    ),
    "policy": ConfigEntry("default", "who plans: an entry point of the group stoker.policies", str),
    "gpulimit.safety_keep_memory": ConfigEntry(
        "0.2", "gpulimit: the part of the RAM that starts leave free", _fraction
    ),
    "gpulimit.safety_keep_gpu_memory": ConfigEntry(
        "0.5", "gpulimit: the part of a GPU's memory to be free for a start", _fraction
    ),
    "gpulimit.max_running_tasks": ConfigEntry(
        "-1", "gpulimit: tasks on a GPU at once; -1: any", _runs
    ),
    "gpulimit.max_err_times": ConfigEntry(
        "1", "gpulimit: runs of a task in all if it fails", _positive
    ),
    "gpulimit.timer_polling_time": ConfigEntry(
        "10", "gpulimit: kept for its users; starts follow events, not a timer", _decimal
    ),
}
# Settings that exist once for each project: the name ends with the project's.
OF_PROJECTS = {
    "limit.": ConfigEntry("none", "jobs of the project at once", _limit),
    "gpus.": ConfigEntry("all", "the GPUs that the project may use: 0,1", str),
    "max-failures.": ConfigEntry("none", "failed jobs, in all, that pause the project", _limit),
}
_SECRET = {"notify"}


class Config:
    """The daemon's settings, kept in its database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.load()

    def load(self) -> None:
        """Read what is recorded."""
        self._values = read_settings(self._database)

    def text(self, name: str) -> str:
        """A setting as it was written, or its default."""
        return self._values.get(name) or entry_of(name).default

    def count(self, name: str) -> int:
        """A setting that is a number."""
        return int(self.text(name))

    @property
    def log_cap_bytes(self) -> int | None:
        """The size beyond which a log is cut; None if it never is."""
        return _size(self.text("log.cap")) or None

    @property
    def sync_limit_bytes(self) -> int | None:
        """How much of a job's results is brought back; None if all of it is."""
        return _size(self.text("sync.limit")) or None

    @property
    def cpu_places(self) -> int:
        """How many jobs without GPU may run at once."""
        return _places(self.text("cpu.jobs")) or len(os.sched_getaffinity(0))

    @property
    def gpus(self) -> str | None:
        """The slots as named by the user; None for every GPU that is not in use."""
        text = self.text("gpus")
        return None if text == "default" else text

    @property
    def gpus_with_others(self) -> bool:
        """Whether GPUs that Stoker found by itself are used while processes of others run there."""
        return _yes_no(self.text("gpus-with-others"))

    @property
    def ray_address(self) -> str | None:
        """The cluster that the queue reaches over."""
        text = self.text("ray.address")
        return None if text == "none" else text

    @property
    def lease_s(self) -> float:
        """For how long a node's jobs may run without word from here."""
        return float(_lease(self.text("cluster.lease")))

    @property
    def sharing_rules(self) -> SharingRules:
        """By which figures jobs share GPUs: our own, and for those who ask for them gpulimit's."""
        return SharingRules(
            most=self.count("share.most"),
            keep_host_share=_fraction(self.text("share.keep-memory")),
            with_others=_yes_no(self.text("share.with-others")),
            free=gpulimit_rules(
                _fraction(self.text("gpulimit.safety_keep_gpu_memory")),
                _fraction(self.text("gpulimit.safety_keep_memory")),
                _runs(self.text("gpulimit.max_running_tasks")) or MOST_TENANTS,
            ),
        )

    def words(self, name: str) -> list[str]:
        """A setting that is a list."""
        text = self.text(name)
        return [] if text == "none" else text.split(",")

    def all(self) -> list[Setting]:
        """Every setting."""
        of_projects = sorted(name for name in self._values if name not in ENTRIES)
        return [self.setting(name) for name in (*ENTRIES, *of_projects)]

    def limits(self) -> dict[str, int]:
        """How many jobs of a project may run at once."""
        return self._counts_of_projects("limit.")

    def max_failures(self) -> dict[str, int]:
        """How many failed jobs pause a project."""
        return self._counts_of_projects("max-failures.")

    def _counts_of_projects(self, prefix: str) -> dict[str, int]:
        return {
            name.removeprefix(prefix): int(value)
            for name, value in self._values.items()
            if name.startswith(prefix)
        }

    def gpus_of_projects(self) -> dict[str, frozenset[str]]:
        """The GPUs that a project may use."""
        return {
            name.removeprefix("gpus."): self.split_gpus(value)
            for name, value in self._values.items()
            if name.startswith("gpus.")
        }

    @staticmethod
    def split_gpus(text: str) -> frozenset[str]:
        """The GPUs in a list of them."""
        return frozenset(word for word in re.split(r"[,+\s]+", text) if word)

    def setting(self, name: str) -> Setting:
        """One setting with all that is known about it."""
        entry = entry_of(name)
        value = self.text(name)
        shown = "(set)" if name in _SECRET and value != entry.default else value
        return Setting(name=name, value=shown, default=entry.default, meaning=entry.meaning)

    def change(self, name: str, value: str | None) -> Setting:
        """Remember a value, or with None the default; refused if it makes no sense."""
        entry = entry_of(name)
        if value is not None:
            try:
                entry.check(value)
            except ValueError as error:
                raise UsageError(f"{name} cannot be {value!r}: {error}") from None
        with self._database.transaction(durable=True):
            self.write(name, value)
        self.load()
        return self.setting(name)

    def write(self, name: str, value: str | None) -> None:
        """Record a value inside a transaction; `load` makes it count."""
        if value is None or value == entry_of(name).default:
            forget_setting(self._database, name)
        else:
            record_setting(self._database, name, value)


def entry_of(name: str) -> ConfigEntry:
    """The setting of this name; raises NotFoundError with those that exist."""
    if name in ENTRIES:
        return ENTRIES[name]
    for prefix, entry in OF_PROJECTS.items():
        if name.startswith(prefix) and len(name) > len(prefix):
            check_name("the project", name.removeprefix(prefix))
            return entry
    names = ", ".join((*ENTRIES, *(f"{prefix}PROJECT" for prefix in OF_PROJECTS)))
    raise NotFoundError(f"there is no setting '{name}'; there are: {names}")
