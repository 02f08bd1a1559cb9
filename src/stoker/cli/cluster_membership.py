"""Steps that `stoker cluster up`, `join` and `leave` have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker.cli.arguments import Args
from stoker.cli.messages import note
from stoker.cluster import ray_supervisor_control, settings
from stoker.errors import ConflictError
from stoker.home import find_home

if TYPE_CHECKING:
    from stoker.wire import Setting


def join_ray(home: str, wanted: settings.ClusterSettings) -> None:
    """Save the settings and start Ray; undo both if Ray does not start."""
    settings.save_settings(home, wanted)
    try:
        ray_supervisor_control.start_ray_supervisor(home)
    except BaseException:
        ray_supervisor_control.stop_ray_supervisor(home)
        settings.forget_settings(home)
        raise


def save_name(home: str, args: Args, taken: tuple[str, ...] | list[str]) -> None:
    """Save this machine's name; a default name that is taken gets a number behind it."""
    node = settings.load_node(home)
    if args.name is not None:
        wanted = settings.check_node_name(args.name)
        if wanted in taken:
            raise ConflictError(f"--name {wanted}: another box of the cluster has that name")
    else:
        wanted = settings.free_name(node.name, taken)
        if wanted != node.name:
            note(f"another box of the cluster has the name {node.name}: this one is {wanted}")
    settings.save_node(home, settings.ClusterNode(id=node.id, name=wanted))


def set_cluster(address: str | None) -> Setting:
    """Let the daemon use a cluster, or none; it restarts if that changes."""
    from stoker.client.client import Client
    from stoker.wire import NewSetting

    with Client(start=True) as client:
        before = client.config()
        now = client.set_config(NewSetting(name="ray.address", value=address))
    if now not in before:
        from stoker.cli.verbs.daemon import restart

        restart(find_home())
    return now


def choose_first_port(args: Args, port: int, turn: int = 0) -> int:
    """Return the first port for Ray on this machine: as given, or of the next free block."""
    wanted = settings.join_port(port) + 1 if args.ports is None else args.ports
    is_fixed = args.ports is not None
    return settings.choose_first_port(wanted, is_fixed=is_fixed, turn=0 if is_fixed else turn)
