"""The token that lets a browser in: in a file that only its owner can read, and nowhere else."""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import stat

from stoker.errors import StokerError

_BYTES = 32  # 256 bits
_NAME = "token"


def token_path(home: str) -> str:
    """Where a home keeps its token."""
    return os.path.join(home, _NAME)


def read_token(home: str) -> str:
    """The token of a home; made if there is none, refused if others could have read or written it."""
    path = token_path(home)
    with contextlib.suppress(FileExistsError):
        _make(path)
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(fd, encoding="ascii", errors="replace") as file:
        found = os.fstat(fd)
        token = file.read().strip()
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise StokerError(f"others can read {path}: stoker web --new-token makes another one")
    if len(token) < _BYTES:
        raise StokerError(f"{path} holds no token: stoker web --new-token makes one")
    return token


def forget_token(home: str) -> None:
    """Let nobody in with the present token."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(token_path(home))


def is_same(given: str, token: str) -> bool:
    """Compare in a time that tells nothing about where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), token.encode("ascii"))


def _make(path: str) -> None:
    """Write a new token under another name first: a file without its token is never seen."""
    draft = f"{path}.{secrets.token_hex(8)}"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(_BYTES) + "\n")
        os.link(draft, path)
    finally:
        os.unlink(draft)
