"""Checks of a Ray cluster from outside: whether this box can join it, and which nodes it has."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import json
import os
import platform
import socket
import struct
import subprocess
import tempfile
from importlib.metadata import PackageNotFoundError, version

import msgspec

from stoker import __version__
from stoker.cluster.protocol import FIRST, PROTOCOL
from stoker.cluster.ray_command import (
    NAME_LABEL,
    NODE_LABEL,
    PROTOCOL_LABEL,
    VERSION_LABEL,
    ray_environment,
)
from stoker.cluster.settings import join_address
from stoker.cluster.tls import HOW_TO_NAME, Certificates, check_peer, speaks_tls, tls_environment
from stoker.errors import StokerError
from stoker.interpreter import module_command

_REACH_S = 5.0
_PATIENCE_S = 60.0
_SIOCGIFADDR = 0x8915


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A box in a cluster. Its id and name are empty if Ray was not started there by Stoker."""

    address: str
    is_head: bool
    alive: bool
    labels: dict[str, str] = {}

    @property
    def id(self) -> str:
        """The node's id, which outlasts restarts of Ray."""
        return self.labels.get(NODE_LABEL, "")

    @property
    def name(self) -> str:
        """The node's name, as users see it."""
        return self.labels.get(NAME_LABEL, "")

    @property
    def version(self) -> str:
        """The version of Stoker on the node."""
        return self.labels.get(VERSION_LABEL, "")

    @property
    def protocol(self) -> int:
        """The version of the messages between head and nodes, when Ray was started there."""
        told = self.labels.get(PROTOCOL_LABEL, "")
        return int(told) if told.isdecimal() else FIRST


class RaySurvey(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster that accepted our token."""

    ray: str
    python: str
    nodes: list[Member] = []

    def find_twin(self, node: str, address: str) -> Member | None:
        """Return a live box that has the id `node` at an address other than `address`."""
        twins = [each for each in self.nodes if each.alive and each.id == node]
        return next((each for each in twins if each.address != address), None)


def require_ray() -> None:
    """Raise StokerError if Ray is missing or too old; does not import Ray."""
    if importlib.util.find_spec("ray") is None:
        raise StokerError("Ray is not installed here: pip install 'stoker[ray]'")
    found = ray_version()
    if tuple(int(part) for part in found.split(".")[:2] if part.isdigit()) < (2, 60):
        raise StokerError(f"Ray {found} is too old: pip install --upgrade 'stoker[ray]'")


def ray_version() -> str:
    """Return the version of the installed Ray."""
    try:
        return version("ray")
    except PackageNotFoundError:
        return "?"


def resolve(host: str) -> str:
    """Return the address of a host; raise StokerError for an unknown name."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise StokerError(f"cannot find the address of {host}: {error.strerror}") from None
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(found[0][4][0])


def own_address(towards: str, port: int) -> str:
    """Return the address under which this box and another one reach each other."""
    family = socket.AF_INET6 if ":" in towards else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((towards, port))  # sends nothing
        except OSError as error:
            raise StokerError(f"there is no route to {towards}: {error.strerror}") from None
        return str(probe.getsockname()[0])


def outward_address() -> str:
    """Return the address under which other boxes reach this one; raise StokerError if it is unclear."""
    try:
        return own_address("192.0.2.1", 9)  # a documentation address: only the route counts
    except StokerError:
        pass
    found = [address for address in map(_address_of, socket.if_nameindex()) if address]
    if len(found) == 1:
        return found[0]
    has = f"has the addresses {', '.join(found)}" if found else "has no address"
    raise StokerError(f"this box {has}: name the one that the others can reach with --address")


def _address_of(interface: tuple[int, str]) -> str | None:
    """Return the IPv4 address of an interface; None for a loopback address."""
    request = struct.pack("256s", interface[1].encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError:
            return None
    address = socket.inet_ntoa(answer[20:24])
    return None if address.startswith("127.") else address


def check_place(address: str, port: int) -> None:
    """Raise StokerError if a head cannot listen at this address and port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                reason = f"port {port} is in use here: choose another with --port"
            elif error.errno == errno.EADDRNOTAVAIL:
                reason = f"{address} is not an address of this box: --address needs one of its own"
            else:
                reason = f"cannot listen at {join_address(address, port)}: {error.strerror}"
            raise StokerError(reason) from None


def reach(address: str, port: int) -> None:
    """Raise StokerError if no server listens at this address and port."""
    try:
        socket.create_connection((address, port), timeout=_REACH_S).close()
    except OSError as error:
        raise StokerError(
            f"no cluster answers at {join_address(address, port)} ({error.strerror or error}): is it up"
            " (stoker cluster status there), and does every firewall let this box through?"
        ) from None


def survey(
    home: str, address: str, port: int, token: str, certificates: Certificates | None
) -> RaySurvey:
    """Return the nodes of a cluster; raise StokerError if it has no authentication or refuses our token."""
    target = join_address(address, port)
    reach(address, port)
    _check_tls(address, port, certificates)
    told = _ask(home, target, token, certificates)
    if told["state"] == "open":
        raise StokerError(
            f"the Ray cluster at {target} has no authentication: every machine that reaches it can run any"
            " command there. Start it with RAY_AUTH_MODE=token"
        )
    if told["state"] == "refused":
        raise StokerError(
            f"the token is not that of the cluster at {target}: stoker cluster up prints the right line"
            " on its first box"
        )
    if told["state"] != "ok":
        raise StokerError(f"the server at {target} is not a Ray cluster: is the port right?")
    return msgspec.convert(told, type=RaySurvey)


def _check_tls(address: str, port: int, certificates: Certificates | None) -> None:
    """Raise StokerError unless the cluster and this box both use TLS, or neither does."""
    target = join_address(address, port)
    has_tls = speaks_tls(address, port)
    if has_tls and certificates is None:
        raise StokerError(
            f"the cluster at {target} speaks TLS: use the line that stoker cluster token prints on its first"
            f" box, or name a certificate for this box with {HOW_TO_NAME}"
        )
    if certificates is not None and not has_tls:
        raise StokerError(
            f"the cluster at {target} does not speak TLS: leave out RAY_USE_TLS, or start the cluster with"
            " certificates"
        )
    if certificates is not None:
        check_peer(address, port, certificates)


def check_versions(found: RaySurvey) -> None:
    """Raise StokerError if this box's Ray, Python or Stoker does not match the cluster's."""
    here = ray_version()
    if found.ray != here:
        raise StokerError(
            f"the cluster has Ray {found.ray} and this box Ray {here}, which cannot work together:"
            f" pip install ray=={found.ray}"
        )
    mine, theirs = _minor(platform.python_version()), _minor(found.python)
    if mine != theirs:
        raise StokerError(
            f"the cluster has Python {theirs} and this box {mine}, which cannot work together:"
            f" install Stoker here with Python {theirs}"
        )
    for node in found.nodes:
        # A head that was upgraded may still have the label of the version before.
        if node.is_head and node.version and abs(node.protocol - PROTOCOL) > 1:
            raise StokerError(
                f"the cluster's first box has Stoker {node.version} and this one {__version__}, which do not"
                " understand each other: install the same version on both"
            )


def _minor(text: str) -> str:
    return ".".join(text.split(".")[:2])


def _ask(
    home: str, target: str, token: str, certificates: Certificates | None
) -> dict[str, object]:
    with tempfile.NamedTemporaryFile("w", prefix="stoker-", encoding="ascii") as file:  # 0600
        file.write(token)
        file.flush()
        environment = {
            **ray_environment(home, os.environ),
            **tls_environment(certificates),
            "RAY_AUTH_TOKEN_PATH": file.name,
        }
        try:
            ended = subprocess.run(
                module_command("stoker.cluster.ray_probe", target),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=environment,
                cwd="/",
                timeout=_PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"state": "silent"}
    try:
        told = json.loads(ended.stdout)
        assert isinstance(told, dict)
    except (ValueError, AssertionError):
        last = (ended.stderr.decode(errors="replace").strip().splitlines() or ["no reason"])[-1]
        raise StokerError(f"Ray {ray_version()} cannot be used here: {last[:300]}") from None
    else:
        return told
