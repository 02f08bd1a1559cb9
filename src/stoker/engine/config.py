"""The daemon's settings: names, defaults, meanings and values."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any, cast, get_args

import msgspec

from stoker.cluster.settings import split_address
from stoker.containers.command import ENGINES, ContainerSettings
from stoker.core.durations import parse_duration, parse_limit
from stoker.core.job import OnNan
from stoker.core.queue_rank import FIFO, SHORTEST
from stoker.core.selector import check_name
from stoker.core.setting_names import explain_unknown
from stoker.core.sharing.rules import MOST_TENANTS, SharingRules, gpulimit_rules
from stoker.errors import NotFoundError, StokerError, UsageError
from stoker.gpus.slot_grammar import parse_slots
from stoker.store.config_records import forget_setting, read_settings, record_setting
from stoker.store.database import Database
from stoker.warm.command import AUTO, NEVER
from stoker.wire import Setting

_MAX_NUMBER = 10**12 - 1


class ConfigEntry(msgspec.Struct, frozen=True):
    """A setting: its default, its meaning, and the parser that checks its values."""

    default: str
    meaning: str
    parse: Callable[[str], Any]


def _whole(least: int, most: int = _MAX_NUMBER, *, none: str = "") -> Callable[[str], int | None]:
    """Make a parser of whole numbers. The word `none` stands for no number."""
    bounds = f", {least} or more" if most == _MAX_NUMBER else f" from {least} to {most}"
    expected = f"{none and f'{none}, or '}a whole number{bounds}"

    def parse(text: str) -> int | None:
        if none and text == none:
            return None
        if not text.isdecimal() or len(text) > 12 or not least <= int(text) <= most:
            raise ValueError(expected)
        return int(text)

    return parse


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
    # The daemon checks at its start whether the GPUs exist: a typing error must not prevent the start.
    if text != "default":
        try:
            parse_slots(text, None, "0")
        except StokerError as error:
            raise ValueError(str(error)) from None


def _only_by(verb: str) -> Callable[[str], None]:
    def parse(text: str) -> None:
        if text != "none":
            raise ValueError(f"{verb} changes it")

    return parse


def _one_of(*words: str) -> Callable[[str], str]:
    """Make a parser of some words."""
    expected = f"{', '.join(words[:-1])} or {words[-1]}"

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(expected)
        return text

    return parse


def _yes_no(text: str) -> bool:
    return _one_of("yes", "no")(text) == "yes"


def _auto_or_never(text: str) -> bool:
    return _one_of(AUTO, NEVER)(text) == AUTO


def _time_limit(text: str) -> float | None:
    try:
        return parse_limit(text)
    except UsageError as error:
        raise ValueError(str(error)) from None


def _lease(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except UsageError as error:
        raise ValueError(str(error)) from None
    if not 10 <= seconds <= 86400:
        raise ValueError("a time from 10s to 1d: 30s")
    return seconds


def _ray_address(text: str) -> None:
    if text != "none":
        split_address(text, None)


def _words(text: str) -> tuple[str, ...]:
    return () if text == "none" else tuple(shlex.split(text))


def _size(text: str) -> int | None:
    if text == "none":
        return None
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    if not number.isdecimal() or int(number) * unit < 4096 or len(number) > 12:
        raise ValueError("none, or a size of at least 4K: 500K, 20M, 1G")
    return int(number) * unit


_by_gpus = _only_by("stoker gpus add|drain|remove")
_count, _positive = _whole(0), _whole(1)

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
    "cpu.jobs": ConfigEntry(
        "auto", "jobs without GPU at once; auto: as many as CPUs", _whole(1, 10_000, none="auto")
    ),
    "cpu.bind": ConfigEntry("no", "run jobs on the CPUs near their GPUs: yes, no", _yes_no),
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
    "on-finish": ConfigEntry("none", "a shell command to run when a job has ended", str),
    "on-fail": ConfigEntry("none", "a shell command to run when a job has not succeeded", str),
    "on-mark": ConfigEntry(
        "none", "a shell command to run when a job is marked diverged, stalled or idle", str
    ),
    "notify": ConfigEntry(
        "none", "where to send a message when a job has ended: an Apprise URL", str
    ),
    "mark.stall": ConfigEntry(
        "30m", "mark running jobs after so long without output and change: 30m, never", _time_limit
    ),
    "mark.idle": ConfigEntry(
        "15m", "mark running jobs whose GPU computes nothing for so long: 15m, never", _time_limit
    ),
    "web": ConfigEntry("none", "where the web page is (stoker web)", _only_by("stoker web")),
    "share.most": ConfigEntry("16", "jobs that share a GPU at most", _whole(1, MOST_TENANTS)),
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
        "30s", "how long a node may be cut off before its jobs run elsewhere", _lease
    ),
    "sync.limit": ConfigEntry(
        "1G", "results (--sync) and checkpoints that travel, of a job: none, 20M, 1G", _size
    ),
    "warm": ConfigEntry(
        "auto",
        "never: jobs, also of sweeps, start warm only if --warm names modules",
        _auto_or_never,
    ),
    "threads": ConfigEntry(
        "auto",
        "never: jobs beside others may start as many threads as there are CPUs",
        _auto_or_never,
    ),
    "mps": ConfigEntry(
        "auto", "never: jobs that share a GPU use MPS only with --mps", _auto_or_never
    ),
    "preempt.by": ConfigEntry(
        "stop",
        "how --preempt jobs make room: stop, or suspend to host RAM",
        _one_of("stop", "suspend"),
    ),
    "order": ConfigEntry(
        "fifo",
        "which jobs start first: fifo, or shortest (run time, with ageing)",
        _one_of(FIFO, SHORTEST),
    ),
    "container.engine": ConfigEntry(
        "auto",
        "what runs --image: podman, docker, apptainer or bwrap; auto: the first",
        _one_of(AUTO, *ENGINES),
    ),
    "container.args": ConfigEntry(
        "none", "more arguments for its run: -v /data:/data --shm-size 8g", _words
    ),
    "container.home": ConfigEntry("no", "mount your home folder in containers: yes, no", _yes_no),
    "policy": ConfigEntry("default", "who plans: an entry point of the group stoker.policies", str),
    "gpulimit.safety_keep_memory": ConfigEntry(
        "0.2", "gpulimit: the part of the RAM that starts leave free", _fraction
    ),
    "gpulimit.safety_keep_gpu_memory": ConfigEntry(
        "0.5", "gpulimit: the part of a GPU's memory to be free for a start", _fraction
    ),
    "gpulimit.max_running_tasks": ConfigEntry(
        "-1", "gpulimit: tasks on a GPU at once; -1: any", _whole(1, none="-1")
    ),
    "gpulimit.max_err_times": ConfigEntry(
        "1", "gpulimit: runs of a task in all if it fails", _positive
    ),
    "gpulimit.timer_polling_time": ConfigEntry(
        "10", "gpulimit: kept for its users; starts follow events, not a timer", _decimal
    ),
}
# Settings of one project: the name of the setting ends with the name of the project.
OF_PROJECTS = {
    "limit.": ConfigEntry("none", "jobs of the project at once", _whole(1, none="none")),
    "gpus.": ConfigEntry("all", "the GPUs that the project may use: 0,1", str),
    "max-failures.": ConfigEntry(
        "none", "failed jobs, in all, that pause the project", _whole(1, none="none")
    ),
    "on-nan.": ConfigEntry(
        "mark",
        "what becomes of its jobs that report nan or inf: mark, notify, stop",
        _one_of(*get_args(OnNan)),
    ),
    "stall.": ConfigEntry("never", "end its jobs as --stall does: 20m, never", _time_limit),
    "idle.": ConfigEntry("never", "end its jobs as --idle does: 15m, never", _time_limit),
}
_SECRET = {"notify"}
# Names of earlier versions, which may be on record.
_RENAMED = {"on_finish": "on-finish", "on_fail": "on-fail", "on_mark": "on-mark"}


class Config:
    """The daemon's settings, kept in its database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.load()

    def load(self) -> None:
        """Read the recorded settings."""
        recorded = read_settings(self._database)
        self._values = {_RENAMED.get(name, name): text for name, text in recorded.items()}
        lease = self._values.get("cluster.lease", "")
        if lease.isdecimal():  # written in seconds before times had units
            self._values["cluster.lease"] = f"{lease}s"

    def text(self, name: str) -> str:
        """A setting as it was written, or its default."""
        return self._values.get(name) or entry_of(name).default

    def value(self, name: str) -> Any:
        """The parsed value of a setting."""
        return entry_of(name).parse(self.text(name))

    def of_project(self, prefix: str, project: str | None) -> Any:
        """The parsed value of a setting for a project; its default for jobs without one."""
        if project is None:
            return OF_PROJECTS[prefix].parse(OF_PROJECTS[prefix].default)
        return self.value(f"{prefix}{project}")

    def words(self, name: str) -> list[str]:
        """A setting that is a list."""
        text = self.text(name)
        return [] if text == "none" else text.split(",")

    @property
    def log_cap_bytes(self) -> int | None:
        """The size above which a log is cut; None for no limit."""
        return cast("int | None", self.value("log.cap"))

    @property
    def sync_limit_bytes(self) -> int | None:
        """The size of a job's results above which they are not copied back; None for no limit."""
        return cast("int | None", self.value("sync.limit"))

    @property
    def is_warm(self) -> bool:
        """Whether jobs with `--warm auto` start warm."""
        return bool(self.value("warm"))

    @property
    def limits_threads(self) -> bool:
        """Whether jobs beside others get a fair number of threads."""
        return bool(self.value("threads"))

    @property
    def is_mps_automatic(self) -> bool:
        """Whether jobs that share a GPU use MPS unasked. Jobs that may be suspended cannot use it."""
        return bool(self.value("mps")) and self.text("preempt.by") != "suspend"

    @property
    def containers(self) -> ContainerSettings:
        """How jobs with an image are run."""
        return ContainerSettings(
            self.value("container.engine"),
            self.value("container.args"),
            self.value("container.home"),
        )

    @property
    def cpu_places(self) -> int:
        """How many jobs without GPU may run at once."""
        return self.value("cpu.jobs") or len(os.sched_getaffinity(0))

    @property
    def gpus(self) -> str | None:
        """The slots as the user names them; None for every GPU that is not in use."""
        text = self.text("gpus")
        return None if text == "default" else text

    @property
    def gpus_with_others(self) -> bool:
        """Whether detected GPUs are used while processes of others run there."""
        return bool(self.value("gpus-with-others"))

    @property
    def ray_address(self) -> str | None:
        """The address of the cluster that the queue uses."""
        text = self.text("ray.address")
        return None if text == "none" else text

    @property
    def lease_s(self) -> float:
        """How long a node's jobs may run without a message from the head."""
        return float(self.value("cluster.lease"))

    @property
    def sharing_rules(self) -> SharingRules:
        """The limits for sharing GPUs: Stoker's own, and gpulimit's for its tasks."""
        return SharingRules(
            most=self.value("share.most"),
            keep_host_share=self.value("share.keep-memory"),
            with_others=self.value("share.with-others"),
            free=gpulimit_rules(
                self.value("gpulimit.safety_keep_gpu_memory"),
                self.value("gpulimit.safety_keep_memory"),
                self.value("gpulimit.max_running_tasks") or MOST_TENANTS,
            ),
        )

    def limits(self) -> dict[str, int]:
        """How many jobs of each project may run at once."""
        return {project: int(text) for project, text in self._of_projects("limit.")}

    def max_failures(self) -> dict[str, int]:
        """How many failed jobs pause a project, for each project."""
        return {project: int(text) for project, text in self._of_projects("max-failures.")}

    def gpus_of_projects(self) -> dict[str, frozenset[str]]:
        """The GPUs that each project may use."""
        return {project: self.split_gpus(text) for project, text in self._of_projects("gpus.")}

    def _of_projects(self, prefix: str) -> Iterator[tuple[str, str]]:
        for name, text in self._values.items():
            if name.startswith(prefix):
                yield name.removeprefix(prefix), text

    @staticmethod
    def split_gpus(text: str) -> frozenset[str]:
        """Split a list of GPUs."""
        return frozenset(word for word in re.split(r"[,+\s]+", text) if word)

    def all(self) -> list[Setting]:
        """Every setting."""
        of_projects = sorted(name for name in self._values if name not in ENTRIES)
        return [self.setting(name) for name in (*ENTRIES, *of_projects)]

    def setting(self, name: str) -> Setting:
        """A setting with its value, default and meaning."""
        entry = entry_of(name)
        value = self.text(name)
        shown = "(set)" if name in _SECRET and value != entry.default else value
        return Setting(name=name, value=shown, default=entry.default, meaning=entry.meaning)

    def change(self, name: str, value: str | None) -> Setting:
        """Record a value, or with None the default; raises UsageError for an invalid value."""
        entry = entry_of(name)
        if value is not None:
            try:
                entry.parse(value)
            except ValueError as error:
                raise UsageError(f"{name} cannot be {value!r}: {error}") from None
        with self._database.transaction(durable=True):
            self.write(name, value)
        self.load()
        return self.setting(name)

    def write(self, name: str, value: str | None) -> None:
        """Record a value inside a transaction; `load` puts it into effect."""
        for old, new in _RENAMED.items():
            if new == name:
                forget_setting(self._database, old)
        if value is None or value == entry_of(name).default:
            forget_setting(self._database, name)
        else:
            record_setting(self._database, name, value)


def entry_of(name: str) -> ConfigEntry:
    """Find a setting by name; raises NotFoundError with the names of all settings."""
    if name in ENTRIES:
        return ENTRIES[name]
    for prefix, entry in OF_PROJECTS.items():
        if name.startswith(prefix) and len(name) > len(prefix):
            check_name("the project", name.removeprefix(prefix))
            return entry
    raise NotFoundError(explain_unknown(name, ENTRIES))
