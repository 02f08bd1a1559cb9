"""Hints for names of settings that do not exist."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Settings of one project, whose names end with that of the project: `stall.vision`.
OF_PROJECTS = ("limit", "gpus", "max-failures", "on-nan", "stall", "idle")
_OF_JOBS = {"on-nan", "stall", "idle"}  # `stoker add` has an option of this name
_LIKE = 0.75


def explain_unknown(name: str, known: Iterable[str]) -> str:
    """Say that there is no such setting, and which ones may be meant. `known` are those of all projects."""
    import difflib  # late: it serves a mistake

    names = [*known, *(f"{each}.PROJECT" for each in OF_PROJECTS)]
    if name in OF_PROJECTS:
        meant = [f"'{name}.PROJECT' for a project"]
        meant += [f"stoker add --{name} for a job"] if name in _OF_JOBS else []
        meant += [f"'mark.{name}'"] if f"mark.{name}" in names else []
        hint = f"did you mean {', or '.join(meant)}?"
    else:
        near = difflib.get_close_matches(name, names, n=1, cutoff=_LIKE)
        hint = f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(names)}"
    return f"there is no setting '{name}': {hint}"
