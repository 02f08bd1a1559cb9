"""Paths of logs with placeholders."""

from __future__ import annotations

from stoker.errors import UsageError

_PLACEHOLDERS = ("project", "name", "id", "index")


def check_template(log: str, option: str = "-o ") -> list[str]:
    """The placeholders in a path; raises UsageError for one that does not exist."""
    found = [piece.partition("}")[0] for piece in log.split("{")[1:] if "}" in piece]
    for word in found:
        if word not in _PLACEHOLDERS:
            raise UsageError(
                f"{option}{log}: there is no {{{word}}}, only {{project}}, {{name}}, {{id}}, {{index}}"
            )
    return found
