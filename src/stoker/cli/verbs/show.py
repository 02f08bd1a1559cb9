"""`stoker show`: shows everything about one job."""

from __future__ import annotations

import time

from stoker.cli.arguments import JSON, Args, arg
from stoker.cli.job_table import full_name, took
from stoker.cli.messages import print_json
from stoker.cli.selection import IDS_HELP
from stoker.cli.state_colours import MARKED, STYLES
from stoker.cli.tables import Cell, Column, format_size, print_facts, print_line, print_table
from stoker.cli.times import format_moment
from stoker.client.light_client import LightClient
from stoker.core.durations import format_ago, format_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from stoker.wire import AttemptInfo, Bytes, JobDetail

SUMMARY = "Show everything about one job: what it runs, where, since when, how each attempt ended."
EXAMPLES = """\
  stoker show 12           job 12
  stoker show @            the last one
  stoker show train        the job of this name
  stoker show @ --env      with its environment, secrets hidden
  stoker show @ --json     for scripts
"""

_ATTEMPTS = (
    Column("ATTEMPT", right=True),
    Column("STATE"),
    Column("GPU"),
    Column("PID", right=True),
    Column("STARTED"),
    Column("TOOK", right=True),
    Column("CPU", right=True),
    Column("PEAK RSS", right=True),
)
_GPU_USE = (Column("PEAK GPU", right=True), Column("SM", right=True))
_REASON = Column("REASON", spare=True, gives=True)
# What a shell reads as it is; other words need quotes.
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_")

ARGUMENTS = (
    arg("id", metavar="ID", help=IDS_HELP),
    arg("-e", "--env", action="store_true", help="show its environment as well"),
    JSON,
)


def run(args: Args) -> int:
    """Print the job."""
    if args.json:
        _print_json(args)
        return 0
    with LightClient() as client:
        job = client.show(args.id)
    now = time.time()
    print_facts(_facts(job, now))
    if job.attempts:
        print()
        _print_attempts(job.attempts, now)
    print()
    if args.env:
        print_facts(sorted(job.env.items()))
    else:
        print_line((f"{len(job.env)} variables of its environment: --env shows them", "dim"))
    return 0


def _print_json(args: Args) -> None:
    import msgspec

    from stoker.client.client import Client

    with Client() as client:
        shown = msgspec.to_builtins(client.show(args.id))
    if not args.env:
        del shown["env"]
    print_json(shown, ensure_ascii=False)


def _facts(job: JobDetail, now: float) -> list[tuple[str, Cell]]:
    facts: list[tuple[str, Cell | None]] = [
        ("job", str(job.id)),
        ("name", full_name(job)),
        ("state", _state(job)),
        ("mark", _mark(job)),
        ("reason", job.reason),
        ("failure", _failure(job)),
        ("command", _command(job)),
        ("folder", _text(job.cwd)),
        ("image", None if job.options.image is None else _text(job.options.image)),
        ("snapshot", job.snapshot),
        ("sync", _sync(job)),
        ("shell", job.shell),
        ("GPUs", _gpus(job)),
        ("set aside", _host(job)),
        ("where", _where(job)),
        ("priority", str(job.priority) if job.priority else None),
        ("time limit", format_duration(job.timeout_s) if job.timeout_s else None),
        ("retries", _retries(job)),
        ("after", _needs(job, any_end=False)),
        ("after any", _needs(job, any_end=True)),
        ("begins", _begin(job, now)),
        ("ended by", _ending(job)),
        ("ended if", _waste_limits(job)),
        ("preemption", _preemption(job)),
        ("warm", ", ".join(job.options.warm) or None),
        ("git", _git(job)),
        ("by", "@".join(part for part in (job.user, job.host) if part)),
        ("added", _moment(job.submitted_at, now)),
        ("started", _moment(job.started_at, now)),
        ("ended", _moment(job.ended_at, now)),
        ("took", took(job, now)),
        (
            "may end",
            None if job.ends_at is None else f"{format_moment(job.ends_at)}, as others of its kind",
        ),
        ("log", _log(job)),
        ("last line", _clean(job.last_line) if job.last_line else None),
    ]
    return [(name, cell) for name, cell in facts if cell]


def _failure(job: JobDetail) -> str | None:
    """Describe the class of a failure, unless the error is the job's own."""
    if job.failure in (None, "error"):
        return None
    from stoker.core.failure import MEANING, FailureClass

    failure = FailureClass(job.failure)
    return f"{failure.value}: {MEANING[failure]}"


def _print_attempts(attempts: Sequence[AttemptInfo], now: float) -> None:
    """Print the attempts; with columns for GPU use only if it was measured."""
    seen = any(attempt.gpu_use is not None for attempt in attempts)
    columns = (*_ATTEMPTS, *(_GPU_USE if seen else ()), _REASON)
    rows = [
        (*_attempt_row(attempt, now), *(_gpu_use(attempt) if seen else ()), attempt.reason or "")
        for attempt in attempts
    ]
    print_table(columns, rows)


def _gpu_use(attempt: AttemptInfo) -> Sequence[Cell]:
    peak = None if attempt.gpu_use is None else attempt.gpu_use.mem_peak_bytes
    share = None if attempt.gpu_use is None else attempt.gpu_use.sm_mean_pct
    return ("–" if peak is None else format_size(peak), "–" if share is None else f"{share:.0f}%")


def _state(job: JobDetail) -> Cell:
    attempts = f" (attempt {job.attempt})" if job.attempt > 1 else ""
    return (job.state.value + attempts, STYLES[job.state])


def _command(job: JobDetail) -> str:
    if job.argv is not None:
        return " ".join(map(_quote, map(_text, job.argv)))
    text = _text(job.line) if job.line is not None else job.command
    if job.script:
        lines = text.rstrip("\n").splitlines() or [""]
        more = f" … ({len(lines)} lines)" if len(lines) > 1 else ""
        return f"script: {lines[0]}{more}"
    return text


def _quote(word: str) -> str:
    if word and _PLAIN.issuperset(word):
        return word
    import shlex

    return shlex.quote(word)


def _clean(text: str) -> str:
    if text.isprintable():
        return text
    from stoker.cli.safe_text import clean

    return clean(text)


def _where(job: JobDetail) -> str | None:
    if not (job.nodes or job.on or job.node_labels):
        return None
    from stoker.core.placement import make_where

    return str(make_where(job.nodes, job.on, job.node_labels))


def _gpus(job: JobDetail) -> str:
    if job.gpus == 0:
        return "none"
    text = f"{job.gpus}, on {job.slots}" if job.slots else str(job.gpus)
    if job.options.mps:
        text += ", through MPS"
    if job.share is not None:
        text += f", shared: {job.share}"
    if job.gpu_mem_bytes is not None:
        text += f", {format_size(job.gpu_mem_bytes)} declared"
    if job.reserved_bytes is not None:
        used = "" if job.gpu_bytes is None else f", {format_size(job.gpu_bytes)} in use"
        how = "capped" if job.capped else "best effort"
        because = "" if job.reserved_because is None else f" ({job.reserved_because})"
        text += f"; {format_size(job.reserved_bytes)} set aside, {how}{because}{used}"
    return text


def _host(job: JobDetail) -> str | None:
    """Describe the CPUs and the RAM that are set aside for the job."""
    if job.cpus is None and job.mem_bytes is None:
        return None
    from stoker.core.host_room import describe_cpus
    from stoker.core.size import format_memory

    cpus = None if job.cpus is None else describe_cpus(job.cpus)
    ram = None if job.mem_bytes is None else f"{format_memory(job.mem_bytes)} of RAM at most"
    return ", ".join(filter(None, (cpus, ram))) or None


def _retries(job: JobDetail) -> str | None:
    if not job.retries:
        return None
    backoff_s = job.options.backoff_s
    pause = f", the first after {format_duration(backoff_s)}" if backoff_s else ""
    return f"{job.retries}{pause}"


def _needs(job: JobDetail, *, any_end: bool) -> str | None:
    needs = [need for need in job.needs if need.any is any_end]
    return ", ".join(f"{need.id} ({need.state.value if need.state else 'gone'})" for need in needs)


def _begin(job: JobDetail, now: float) -> str | None:
    if job.begin_at is None or job.begin_at < now:
        return None
    return f"{format_moment(job.begin_at)}, in {format_duration(job.begin_at - now)}"


def _sync(job: JobDetail) -> str | None:
    if not job.options.sync:
        return None
    return (
        f"runs from a copy; what it makes in {job.options.results} or its run's folder comes back"
    )


def _ending(job: JobDetail) -> str | None:
    """Describe how the job is ended, unless that is the default."""
    options = job.options
    if (options.stop_signal, options.grace_s, options.signal_main) == (15, 10.0, False):
        return None
    import signal

    try:
        name = signal.Signals(options.stop_signal).name
    except ValueError:
        name = f"signal {options.stop_signal}"
    to = " to its main process" if options.signal_main else ""
    return f"{name}{to}, SIGKILL {format_duration(options.grace_s)} later"


def _mark(job: JobDetail) -> Cell | None:
    if job.mark is None:
        return None
    began = format_moment(job.mark.since)
    return (f"{job.mark.kind.value}: {job.mark.text}; began {began}", MARKED)


def _waste_limits(job: JobDetail) -> str | None:
    """Describe what ends the job because it wastes its GPU, by its own options."""
    options = job.options
    words = []
    if options.on_nan is not None:
        become = {"mark": "only marked", "notify": "told", "stop": "ended"}[options.on_nan]
        words.append(f"nan or inf reported: {become}")
    for name, limit_s in (("stalled", options.stall_s), ("idle", options.idle_s)):
        if limit_s is not None:
            words.append(f"{name} for {format_duration(limit_s)}" if limit_s else f"never {name}")
    return ", ".join(words) or None


def _preemption(job: JobDetail) -> str | None:
    options = job.options
    words = {
        "may be pushed out": options.preemptible,
        "may push out others": options.preempt,
        "waits again when over its time limit": options.requeue,
        "finishes on a node that is cut off": options.on_cut == "finish",
    }
    return ", ".join(word for word, is_so in words.items() if is_so)


def _git(job: JobDetail) -> str | None:
    if job.git is None:
        return None
    return f"{job.git.commit}{' with changes' if job.git.dirty else ''}"


def _moment(at: float | None, now: float) -> str | None:
    if at is None:
        return None
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(at))}, {format_ago(now - at)}"


def _log(job: JobDetail) -> str | None:
    logs = [attempt.log for attempt in job.attempts if attempt.log is not None]
    return _text(logs[-1]) if logs else None


def _attempt_row(attempt: AttemptInfo, now: float) -> Sequence[Cell]:
    return (
        str(attempt.number),
        (attempt.state.value, STYLES[attempt.state]),
        attempt.slots or "–",
        str(attempt.pid or "–"),
        "–" if attempt.started_at is None else format_ago(now - attempt.started_at),
        took(attempt, now) or "–",
        "–" if attempt.cpu_s is None else format_duration(attempt.cpu_s),
        "–" if attempt.max_rss_bytes is None else format_size(attempt.max_rss_bytes),
    )


def _text(value: Bytes) -> str:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    import base64

    return base64.b64decode(value.b64).decode("utf-8", "replace")
