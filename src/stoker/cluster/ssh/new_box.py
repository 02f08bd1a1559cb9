"""Sets up a machine over ssh and lets it join: checks first, then steps that are undone if one fails."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from typing import Any

from stoker.accounts import printable
from stoker.cluster import ray_supervisor_control, settings
from stoker.cluster.join_tokens import issue_join_token, revoke_join_token
from stoker.cluster.ray_command import TOKEN_VARIABLE
from stoker.cluster.ssh.box_records import save_box
from stoker.cluster.ssh.box_software import MIB, BoxSoftware, Say
from stoker.cluster.ssh.bundle import Bundle
from stoker.cluster.ssh.connection import SshConnection
from stoker.cluster.ssh.tunnel import (
    Tunnel,
    close_tunnel,
    free_number,
    keep_tunnel,
    node_address,
    open_tunnel,
    save_tunnel,
)
from stoker.errors import ConflictError, StokerError

_SPARE_BYTES = 512 * MIB  # for Ray's files and logs
_TOKEN_S = 900.0

# NVML comes with the driver.
_GPUS = """\
from stoker.gpus.drivers import open_driver, why_unavailable
nvml = open_driver()
names = [] if nvml is None else [gpu.name for gpu in nvml.gpus()]
print(f"{len(names)} GPUs: {', '.join(sorted(set(names)))}" if names else f"no GPU: {why_unavailable()}")
"""


class NewBox:
    """A machine that is being added."""

    def __init__(
        self, home: str, connection: SshConnection, python: str, bundle: Bundle, say: Say
    ) -> None:
        self._home = home
        self._bundle = bundle
        self._say = say
        self.target = connection.target
        self._address: str | None = None  # in a cluster over ssh
        self._software = BoxSoftware(connection, python, bundle.digest, say)

    def add(self, head: settings.ClusterSettings, options: Sequence[str]) -> str:
        """Set the machine up and let it join. Returns its name as a node.

        `options` are those of `stoker cluster join`. An error leaves nothing behind on the machine.
        """
        found = self._software.look()
        self._check(found, head)
        try:
            if self._bundle.digest in found["environments"]:
                self._say(f"{self._bundle.label} is there already")
            else:
                self._software.copy(self._bundle, found["home"])
            self._say(self._software.run("-c", _GPUS))
            if settings.is_over_ssh(head.address):
                options = [*options, *self._open_tunnel(head)]
            name = self._join(head, options)
        except BaseException:
            self._undo()
            raise
        with ray_supervisor_control.turn(self._home):
            save_box(self._home, name, self._software.record(self._address))
            if self._address is not None:
                keep_tunnel(self._home, self._address, self._bundle.digest)
        self._install(head, found)
        return name

    def _install(self, head: settings.ClusterSettings, found: dict[str, Any]) -> None:
        """Let the machine's systemd start it again after a reboot; it is a node without that, too."""
        if not found["has_systemd"]:
            self._say(
                "no systemd for this user there; in its crontab, this lets it join after a reboot: @reboot"
                f" {found['home']}/software/current/bin/stoker cluster join {head.target}"
            )
            return
        try:
            self._say(self._software.run("-m", "stoker", "cluster", "install"))
        except StokerError as error:
            self._say(f"does not start again after a reboot: {error}")

    def _check(self, found: dict[str, Any], head: settings.ClusterSettings) -> None:
        """Raise StokerError if the machine cannot be a node of this cluster."""
        self._check_member(found, head)
        kind = found["machine"], found["implementation"], found["libc"]
        own = (
            platform.machine(),
            platform.python_implementation(),
            platform.libc_ver()[0] or "another",
        )
        if kind != own:
            raise StokerError(
                f"{self.target} has {' '.join(kind)} and this box {' '.join(own)}: the packages of this box"
                " do not run there"
            )
        needed = self._bundle.size_bytes + _SPARE_BYTES
        if found["free_bytes"] < needed:
            raise StokerError(
                f"no space on {self.target}: {found['home']} has {found['free_bytes'] // MIB} MiB free, and"
                f" Stoker with Ray needs {needed // MIB} MiB"
            )
        self._say(
            f"Python {found['version']} at {found['python']}, {found['free_bytes'] / (1 << 30):.0f} GiB free"
        )
        if found["stoker"]:
            self._say(f"the Stoker at {found['stoker']} stays as it is")
        if found["ray"]:
            self._say("Ray runs there already, and goes on: Stoker's own uses other ports")

    def _check_member(self, found: dict[str, Any], head: settings.ClusterSettings) -> None:
        member = found["cluster"]
        if member is not None:
            name = printable(str(member["name"]), 60)
            if (member["address"], member["port"]) == (head.address, head.port):
                raise ConflictError(f"{self.target} is a node of this cluster already: {name}")
            where = printable(f"{member['address']}:{member['port']}", 60)
            raise ConflictError(
                f"{self.target} belongs to the cluster at {where}, as {name}: stoker cluster leave, there,"
                " comes first"
            )
        if found["daemon"] is not None:
            raise ConflictError(
                f"another Stoker runs on {self.target} with a queue of its own (process {found['daemon']}):"
                " stoker daemon stop, there, comes first"
            )

    def _join(self, head: settings.ClusterSettings, options: Sequence[str]) -> str:
        # One after the other: a box looks which names the others have.
        with ray_supervisor_control.turn(self._home):
            token = issue_join_token(self._home, _TOKEN_S, time.time(), self._address)
            try:
                said = self._software.run(
                    *("-m", "stoker", "cluster", "join", head.target, *options),
                    env={TOKEN_VARIABLE: token.text},
                    is_login=True,
                )
            finally:
                revoke_join_token(self._home, token.id)
        self._say(said)
        return said.rpartition(" as ")[2]

    def _open_tunnel(self, head: settings.ClusterSettings) -> list[str]:
        """Open the tunnel to the machine. Returns the options of `join` for its address and ports."""
        with ray_supervisor_control.turn(self._home):
            number = free_number(self._home)
            address = node_address(number)
            first_port = settings.join_port(head.port) + 1 + number * settings.PORT_COUNT
            record = self._software.record(address)
            save_tunnel(
                self._home,
                Tunnel(
                    target=record.target,
                    python=record.python,
                    digest=record.digest,
                    address=address,
                    first_port=first_port,
                ),
            )
        self._address = address
        open_tunnel(self._home, address)
        self._say(f"ssh tunnel open; the box is {address} for the cluster")
        return [f"--address={address}", f"--ports={first_port}"]

    def _undo(self) -> None:
        """Remove what was copied; if that fails too, say what is left."""
        if self._address is not None:
            close_tunnel(self._home, self._address)
        try:
            self._software.clear()
        except StokerError as error:
            self._say(f"what was copied stays there: {error}")
