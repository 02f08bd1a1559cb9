"""The process that keeps a tunnel, with an `ssh` that never connects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.cluster.settings import OVER_SSH_HEAD, ClusterSettings, save_settings
from stoker.cluster.ssh.tunnel import Tunnel, save_tunnel

ADDRESS = "127.77.0.2"


@pytest.mark.timeout(120)
def test_the_process_of_a_forgotten_tunnel_ends(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\necho 'ssh: connect: No route to host' >&2; exit 255\n")
    ssh.chmod(0o755)
    save_settings(
        str(home),
        ClusterSettings(
            role="head",
            address=OVER_SSH_HEAD,
            port=7866,
            own_address=OVER_SSH_HEAD,
            first_port=7868,
        ),
    )
    save_tunnel(
        str(home),
        Tunnel(target="gpu1", python="/python", digest="1f", address=ADDRESS, first_port=7884),
    )
    env = {
        **os.environ,
        "STOKER_HOME": str(home),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    words = [sys.executable, "-m", "stoker.cluster.ssh.tunnel", ADDRESS]
    with subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True) as keeper:
        try:
            assert keeper.stderr is not None
            assert "No route to host" in keeper.stderr.readline()
            (home / "cluster" / f"tunnel-{ADDRESS}.json").unlink()
            assert keeper.wait(60) == 0
        finally:
            keeper.kill()
