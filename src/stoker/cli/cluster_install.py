"""`stoker cluster install`: lets systemd run a node's Ray supervisor, from boot on and after a crash."""

from __future__ import annotations

import contextlib
import os
import time

from stoker.cli import systemd_unit
from stoker.cli.messages import note
from stoker.cluster import ray_supervisor_control, settings
from stoker.errors import ConflictError, StokerError
from stoker.interpreter import module_command
from stoker.submit_context import find_user

_UP_S = 90.0
_LOOK_S = 0.1
_PASSED = ("STOKER_LEASE_DIR", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")


def install(home: str) -> int:
    """Install the unit and start it in place of the Ray supervisor that runs now. Jobs run on."""
    known = settings.load_settings(home)
    if known is None:
        raise ConflictError("this box belongs to no cluster: stoker cluster join enters one")
    if known.is_head:
        from stoker.cli.verbs.daemon import install as install_daemon

        install_daemon(home)  # it starts the Ray supervisor
        return 0
    if not systemd_unit.has_systemd():
        raise StokerError(
            "there is no systemd for your user here:"
            f" @reboot stoker cluster join {known.target} in your crontab joins again at boot"
        )
    name = _unit_name(home)
    path = systemd_unit.unit_path(name)
    environment = {key: value for key in _PASSED if (value := os.environ.get(key))}
    command = module_command(ray_supervisor_control.RAY_SUPERVISOR)
    text = systemd_unit.unit_text(
        command,
        {**environment, "STOKER_HOME": home, "STOKER_PART": "ray_supervisor"},
        "Stoker, a node of a cluster",
    )
    systemd_unit.write_unit(path, text)
    systemd_unit.systemctl("daemon-reload")
    systemd_unit.systemctl("enable", name)
    ray_supervisor_control.stop_ray_supervisor(home)
    systemd_unit.systemctl("restart", name)
    _wait_until_up(home, name)
    print(f"installed and started: {path}")
    for warning in systemd_unit.warnings(find_user() or str(os.getuid())):
        note(warning)
    return 0


def uninstall(home: str) -> None:
    """Remove the unit, if there is one. The Ray supervisor must have ended."""
    name = _unit_name(home)
    path = systemd_unit.unit_path(name)
    if not os.path.exists(path):
        return
    with contextlib.suppress(StokerError):
        systemd_unit.systemctl("disable", name)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with contextlib.suppress(StokerError):
        systemd_unit.systemctl("daemon-reload")


def _unit_name(home: str) -> str:
    return systemd_unit.unit_name(home, "stoker-cluster")


def _wait_until_up(home: str, name: str) -> None:
    """Wait for Ray; raise StokerError if its first start fails. Its Ray supervisor keeps trying then."""
    deadline = time.monotonic() + _UP_S
    log = ray_supervisor_control.log_path(home)
    while True:
        state = ray_supervisor_control.read_state(home)
        if state is not None and state.state == "up":
            return
        if state is not None and state.reason is not None:
            raise StokerError(f"Ray could not start: {state.reason} (more in {log})")
        if time.monotonic() > deadline:
            raise StokerError(
                f"Ray is not up {_UP_S:.0f}s after systemd has started {name}:"
                f" systemctl --user status {name} and {log} say more"
            )
        time.sleep(_LOOK_S)
