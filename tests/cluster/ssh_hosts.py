"""A real sshd on hosts of network namespaces, and a user on h0 who may log in there.

Each host gets its own /etc, with root's home in the host's folder: ssh and sshd ask it, not HOME.
A session has the fake GPUs of its host, a PATH with Python and little else, and no Stoker.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.netns_hosts import Host, Hosts
from patience import until

_SSHD = "/usr/sbin/sshd"
_CONFIG = """\
ListenAddress {address}
HostKey {folder}/sshd/host_key
AuthorizedKeysFile {folder}/sshd/authorized_keys
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowTcpForwarding yes
SetEnv {variables}
"""
# It does what systemd does at the start of a user's session, and after `enable --now`.
_SYSTEMCTL = """\
#!/bin/sh
PATH=/usr/bin:/bin
unit={folder}/.config/systemd/user/$3
echo "$*" >>{folder}/systemctl.log
case $2 in restart)
  eval "export $(sed -n 's/^Environment=//p' "$unit" | tr '\\n' ' ')"
  eval "setsid $(sed -n 's/^ExecStart=//p' "$unit") </dev/null >>{folder}/unit.log 2>&1 &"
esac
"""


@functools.cache
def why_no_sshd() -> str | None:
    """Why there can be no sshd here; None if there can."""
    for tool in (_SSHD, "ssh", "ssh-keygen"):
        if shutil.which(tool) is None:
            return f"there is no `{tool}`: apt-get install openssh-server openssh-client"
    return None


def require_sshd() -> None:
    """Skip a test where there is no sshd, but fail it where all must be tested."""
    reason = why_no_sshd()
    if reason is None:
        return
    if os.environ.get("GITHUB_ACTIONS") and os.getuid() == 0:
        pytest.fail(reason)
    pytest.skip(reason)


class SshHosts:
    """Hosts of which all but h0 run sshd, with the key of h0's user."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.client = hosts.hosts[0].folder / ".ssh"
        self.client.mkdir(mode=0o700)
        _make_key(self.client / "id_ed25519")
        self._move_home(hosts.hosts[0])
        for number in range(1, len(hosts.hosts)):
            self.serve(number)

    def serve(self, number: int) -> None:
        """Start sshd on a host."""
        host = self.hosts.hosts[number]
        self.programs(number).mkdir()
        for name in ("sh", "env"):
            (self.programs(number) / name).symlink_to(f"/bin/{name}")
        self.python(number).symlink_to(os.path.realpath(sys.executable))
        folder = host.folder / "sshd"
        folder.mkdir()
        _make_key(folder / "host_key")
        shutil.copy(self.client / "id_ed25519.pub", folder / "authorized_keys")
        variables = {**host.env, "PATH": self.programs(number)}
        (folder / "config").write_text(
            _CONFIG.format(
                address=host.address,
                folder=host.folder,
                variables=" ".join(f'"{name}={value}"' for name, value in variables.items()),
            )
        )
        self.trust(number)
        self._move_home(host)
        self.hosts.spawn(number, [_SSHD, "-D", "-e", "-f", folder / "config"])
        probe = ["sh", "-c", f"ss -Hltn 'sport = 22' | grep -q {host.address}"]
        until(lambda: self.hosts.run(number, probe).returncode == 0, "sshd listens")

    def programs(self, number: int) -> Path:
        """The folder that is the PATH of sessions on a host."""
        return self.hosts.hosts[number].folder / "programs"

    def python(self, number: int) -> Path:
        """The only interpreter in the PATH of a session."""
        return self.programs(number) / "python3"

    def give_systemd(self, number: int) -> None:
        """Give a host a systemctl that starts units: no systemd runs in a namespace."""
        path = self.programs(number) / "systemctl"
        path.write_text(_SYSTEMCTL.format(folder=self.hosts.hosts[number].folder))
        path.chmod(0o755)

    @contextlib.contextmanager
    def without_systemd(self, number: int) -> Iterator[None]:
        """Take its systemctl away from a host for a while."""
        path = self.programs(number) / "systemctl"
        text = path.read_text()
        path.unlink()
        try:
            yield
        finally:
            path.write_text(text)
            path.chmod(0o755)

    def trust(self, number: int) -> None:
        """Let h0 know the host's key."""
        host = self.hosts.hosts[number]
        public = (host.folder / "sshd" / "host_key.pub").read_text()
        with (self.client / "known_hosts").open("a") as file:
            file.write(f"{host.name},{host.address} {public}")

    def _move_home(self, host: Host) -> None:
        """Give root its home in the host's folder."""
        lines = Path("/etc/passwd").read_text().splitlines()
        moved = [
            ":".join([*line.split(":")[:5], str(host.folder), "/bin/sh"])
            if line.startswith("root:")
            else line
            for line in lines
        ]
        # A folder, because useradd on the machine replaces the file, and with it a mount on it.
        script = """cp -a /etc "$1/etc" && mount --bind "$1/etc" /etc && cat >/etc/passwd
mount -t tmpfs tmpfs /run && mkdir /run/sshd"""
        ended = self.hosts.run(
            int(host.name.removeprefix("h")),
            ["sh", "-ec", script, "sh", str(host.folder)],
            stdin="\n".join(moved) + "\n",
        )
        assert ended.returncode == 0, ended.stderr


def _make_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
