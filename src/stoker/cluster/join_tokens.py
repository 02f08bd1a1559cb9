"""Join tokens: secrets that admit boxes to a cluster until they expire or are revoked.

Ray itself knows one token only, which cannot expire while the cluster is up. So the line that a user
copies to other boxes contains a join token instead. A box exchanges it at the head for Ray's token (see
`admission`). The head keeps its join tokens in `<home>/cluster/join-tokens.json` (0600).
"""

from __future__ import annotations

import os
import re
import secrets

import msgspec

from stoker.cluster.settings import folder_of, read_struct, write_file

DEFAULT_EXPIRES_S = 86400.0
_FILE = "join-tokens.json"
_FORM = re.compile(r"join-([0-9a-f]{12})-([0-9a-f]{64})")
# Expired tokens are kept for this long, so that a box with one learns that it has expired.
_KEEP_EXPIRED_S = 30 * 86400.0


class JoinToken(msgspec.Struct, frozen=True, kw_only=True):
    """A secret, its public id, and the time at which it expires (None: never)."""

    id: str
    secret: str
    expires_at: float | None
    address: str | None = None  # of the box that it is for; None: that of its connection

    @property
    def text(self) -> str:
        """The token as users copy it."""
        return f"join-{self.id}-{self.secret}"

    def is_expired(self, now: float) -> bool:
        """Whether it admits no more boxes."""
        return self.expires_at is not None and now >= self.expires_at


def parse_join_token(text: str) -> JoinToken | None:
    """Parse a token as a user gives it; None if it has another form, such as Ray's own."""
    found = _FORM.fullmatch(text)
    return None if found is None else JoinToken(id=found[1], secret=found[2], expires_at=None)


def issue_join_token(
    home: str, expires_s: float | None, now: float, address: str | None = None
) -> JoinToken:
    """Create a join token that expires after `expires_s` (None: valid until it is revoked)."""
    expires_at = None if expires_s is None else now + expires_s
    made = JoinToken(
        id=secrets.token_hex(6),
        secret=secrets.token_hex(32),
        expires_at=expires_at,
        address=address,
    )
    kept = [each for each in _load(home) if not each.is_expired(now - _KEEP_EXPIRED_S)]
    _save(home, [*kept, made])
    return made


def newest_join_token(home: str, now: float) -> JoinToken | None:
    """Return the newest valid join token; None if there is none."""
    return next((each for each in reversed(_load(home)) if not each.is_expired(now)), None)


def has_join_tokens(home: str) -> bool:
    """Whether join tokens were issued since the cluster is up, valid or not."""
    return os.path.exists(os.path.join(folder_of(home), _FILE))


def find_join_token(home: str, token_id: str) -> JoinToken | None:
    """Return the join token with this id, expired or not; None if it is unknown or revoked."""
    return next((each for each in _load(home) if each.id == token_id), None)


def revoke_join_token(home: str, token_id: str) -> None:
    """Revoke one join token, if there still is one with this id."""
    _save(home, [each for each in _load(home) if each.id != token_id])


def revoke_join_tokens(home: str, now: float) -> int:
    """Revoke all join tokens. Returns how many were valid."""
    working = sum(not each.is_expired(now) for each in _load(home))
    _save(home, [])
    return working


def _load(home: str) -> list[JoinToken]:
    return read_struct(os.path.join(folder_of(home), _FILE), list[JoinToken]) or []


def _save(home: str, tokens: list[JoinToken]) -> None:
    write_file(home, _FILE, msgspec.json.encode(tokens))
