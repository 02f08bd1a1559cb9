"""Cluster settings of a home: the identity of this box, its membership, and the token.

    node.json      identity of this box: an id, made once, and a name; it outlasts leaving
    settings.json  membership, as head or as node; missing if the box belongs to no cluster
    token          Ray's token (0600)
    join-tokens.json   on the head: the issued join tokens (0600)
    boxes.json     on the head: the machines that were added over ssh
    tls.json       paths of the certificates, if the cluster uses TLS; tls-*: those that Stoker made
    ray_supervisor.lock    held by the Ray supervisor, contains its pid;  ray_supervisor.json: state of Ray

All of them are in `<home>/cluster/` (0700). Files are replaced, never rewritten.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

import msgspec

from stoker.errors import StokerError, UsageError

T = TypeVar("T")

DEFAULT_PORT = 7866
# The head of a cluster over ssh, on the loopback interface of each box; its nodes have the next addresses.
OVER_SSH_HEAD = "127.77.0.1"
_LAST_PORT = 65535
# Ray uses so many ports on each box: node manager, object manager, runtime environments, and workers.
PORT_COUNT = 16
_RUNTIME_ENVIRONMENTS, _FIRST_WORKER = 2, 3
_BLOCKS = 64
# Ray refuses to use this port for anything but its dashboard, also where it has none.
_RAY_DASHBOARD = 8265
# Files that are removed when a box leaves its cluster.
_TLS_FILES = ("tls.json", "tls-ca.key", "tls-ca.crt", "tls-node.key", "tls-node.crt")
BOXES = "boxes.json"
_OF_A_CLUSTER = ("settings.json", "token", "join-tokens.json", BOXES, *_TLS_FILES)
# Ray accepts no other labels.
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
RESERVED_LABELS = ("stoker-", "ray.io/")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


class ClusterNode(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of this box."""

    id: str
    name: str


class RayPorts(NamedTuple):
    """Ports of Ray on one box; those of worker processes are a range."""

    node_manager: int
    object_manager: int
    runtime_environments: int
    first_worker: int
    last_worker: int


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Membership of this box: the head's address and port, and this box's own address and labels."""

    role: str  # head or node
    address: str
    port: int
    own_address: str
    labels: dict[str, str] = {}
    gpus: str | None = None  # in the form of --gpus; None: every GPU not in use
    env: dict[str, str] = {}  # of jobs on this box: see node_environment
    first_port: int | None = None  # of those that Ray uses on this box; None: Ray chooses
    is_pilot: bool = False  # it joined in the foreground of a batch script: see `pilot`

    @property
    def ray_ports(self) -> RayPorts | None:
        """The ports of Ray on this box, besides the cluster's; None if Ray chooses them."""
        if self.first_port is None:
            return None
        first, last = self.first_port, self.first_port + PORT_COUNT - 1
        return RayPorts(
            first, first + 1, first + _RUNTIME_ENVIRONMENTS, first + _FIRST_WORKER, last
        )

    @property
    def is_head(self) -> bool:
        """Whether this box is the one that the others join."""
        return self.role == "head"

    @property
    def target(self) -> str:
        """The cluster's address as Ray and `stoker cluster join` write it."""
        return join_address(self.address, self.port)

    @property
    def join_port(self) -> int:
        """The port of the head at which boxes exchange their join tokens."""
        return join_port(self.port)


def is_over_ssh(address: str) -> bool:
    """Whether the machines of a head with this address reach each other through ssh alone."""
    return address == OVER_SSH_HEAD


def folder_of(home: str) -> str:
    """Return the cluster folder of a home; it may not exist yet."""
    return os.path.join(home, "cluster")


def leaving_path(home: str) -> str:
    """Return the path of a file that exists while this box is leaving, until its agent has told the head."""
    return os.path.join(folder_of(home), "leaving")


def ending_path(home: str) -> str:
    """Return the path of a file that exists once a pilot is being ended."""
    return os.path.join(folder_of(home), "pilot_ending")


def pilot_lock_path(home: str) -> str:
    """Return the path of the file that a pilot locks for as long as its node is to live."""
    return os.path.join(folder_of(home), "pilot.lock")


def token_path(home: str) -> str:
    """Return the path of the token."""
    return os.path.join(folder_of(home), "token")


def load_settings(home: str) -> ClusterSettings | None:
    """Return the membership of this box; None if it belongs to no cluster."""
    return read_struct(os.path.join(folder_of(home), "settings.json"), ClusterSettings)


def save_settings(home: str, settings: ClusterSettings) -> None:
    """Make this box a member of a cluster."""
    write_file(home, "settings.json", msgspec.json.encode(settings))


def forget_settings(home: str) -> None:
    """End the membership of this box; its identity stays."""
    for name in _OF_A_CLUSTER:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder_of(home), name))


def load_node(home: str) -> ClusterNode:
    """Return the identity of this box, which is created on the first call."""
    found = read_struct(os.path.join(folder_of(home), "node.json"), ClusterNode)
    return renew_node(home, default_name()) if found is None else found


def renew_node(home: str, name: str) -> ClusterNode:
    """Give this box a new identity."""
    made = ClusterNode(id=secrets.token_hex(8), name=name)
    save_node(home, made)
    return made


def save_node(home: str, node: ClusterNode) -> None:
    """Save the identity of this box."""
    write_file(home, "node.json", msgspec.json.encode(node))


def default_name() -> str:
    """Return this host's name up to the first dot, with only the characters that a name may have."""
    plain = _NOT_IN_NAMES.sub("-", socket.gethostname().partition(".")[0]).strip("-._")
    return plain[:50].strip("-._") or "node"


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """Return the wanted name with a number if it is taken: `gpu1`, `gpu1-2`, `gpu1-3`."""
    others = set(taken)
    name, number = wanted, 1
    while name in others:
        number += 1
        name = f"{wanted}-{number}"
    return name


def check_node_name(name: str) -> str:
    """Return the given name of a box; raise UsageError if it is not valid."""
    if not _LABEL.fullmatch(name) or len(name) > 50:
        raise UsageError(
            f"--name {name!r}: letters, digits, '-', '_' and '.', at most 50, beginning and ending with"
            " a letter or a digit"
        )
    return name


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    """Parse labels of a command line: `disk=nvme`."""
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
    """Split `HOST`, `HOST:PORT` or `[IPV6]:PORT`; raise ValueError for anything else.

    Without a default, the port is required.
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
    """Return a port that a new cluster can use; raise ValueError for others."""
    most = _LAST_PORT - 1 - PORT_COUNT
    if not 1 <= port <= most:
        raise ValueError(
            f"a port is a number from 1 to {most}; the {PORT_COUNT + 1} after it are used too"
        )
    return port


def choose_first_port(wanted: int, *, is_fixed: bool, turn: int = 0) -> int:
    """Return the first of the ports for Ray on this box: the wanted one, or of the next block that is free.

    A box may belong to the clusters of several users. Nodes that begin on one box at the same moment have
    different turns, so that they look at different blocks first. Raises StokerError if no block is free, or
    if the wanted one is fixed and not free.
    """
    for block in range(1 if is_fixed else _BLOCKS):
        first = wanted + (block + turn) % _BLOCKS * PORT_COUNT
        ports = range(first, first + PORT_COUNT)
        if ports[-1] > _LAST_PORT or (_RAY_DASHBOARD in ports and not is_fixed):
            continue
        if all(map(_is_free, ports)):
            return first
    raise StokerError(
        f"the ports {wanted}-{wanted + PORT_COUNT - 1} are in use here: name the first of {PORT_COUNT} others"
        " with --ports"
    )


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def join_port(port: int) -> int:
    """Return the port at which boxes join a cluster with this port: the next one."""
    return port + 1


def join_address(host: str, port: int) -> str:
    """Return host and port as one text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def make_token() -> str:
    """Return a new random token."""
    return secrets.token_hex(32)


def load_token(home: str) -> str | None:
    """Return the saved token; None if there is none."""
    try:
        with open(token_path(home), encoding="ascii") as file:
            return file.read().strip() or None
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StokerError(f"cannot read {token_path(home)}: {error}") from None


def check_token(text: str) -> str:
    """Return a token that the user gave; raise UsageError if it is not valid."""
    token = text.strip()
    if not re.fullmatch(r"[!-~]{16,512}", token):
        raise UsageError(
            "that is not a token: stoker cluster up prints it on the first box, 16 letters or more"
        )
    return token


def save_token(home: str, token: str) -> None:
    """Save the token so that only its owner can read it."""
    write_file(home, "token", token.encode("ascii"))


def make_folder(home: str) -> str:
    """Create the cluster folder if it is missing, and set its mode to 0700. Returns its path."""
    folder = folder_of(home)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chmod(folder, 0o700)
    return folder


def read_struct(path: str, kind: type[T]) -> T | None:
    """Return the content of a JSON file; None if there is no file. Raises StokerError if it is damaged."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise StokerError(f"cannot read {path} ({error}): move it away to start anew") from None


def write_file(home: str, name: str, data: bytes) -> None:
    """Replace a file in the cluster folder, readable only by its owner."""
    folder = make_folder(home)
    import tempfile  # late: the daemon of a queue without a cluster writes no settings

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
