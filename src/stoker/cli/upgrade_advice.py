"""What `stoker daemon restart` says about versions, on the head of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoker import __version__
from stoker.cli.messages import note
from stoker.errors import ConflictError

if TYPE_CHECKING:
    from stoker.wire import NodeInfo, Status


def refuse_other_ray(home: str) -> None:
    """Raise ConflictError if the next bridge could not use the Ray that runs the cluster.

    Nodes would lose their jobs when their leases expire.
    """
    from stoker.cluster.settings import load_settings

    if load_settings(home) is None:
        return
    from stoker.cluster.ray_supervisor_control import has_other_ray, read_state
    from stoker.cluster.ray_survey import ray_version

    state = read_state(home)
    if state is None or not has_other_ray(home):
        return
    here = ray_version()
    installed = "no Ray is" if here == "?" else f"Ray {here} is"
    other = (
        ""
        if here == "?"
        else f", or install Ray {here} on every box and run stoker cluster up here"
    )
    raise ConflictError(
        f"the cluster runs Ray {state.ray}, and {installed} installed here:"
        f" pip install ray=={state.ray}{other}"
    )


def read_nodes(home: str) -> list[NodeInfo]:
    """Return the nodes of the cluster, as the daemon knows them; none if it does not run."""
    from stoker.client.client import Client
    from stoker.client.transport import NoDaemonError

    try:
        with Client(home, restart=False) as client:
            return client.nodes()
    except NoDaemonError:
        return []


def advise(home: str, before: Status | None, nodes: list[NodeInfo]) -> None:
    """Say which version has taken over, and which nodes still have another one."""
    if before is not None and before.version != __version__:
        note(f"Stoker {__version__} has taken over from {before.version}")
    others = [node for node in nodes if not node.is_head and node.version not in ("", __version__)]
    if others:
        from stoker.cluster.settings import load_settings

        known = load_settings(home)
        target = "the address of the head" if known is None else known.target
        names = ", ".join(f"{node.name} (Stoker {node.version})" for node in others)
        note(
            f"install Stoker {__version__} on {names}, and then run stoker cluster join {target} there:"
            " jobs go on meanwhile"
        )
