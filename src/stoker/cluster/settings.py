"""What a home knows of its cluster: who this box is, what it belongs to, and the token.

    node.json      who this box is: an id, made once, and a name; it outlasts leaving
    settings.json  what it belongs to, as head or as node; not there if it belongs to nothing
    token          what lets a box in (0600)
    join-tokens.json   on the head: the join tokens that were given out (0600)
    tls.json       paths of the certificates, if the cluster speaks TLS; tls-*: those that Stoker made
    ray_supervisor.lock    held by the Ray supervisor, with its pid inside;  ray_supervisor.json: how Ray is

All of them lie in `<home>/cluster/` (0700). Files are replaced, never rewritten.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import tempfile
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from stoker.errors import StokerError, UsageError

T = TypeVar("T")

DEFAULT_PORT = 7866
_LAST_PORT = 65535
# Ray gives these to its workers.
RESERVED_PORTS = range(10002, 20000)
# Files that go when a box leaves its cluster.
_TLS_FILES = ("tls.json", "tls-ca.key", "tls-ca.crt", "tls-node.key", "tls-node.crt")
_OF_A_CLUSTER = ("settings.json", "token", "join-tokens.json", *_TLS_FILES)
# Ray takes no other labels.
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
RESERVED_LABELS = ("stoker-", "ray.io/")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


class ClusterNode(msgspec.Struct, frozen=True, kw_only=True):
    """Who this box is."""

    id: str
    name: str


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What this box belongs to: the head's address and port, and our own address and labels."""

    role: str  # head or node
    address: str
    port: int
    own_address: str
    labels: dict[str, str] = {}
    gpus: str | None = None  # as --gpus names them; None: every GPU not in use

    @property
    def is_head(self) -> bool:
        """Whether this box is the one that the others join."""
        return self.role == "head"

    @property
    def target(self) -> str:
        """The cluster as Ray and `stoker cluster join` name it."""
        return join_address(self.address, self.port)

    @property
    def join_port(self) -> int:
        """The port of the head at which boxes exchange their join tokens."""
        return join_port(self.port)


def folder_of(home: str) -> str:
    """The folder of all this; it may not be there yet."""
    return os.path.join(home, "cluster")


def leaving_path(home: str) -> str:
    """A file that is there while this box is about to leave, until its agent has told the head."""
    return os.path.join(folder_of(home), "leaving")


def token_path(home: str) -> str:
    """Where the token is, if there is one."""
    return os.path.join(folder_of(home), "token")


def load_settings(home: str) -> ClusterSettings | None:
    """What this box belongs to; None if to nothing."""
    return read_struct(os.path.join(folder_of(home), "settings.json"), ClusterSettings)


def save_settings(home: str, settings: ClusterSettings) -> None:
    """Let this box belong to a cluster from now on."""
    write_file(home, "settings.json", msgspec.json.encode(settings))


def forget_settings(home: str) -> None:
    """Let this box belong to nothing; who it is stays."""
    for name in _OF_A_CLUSTER:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder_of(home), name))


def load_node(home: str) -> ClusterNode:
    """Who this box is; decided the first time that anybody asks."""
    found = read_struct(os.path.join(folder_of(home), "node.json"), ClusterNode)
    return renew_node(home, default_name()) if found is None else found


def renew_node(home: str, name: str) -> ClusterNode:
    """Let this box be one that nobody has seen before."""
    made = ClusterNode(id=secrets.token_hex(8), name=name)
    save_node(home, made)
    return made


def save_node(home: str, node: ClusterNode) -> None:
    """Remember who this box is."""
    write_file(home, "node.json", msgspec.json.encode(node))


def default_name() -> str:
    """This host's name up to the first dot, in letters that a name may have."""
    plain = _NOT_IN_NAMES.sub("-", socket.gethostname().partition(".")[0]).strip("-._")
    return plain[:50].strip("-._") or "node"


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """A name that none of the others has: `gpu1`, `gpu1-2`, `gpu1-3`."""
    others = set(taken)
    name, number = wanted, 1
    while name in others:
        number += 1
        name = f"{wanted}-{number}"
    return name


def check_node_name(name: str) -> str:
    """A name that was given to a box; raises UsageError if it cannot be one."""
    if not _LABEL.fullmatch(name) or len(name) > 50:
        raise UsageError(
            f"--name {name!r}: letters, digits, '-', '_' and '.', at most 50, beginning and ending with"
            " a letter or a digit"
        )
    return name


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    """Labels as they are given on a command line: `disk=nvme`."""
    labels: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not _LABEL.fullmatch(key) or not _LABEL.fullmatch(value):
            raise UsageError(
                f"--label {text!r}: a label is KEY=VALUE, both of letters, digits, '-', '_' and '.'"
            )
        if key.startswith(RESERVED_LABELS):
            raise UsageError(f"--label {text!r}: names that begin with {key[:7]!r} are taken")
        if key in labels:
            raise UsageError(f"--label {text!r}: {key} has a value already")
        labels[key] = value
    return labels


def split_address(text: str, default_port: int | None = DEFAULT_PORT) -> tuple[str, int]:
    """`HOST`, `HOST:PORT` or `[IPV6]:PORT` in its two parts; raises ValueError for anything else.

    A port must be named where there is no default.
    """
    found = re.fullmatch(
        r"(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9][A-Za-z0-9._-]*))(?::(\d{1,5}))?", text
    )
    if found is None:
        raise ValueError("an address is HOST or HOST:PORT")
    port = int(found[3]) if found[3] else default_port
    if port is None:
        raise ValueError("it needs a port: HOST:PORT")
    if not 1 <= port <= _LAST_PORT:
        raise ValueError(f"a port is a number from 1 to {_LAST_PORT}")
    return found[1] or found[2], port


def check_port(port: int) -> int:
    """A port that a new cluster can have; raises ValueError for others."""
    if not 1 <= port < _LAST_PORT:
        raise ValueError(
            f"a port is a number from 1 to {_LAST_PORT - 1}; boxes join at the next one"
        )
    if port in RESERVED_PORTS or join_port(port) in RESERVED_PORTS:
        first, last = RESERVED_PORTS[0], RESERVED_PORTS[-1]
        raise ValueError(f"Ray needs the ports {first} to {last} for its workers: choose another")
    return port


def join_port(port: int) -> int:
    """The port at which boxes join a cluster that has this port: the next one."""
    return port + 1


def join_address(host: str, port: int) -> str:
    """The two parts as one text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def make_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_hex(32)


def load_token(home: str) -> str | None:
    """The token that is kept; None if there is none."""
    try:
        with open(token_path(home), encoding="ascii") as file:
            return file.read().strip() or None
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StokerError(f"cannot read {token_path(home)}: {error}") from None


def check_token(text: str) -> str:
    """A token that was given; raises UsageError if it cannot be one."""
    token = text.strip()
    if not re.fullmatch(r"[!-~]{16,512}", token):
        raise UsageError(
            "that is no token: stoker cluster up prints it on the first box, 16 letters or more"
        )
    return token


def save_token(home: str, token: str) -> None:
    """Keep the token where only its owner can read it."""
    write_file(home, "token", token.encode("ascii"))


def make_folder(home: str) -> str:
    """Make the folder of all this where it is missing, with mode 0700 whatever it had; its path."""
    folder = folder_of(home)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chmod(folder, 0o700)
    return folder


def read_struct(path: str, kind: type[T]) -> T | None:
    """The content of a file of JSON; None if there is none. Raises StokerError if it is damaged."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise StokerError(f"cannot read {path} ({error}): move it away to start anew") from None


def write_file(home: str, name: str, data: bytes) -> None:
    """Replace a file of the cluster folder, readable by its owner alone."""
    folder = make_folder(home)
    fd, fresh = tempfile.mkstemp(prefix=f".{name}.", dir=folder)  # 0600
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, os.path.join(folder, name))
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
        raise
