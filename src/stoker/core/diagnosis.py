"""Classification of a failed attempt by its wait status, the end of its log and facts of the machine.

Only failed attempts are classified: programs that succeed may print the same error texts.
"""

from __future__ import annotations

import re

from stoker.core.failure import Facts, Failure, FailureClass, OomFigures, was_killed
from stoker.core.job import describe
from stoker.core.log_symptoms import find_symptom
from stoker.core.oom_messages import read_figures, tell_figures

_REASON_LENGTH = 200
_NOT_RUN = (126, 127)
_MISSING = re.compile(r"([^:]+): (?:command )?not found$")
_PORT = re.compile(r"\bport:? ([0-9]+)")
_REFUSAL = re.compile(r"(stoker|Error|docker|FATAL|bwrap): +(.+)")
_REFUSAL_CODES = {
    "stoker": (125,),
    "Error": (125,),
    "docker": (125,),
    "FATAL": (255,),
    "bwrap": (1,),
}
_REFUSAL_LINES = 5
_NO_FACTS = Facts()


def classify(status: int, tail: str, facts: Facts = _NO_FACTS) -> Failure:
    """Return the class and the reason of a failure. `tail` is the end of the attempt's log."""
    if status == 0:
        raise ValueError("an attempt with wait status 0 succeeded: there is no failure to classify")
    if facts.overrun is not None:
        return Failure(kind=FailureClass.OVER_MEM, reason=str(facts.overrun))
    refusal = _refusal_of_engine(status >> 8, tail) if facts.image else None
    if refusal is not None:
        return Failure(kind=FailureClass.CONTAINER, reason=_shorten(f"no container: {refusal}"))
    symptom = find_symptom(tail)
    kind = _kind_of(symptom.kind, status, facts)
    figures = read_figures(tail) if kind is FailureClass.GPU_OOM else None
    line = symptom.line
    if status >> 8 in _NOT_RUN and (missing := _MISSING.search(line)):
        name = missing[1].strip()
        line = f"'{name}'" if " " in name else name
    told = _tell(kind, line, figures, facts)
    return Failure(
        kind=kind,
        reason=_shorten(f"{describe(status)}: {told}" if told else describe(status)),
        figures=figures,
        confirmed=kind is not FailureClass.DISK_FULL or facts.full_disk is not None,
    )


def _refusal_of_engine(code: int, tail: str) -> str | None:
    """Return why a container engine has started nothing, by its own exit code and message."""
    for line in reversed(tail.splitlines()[-_REFUSAL_LINES:]):
        found = _REFUSAL.fullmatch(line.strip())
        if found and code in _REFUSAL_CODES[found[1]]:
            return found[2]
    return None


def _kind_of(shown: FailureClass, status: int, facts: Facts) -> FailureClass:
    """Combine the class that the log shows with the facts of the machine."""
    if shown in (FailureClass.GPU_FAULT, FailureClass.NEIGHBOUR):
        # The driver reports a fault to every client of an MPS server, without naming the client at fault.
        together = facts.mps and facts.neighbours
        return FailureClass.NEIGHBOUR if together else FailureClass.GPU_FAULT
    if shown is not FailureClass.ERROR:
        return shown
    if facts.xid is not None:
        return FailureClass.GPU_FAULT
    if was_killed(status) and facts.oom_kills:
        return FailureClass.HOST_OOM
    return FailureClass.SETUP if status >> 8 in _NOT_RUN else shown


def _tell(kind: FailureClass, text: str, figures: OomFigures | None, facts: Facts) -> str:
    match kind:
        case FailureClass.GPU_OOM:
            return "GPU out of memory" + (tell_figures(figures) if figures else "")
        case FailureClass.HOST_OOM if not text:
            return "out of memory: the kernel killed it"
        case FailureClass.HOST_OOM:
            return f"out of memory: {text}"
        case FailureClass.GPU_FAULT:
            xid = "" if facts.xid is None else f" (XID {facts.xid})"
            return f"GPU fault{xid}: {text}".removesuffix(": ")
        case FailureClass.NEIGHBOUR:
            return "GPU fault, its own or that of a job it shared an MPS server with"
        case FailureClass.NCCL:
            return f"GPUs lost touch: {text}"
        case FailureClass.PORT_TAKEN:
            port = _PORT.search(text)
            named = f"port {port[1]}" if port else "its port"
            return f"{named} is taken by another process; with -g 2 or more, $MASTER_PORT is free"
        case FailureClass.DISK_FULL:
            where = "" if facts.full_disk is None else f" ({facts.full_disk} is full)"
            return f"disk full{where}: {text}"
        case _:
            return text


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _REASON_LENGTH else line[: _REASON_LENGTH - 1] + "…"
