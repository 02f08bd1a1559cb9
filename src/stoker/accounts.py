"""User names, and user-controlled text made safe to print."""

from __future__ import annotations

import pwd


def name_of(uid: int) -> str:
    """Return the login name of a user; the number if there is no such account."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def printable(text: str, most: int) -> str:
    """Return at most `most` printable characters of untrusted text: no control characters."""
    return "".join(filter(str.isprintable, text[: 4 * most]))[:most]
