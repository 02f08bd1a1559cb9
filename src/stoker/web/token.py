"""The page's secrets, and the token for its metrics, in files that only the owner can read.

Each time the daemon opens the page it makes new secrets. So a program that takes the port later cannot
use what a browser has stored.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterable
from typing import NamedTuple

_BYTES = 32  # 256 bits
_MIN_CHARACTERS = 43  # of so many bytes in base64
_MAX_CHARACTERS = 1000
_NAME = "token"
_METRICS_NAME = "metrics-token"


class Secrets(NamedTuple):
    """The secrets that authenticate a browser.

    `token` is in the link, and browsers store it. `handover` is only in the memory of open tabs; the next
    daemon accepts it once.
    """

    token: str
    handover: str


def token_path(home: str) -> str:
    """Return the secrets file of a home; its first line is the token."""
    return os.path.join(home, _NAME)


def read_secrets(home: str) -> Secrets | None:
    """Return the secrets of a home; None if there are none, or if other users could access them."""
    found = _read(token_path(home), 2)
    return None if found is None else Secrets(*found)


def renew_secrets(home: str) -> Secrets:
    """Write new secrets atomically."""
    made = Secrets(secrets.token_urlsafe(_BYTES), secrets.token_urlsafe(_BYTES))
    _write(token_path(home), made)
    return made


def forget_secrets(home: str) -> None:
    """Remove the secrets."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(token_path(home))


def metrics_token_path(home: str) -> str:
    """Return the file with the token that may only read `GET /metrics`."""
    return os.path.join(home, _METRICS_NAME)


def keep_metrics_token(home: str) -> str:
    """Return the token for the metrics; makes one if there is none, or if other users could read it.

    It stays the same when the page opens again: monitoring has it in its configuration.
    """
    found = _read(metrics_token_path(home), 1)
    if found is not None:
        return found[0]
    made = secrets.token_urlsafe(_BYTES)
    _write(metrics_token_path(home), (made,))
    return made


def forget_metrics_token(home: str) -> None:
    """Remove the token for the metrics, so that the next one is another."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(metrics_token_path(home))


def _read(path: str, count: int) -> list[str] | None:
    """Return the secrets of a file; None if there are not so many, or if other users could access them."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, encoding="ascii", errors="replace") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) & 0o077:
            return None
        lines = file.read(_MAX_CHARACTERS).split()
    is_ours = found.st_uid == os.geteuid()
    if not is_ours or len(lines) != count or min(map(len, lines)) < _MIN_CHARACTERS:
        return None
    return lines


def _write(path: str, lines: Iterable[str]) -> None:
    draft = f"{path}.{secrets.token_hex(8)}"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "w", encoding="ascii") as file:
            file.write("".join(f"{each}\n" for each in lines))
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
