"""Slurm's commands: submit a batch script, list jobs, cancel them.

What the commands write is taken as text of strangers: it is cut, and loses its control characters.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from stoker.cluster.ray_command import TOKEN_VARIABLE
from stoker.errors import StokerError

_TIMEOUT_S = 30.0
_LONGEST = 300
_PREFIX = re.compile(r"^(?:sbatch|squeue|scancel): (?:error: |fatal: )?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_LEFT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
_FORMAT = "%i|%T|%L|%e|%r|%j"
_FIELDS = 6
# Where several lines tell of one mistake, these name it.
_TELLING = ("Munge encode failed", "Invalid", "invalid", "not available", "Unable to contact")
_SILENT = ("Munge encode failed", "Unable to contact", "Socket timed out", "Zero Bytes were")
_NOT_OURS = ("STOKER_HOME", TOKEN_VARIABLE)


class SlurmError(StokerError):
    """A command of Slurm that failed, with Slurm's reason."""


class SlurmSilentError(SlurmError):
    """Slurm does not answer; it may answer later."""


class SlurmJob(NamedTuple):
    """A job as squeue shows it. `left_s` is None if it has no end or has not begun."""

    id: int
    state: str
    left_s: float | None
    reason: str
    name: str

    @property
    def is_pending(self) -> bool:
        """Whether it has not begun."""
        return self.state in ("PENDING", "CONFIGURING", "REQUEUED", "SPECIAL_EXIT")


def submit(options: Sequence[str], script: str, *, only_test: bool = False) -> int:
    """Submit a script and return its id, or with `only_test` learn whether Slurm would take it."""
    if only_test:
        _run(["sbatch", *options, "--test-only"], script)
        return 0
    answer = _run(["sbatch", *options, "--parsable"], script)
    number = answer.strip().partition(";")[0]
    if not number.isdigit():
        raise SlurmError(f"sbatch answers {_plain(answer)!r} and no number")
    return int(number)


def list_jobs(name: str) -> dict[int, SlurmJob]:
    """Return this user's jobs whose names begin with `name`, with one call for all of them."""
    answer = _run(["squeue", "--noheader", f"--user={os.getuid()}", f"--format={_FORMAT}"])
    jobs = (_parse(line) for line in answer.splitlines())
    return {job.id: job for job in jobs if job is not None and job.name.startswith(name)}


def cancel(jobs: Iterable[int]) -> None:
    """End jobs; those that are over do not matter."""
    _run(["scancel", "--quiet", *map(str, jobs)])


def parse_left(text: str) -> float | None:
    """Parse the time that is left: `4:00`, `3:59:10`, `1-02:03:04`; None for UNLIMITED and the like."""
    found = _LEFT.fullmatch(text.strip())
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _parse(line: str) -> SlurmJob | None:
    fields = line.split("|", _FIELDS - 1)
    if len(fields) < _FIELDS or not fields[0].isdigit():
        return None
    number, state, left, _ends_at, reason, name = fields
    return SlurmJob(int(number), _plain(state), parse_left(left), _plain(reason), _plain(name))


def _run(words: Sequence[str], stdin: str = "") -> str:
    try:
        ended = subprocess.run(
            words,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            env=_environment(os.environ),
            timeout=_TIMEOUT_S,
            cwd="/",
            check=False,
        )
    except FileNotFoundError:
        raise SlurmError(
            f"Slurm is not installed on this machine: there is no {words[0]} in the daemon's PATH"
        ) from None
    except (OSError, ValueError) as error:
        raise SlurmError(f"{words[0]} cannot be started: {error}") from None
    except subprocess.TimeoutExpired:  # without munged, the commands try for long, and say nothing
        why = "" if _runs("munged") else ": munged does not run on this machine"
        raise SlurmSilentError(f"{words[0]} did not answer within {_TIMEOUT_S:.0f}s{why}") from None
    if ended.returncode:
        is_silent = any(sign in ended.stderr for sign in _SILENT)
        raise (SlurmSilentError if is_silent else SlurmError)(
            describe_error(words[0], ended.stderr, ended.returncode)
        )
    return ended.stdout


def _runs(program: str) -> bool:
    """Whether a program of any user runs on this machine."""
    for path in glob.iglob("/proc/[0-9]*/comm"):
        with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
            if file.read().strip() == program:
                return True
    return False


def describe_error(command: str, stderr: str, status: int) -> str:
    """Return the line of an error that names the mistake."""
    lines = [_plain(_PREFIX.sub("", line)) for line in stderr.splitlines() if line.strip()]
    for word in _TELLING:
        for line in lines:
            if word in line:
                return f"{command}: {line}"
    return f"{command}: {lines[-1]}" if lines else f"{command} failed with exit {status}"


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command: Slurm passes it on to the batch script."""
    return {name: value for name, value in environ.items() if name not in _NOT_OURS}


def _plain(text: str) -> str:
    return _CONTROL.sub(" ", text).strip()[:_LONGEST]
