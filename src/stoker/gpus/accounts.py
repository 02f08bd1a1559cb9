"""Names of users, and text of theirs made safe to print."""

from __future__ import annotations

import pwd


def name_of(uid: int) -> str:
    """The login name of a user; the number where no account has it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def printable(text: str, most: int) -> str:
    """At most so many characters of a text that any user can write; nothing that moves a cursor."""
    return "".join(filter(str.isprintable, text[: 4 * most]))[:most]
