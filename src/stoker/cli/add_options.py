"""Readers of options whose text must be parsed.

`add`, `sweep` and `run` import this module only if such an option is given, and a reader imports
what it needs only when it is called: `stoker add` has to start fast.
"""

from __future__ import annotations

from stoker.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    _Time = TypeVar("_Time", float, float | None)

_LONGEST_S = 86400.0
_PLACEHOLDERS = ("project", "name", "id", "index")


def read_options(
    given: Mapping[str, Any], spell: Callable[[str], str] = lambda name: f"--{name}"
) -> dict[str, Any]:
    """Return the entries of a submission for the options of a command line.

    An option without a reader below is an entry of the same name and value. `spell` is how messages name
    an option.
    """
    options: dict[str, Any] = {}
    for name, value in given.items():
        if value is None or value is False:
            continue
        field, read = READERS.get(name, (name, None))
        try:
            options[field] = value if read is None else read(value)
        except ValueError as error:
            raise UsageError(f"{spell(name.replace('_', '-'))}: {error}") from None
    preset = options.pop("checkpoint", None)
    return options if preset is None else {**preset, **options}


def read_modules(text: str) -> list[str]:
    """Read the modules that a warm worker imports: `torch,numpy`, or `auto`; `never` for none."""
    from stoker.warm.command import NEVER, check_modules, is_python

    if text == NEVER:
        return []

    modules = [name for name in text.replace(",", " ").split() if name]
    if not modules or is_python(modules[0]):
        raise UsageError("--warm: name modules before the command: --warm torch, or --warm auto")
    problem = check_modules(modules)
    if problem is not None:
        raise UsageError(f"--warm: {problem}")
    return modules


def read_labels(option: str, words: list[str]) -> dict[str, str]:
    """Read labels of nodes: `disk=fast`."""
    labels: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise UsageError(f"{option}{word}: write name and value, such as disk=fast")
        labels[name] = value
    return labels


def check_log_template(log: str, option: str = "-o ") -> list[str]:
    """Return the placeholders in the path of a log; raises UsageError for an unknown one."""
    found = [piece.partition("}")[0] for piece in log.split("{")[1:] if "}" in piece]
    for word in found:
        if word not in _PLACEHOLDERS:
            raise UsageError(
                f"{option}{log}: there is no {{{word}}}, only {{project}}, {{name}}, {{id}}, {{index}}"
            )
    return found


def _ids(text: str) -> str:
    if not text.strip(", "):
        raise ValueError("name jobs: 12, 1,5-9, @ or a name")
    return text


def _moment(text: str) -> float:
    import time

    from stoker.cli.times import parse_moment

    return parse_moment(text, time.time())


def read_signal(text: str) -> int:
    """Read `USR1`, `SIGUSR1`, `usr1` or `10`; raises ValueError for a signal that cannot end a job."""
    from signal import SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, Signals

    word = text.upper().removeprefix("SIG")
    hint = "write TERM, INT, USR1 …"
    try:
        found = Signals(int(word)) if word.isdigit() else Signals[f"SIG{word}"]
    except (KeyError, ValueError):
        raise ValueError(f"no signal {text!r}: {hint}") from None
    if found in (SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT):
        raise ValueError(f"{text} stops a job and does not end it: {hint}")
    return found.value


def _checkpoint(text: str) -> dict[str, Any]:
    """Return how a framework wants to be told to save and end; other options win over it."""
    from signal import SIGTERM, SIGUSR2

    presets = {"hf": (SIGTERM, 300.0), "lightning": (SIGTERM, 300.0), "submitit": (SIGUSR2, 90.0)}
    if text not in presets:
        raise ValueError(f"{text!r} is not known: write {', '.join(presets)}")
    signum, grace_s = presets[text]
    return {"stop_signal": signum.value, "grace_s": grace_s, "signal_main": True}


def _share(text: str) -> str:
    from stoker.core.sharing.rules import parse_share

    return parse_share(text).text


def _size(text: str) -> int:
    from stoker.core.size import parse_size

    return parse_size(text)


def _nodes(text: str) -> list[str]:
    nodes = [word.strip() for word in text.split(",") if word.strip()]
    if not nodes:
        raise ValueError("name one node, or several: gpu1,gpu2")
    return nodes


def _gpu_model(text: str) -> str:
    if not text.strip():
        raise ValueError("name a kind of GPU: a100")
    return text.strip()


def _shell(text: str) -> str:
    from stoker.executors.command import resolve_shell

    return resolve_shell(text)


def _image(text: str) -> str:
    from stoker.containers.command import read_image

    return read_image(text)


def _grace(text: str) -> float:
    from stoker.core.durations import parse_span

    return _at_most_a_day(text, _read_time(parse_span, text))


def _backoff(text: str) -> float:
    from stoker.core.durations import parse_duration

    return _at_most_a_day(text, _read_time(parse_duration, text))


def _waste_limit(text: str) -> float:
    """Read a time after which a job that wastes its GPU is ended; 0 for never."""
    from stoker.core.durations import parse_limit

    return _read_time(parse_limit, text) or 0.0


def _read_time(parse: Callable[[str], _Time], text: str) -> _Time:
    """Read a time; ValueError, to which the name of the option is added."""
    try:
        return parse(text)
    except UsageError as error:
        raise ValueError(str(error)) from None


def _at_most_a_day(text: str, seconds: float) -> float:
    if seconds > _LONGEST_S:
        raise ValueError(f"{text} is too long, at most 1d")
    return seconds


# Each option: its entry of a submission, and the reader of its text.
READERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "after": ("after", _ids),
    "after_any": ("after_any", _ids),
    "begin": ("begin_at", _moment),
    "checkpoint": ("checkpoint", _checkpoint),
    "signal": ("stop_signal", read_signal),
    "grace": ("grace_s", _grace),
    "backoff": ("backoff_s", _backoff),
    "stall": ("stall_s", _waste_limit),
    "idle": ("idle_s", _waste_limit),
    "warm": ("warm", read_modules),
    "share": ("share", _share),
    "gpu_mem": ("gpu_mem_bytes", _size),
    "mem": ("mem_bytes", _size),
    "node": ("nodes", _nodes),
    "on": ("on", _gpu_model),
    "node_label": ("node_labels", lambda words: read_labels("--node-label ", words)),
    "shell": ("shell", _shell),
    "image": ("image", _image),
}
