"""The join line of `stoker cluster`: join tokens, and the ports of a cluster."""

from __future__ import annotations

import sys
import time

from stoker.cli.messages import note
from stoker.cluster import settings
from stoker.cluster.join_tokens import (
    DEFAULT_EXPIRES_S,
    JoinToken,
    has_join_tokens,
    issue_join_token,
    newest_join_token,
    revoke_join_tokens,
)
from stoker.cluster.ray_command import TOKEN_VARIABLE
from stoker.core.durations import format_duration, parse_duration
from stoker.errors import ConflictError


def parse_expires(text: str | None) -> float | None:
    """Parse `--expires` to seconds; None for `never`."""
    if text is None:
        return DEFAULT_EXPIRES_S
    return None if text == "never" else parse_duration(text)


def show_join_line(home: str, known: settings.ClusterSettings, expires: str | None) -> None:
    """Print the line for the other machines, with the newest valid join token.

    Only a new cluster and `--expires` make a new token: `up` may run at every boot. A cluster over ssh has no
    such line.
    """
    if settings.is_over_ssh(known.address):
        print("Add the other boxes from here: stoker cluster add user@host")
        return
    token = newest_join_token(home, time.time()) if expires is None else None
    if token is None and expires is None and has_join_tokens(home):
        note(describe_join_token(home))
    else:
        _print_line(home, known, token, expires)
    sys.stderr.write(
        f"{describe_listeners(known)}. Let only the boxes of the cluster through the firewall.\n"
    )


def show_new_join_line(home: str, expires: str | None) -> int:
    """Make a join token and print its line."""
    known = _require_head(home)
    if settings.is_over_ssh(known.address):
        raise ConflictError(
            "boxes enter a cluster over ssh with stoker cluster add, not with a token"
        )
    _print_line(home, known, None, expires)
    return 0


def revoke(home: str) -> int:
    """Revoke all join tokens."""
    _require_head(home)
    count = revoke_join_tokens(home, time.time())
    what = "1 join token is" if count == 1 else f"{count} join tokens are"
    print(f"{what} revoked; the boxes of the cluster stay in it")
    return 0


def describe_join_token(home: str) -> str:
    """Describe how long the newest join token works."""
    token = newest_join_token(home, time.time())
    if token is None:
        return "no join token works: stoker cluster token makes one"
    return f"the newest join token {_describe_expiry(token)}"


def describe_listeners(known: settings.ClusterSettings) -> str:
    """Describe the ports of a cluster: Ray binds all interfaces, whatever address it is given."""
    join = settings.join_address(known.address, known.join_port)
    ports = known.ray_ports
    own = "ports that the system chooses"
    if ports is not None:
        own = f"ports {ports.node_manager}-{ports.last_worker}"
    at = f"port {known.port} and {own}" if known.is_head else own
    return (
        "Ray listens on every interface of each box (--address does not change that), on this one at"
        f" {at}; boxes join at {join}"
    )


def _print_line(
    home: str, known: settings.ClusterSettings, token: JoinToken | None, expires: str | None
) -> None:
    if token is None:
        token = issue_join_token(home, parse_expires(expires), time.time())
    short = known.address if known.port == settings.DEFAULT_PORT else known.target
    print("Run this on every other box, with Stoker and Ray installed as they are here:")
    print(f"\n  {TOKEN_VARIABLE}={token.text} stoker cluster join {short}\n")
    sys.stderr.write(
        f"The join token {_describe_expiry(token)}. Keep it secret: it lets its holder run anything on every"
        " box of the cluster.\n"
    )


def _describe_expiry(token: JoinToken) -> str:
    if token.expires_at is None:
        return "works until stoker cluster revoke"
    return f"works for {format_duration(token.expires_at - time.time())} from now"


def _require_head(home: str) -> settings.ClusterSettings:
    known = settings.load_settings(home)
    if known is None:
        raise ConflictError("this box belongs to no cluster: stoker cluster up starts one")
    if not known.is_head:
        raise ConflictError(f"join tokens are made and revoked on the first box, {known.address}")
    return known
