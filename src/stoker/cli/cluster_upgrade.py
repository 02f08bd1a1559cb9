"""`stoker cluster upgrade`: gives machines that `stoker cluster add` has set up the head's Stoker and Ray."""

from __future__ import annotations

from stoker.accounts import printable
from stoker.cli.arguments import Args
from stoker.cli.cluster_add import require_head, wait_until_up
from stoker.cli.cluster_remove import find_box
from stoker.cli.messages import note
from stoker.cluster import ray_supervisor_control, ray_survey
from stoker.cluster.ssh.box_records import Box, load_boxes, save_box
from stoker.cluster.ssh.box_software import BoxSoftware
from stoker.cluster.ssh.bundle import Bundle, collect
from stoker.cluster.ssh.connection import SshConnection
from stoker.cluster.ssh.tunnel import keep_tunnel
from stoker.errors import ConflictError, StokerError

_MAX_LINE = 60
_UP_S = 90.0


def upgrade(home: str, args: Args) -> int:
    """Upgrade the named nodes, or all that were added over ssh. Returns 1 if one keeps its version."""
    ray_survey.require_ray()
    require_head(home)
    nodes = [args.target, *args.reason] if args.target else sorted(load_boxes(home))
    if not nodes:
        raise ConflictError("stoker cluster add has set up no node: there is nothing to upgrade")
    boxes = {node: find_box(home, node) for node in nodes}
    bundle = collect()
    failed = 0
    for node, box in boxes.items():
        try:
            _upgrade_node(home, node, box, bundle)
        except StokerError as error:
            note(f"{node} keeps its version: {printable(str(error), 5 * _MAX_LINE)}")
            failed += 1
    return 1 if failed else 0


def _upgrade_node(home: str, node: str, box: Box, bundle: Bundle) -> None:
    """Copy the new version beside the old one, and start the node's Ray from it. Jobs run on.

    If that fails, the old one is started again.
    """

    def say(text: str) -> None:
        print(f"{box.target}: {text}", flush=True)

    if box.digest == bundle.digest:
        print(f"{node} has {bundle.label} already", flush=True)
        return
    with SshConnection(box.target) as connection:
        old = BoxSoftware(connection, box.python, box.digest, say)
        new = BoxSoftware(connection, box.python, bundle.digest, say)
        found = new.look()
        if bundle.digest not in found["environments"]:
            new.copy(bundle, found["home"])
        try:
            _start(new, found["has_systemd"])
        except BaseException as error:
            _start_again(old, found["has_systemd"], error)
            old.prune()
            raise
        with ray_supervisor_control.turn(home):
            save_box(home, node, new.record(box.address))
            if box.address is not None:
                keep_tunnel(home, box.address, bundle.digest)
        new.prune()
    wait_until_up(home, node)
    print(f"{node} has {bundle.label} now; its jobs have run on", flush=True)


def _start(software: BoxSoftware, has_systemd: bool) -> None:
    """Start the node's Ray from this version, in place of the one that runs."""
    if has_systemd:
        software.run("-m", "stoker", "cluster", "install")
    else:
        software.run("-c", _RESTART)


def _start_again(old: BoxSoftware, has_systemd: bool, error: BaseException) -> None:
    """Start the old version again; if that fails too, raise StokerError with both reasons."""
    try:
        _start(old, has_systemd)
    except StokerError:
        try:
            old.run("-c", _AWAIT)  # its Ray supervisor keeps trying
        except StokerError as second:
            raise StokerError(
                f"{error}; and its old version did not start again: {second}"
            ) from error


_RESTART = """\
from stoker.cluster import ray_supervisor_control
from stoker.home import find_home
home = find_home()
with ray_supervisor_control.turn(home):
    ray_supervisor_control.stop_ray_supervisor(home)
    ray_supervisor_control.start_ray_supervisor(home)
"""

_AWAIT = f"""\
import sys, time
from stoker.cluster import ray_supervisor_control
from stoker.home import find_home
home = find_home()
give_up_at = time.monotonic() + {_UP_S}
while (state := ray_supervisor_control.read_state(home)) is None or state.state != "up":
    if time.monotonic() > give_up_at:
        reason = "no Ray supervisor runs" if state is None else state.reason or state.state
        log = ray_supervisor_control.log_path(home)
        sys.exit(f"Ray is not up after {_UP_S:.0f}s: {{reason}} (more in {{log}})")
    time.sleep(0.1)
"""
