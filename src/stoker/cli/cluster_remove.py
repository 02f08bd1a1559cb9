"""`stoker cluster remove`: undoes `stoker cluster add`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from stoker.cli.arguments import Args
from stoker.cli.cluster_add import require_head
from stoker.cli.messages import note
from stoker.client.client import Client
from stoker.cluster.ssh.box_records import Box, forget_box, load_boxes
from stoker.cluster.ssh.box_software import BoxSoftware
from stoker.cluster.ssh.connection import SshConnection
from stoker.cluster.ssh.tunnel import close_tunnel
from stoker.errors import NotFoundError, StokerError, UsageError
from stoker.wire import NodeInfo, NodeOrder

_LOOK_S = 0.2
_GONE_S = 60.0
_REASON = "stoker cluster remove"


def remove(home: str, args: Args) -> int:
    """Take machines out of the cluster that `stoker cluster add` has set up, and remove Stoker there."""
    nodes = [args.target, *args.reason] if args.target else []
    if not nodes:
        raise UsageError("which node? stoker cluster status names them")
    require_head(home)
    boxes = {node: find_box(home, node) for node in nodes}
    for node, box in boxes.items():
        is_cleared = _remove_node(home, node, box, force=args.force)
        left = "and Stoker's files on" if is_cleared else "but not Stoker's files on"
        print(f"{node} is removed, {left} {box.target}", flush=True)
    return 0


def _remove_node(home: str, node: str, box: Box, *, force: bool) -> bool:
    """Let a node leave when its jobs have ended, or at once, and remove what `add` has copied there.

    With `force`, a machine that does not answer is only forgotten. Returns whether its files are removed.
    """
    with SshConnection(box.target) as connection, Client(home, start=True) as client:
        software = BoxSoftware(
            connection, box.python, box.digest, lambda text: print(f"{box.target}: {text}")
        )
        try:
            found = software.look()
        except StokerError as error:
            if not force:
                raise StokerError(
                    f"{error}; if the box does not come back: stoker cluster remove {node} --force"
                ) from None
            note(str(error))
            _forget(client, node)
            forget_box(home, node)
            return False
        if found["cluster"] is not None:
            with _drained(client, node):
                if not force:
                    _wait_for_jobs(client, node)
                software.run("-m", "stoker", "cluster", "leave")
                _wait_until_gone(client, node)
        if box.address is not None:
            close_tunnel(home, box.address)
        software.clear()
        forget_box(home, node)
        return True


def _forget(client: Client, node: str) -> None:
    """Let the daemon forget a node; raise ConflictError if it is still there."""
    if _find(client, node) is not None:
        client.change_node(NodeOrder(action="forget", node=node, force=True))


def find_box(home: str, node: str) -> Box:
    """Return the record of a node; raise NotFoundError if it was not added over ssh."""
    boxes = load_boxes(home)
    if node not in boxes:
        there = ", ".join(sorted(boxes)) or "none"
        raise NotFoundError(
            f"stoker cluster add has not set up {node} (but: {there}): run stoker cluster leave on it"
        )
    return boxes[node]


@contextlib.contextmanager
def _drained(client: Client, node: str) -> Iterator[None]:
    """Let nothing start on a node meanwhile."""
    known = _find(client, node)
    if known is None or known.drained is not None:
        yield  # it is gone, or drained by the user
        return
    client.change_node(NodeOrder(action="drain", node=node, reason=_REASON))
    try:
        yield
    finally:
        with contextlib.suppress(StokerError):
            client.change_node(NodeOrder(action="undrain", node=node))


def _wait_for_jobs(client: Client, node: str) -> None:
    """Wait until no job runs on a node."""
    has_noted = False
    while (known := _find(client, node)) is not None and known.jobs:
        if not has_noted:
            jobs = "1 job runs" if known.jobs == 1 else f"{known.jobs} jobs run"
            note(f"{jobs} on {node}: waiting for the end; --force runs them elsewhere at once")
            has_noted = True
        time.sleep(_LOOK_S)


def _wait_until_gone(client: Client, node: str) -> None:
    """Wait until the head knows that a node has left."""
    deadline = time.monotonic() + _GONE_S
    while _find(client, node) is not None and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


def _find(client: Client, node: str) -> NodeInfo | None:
    return next((each for each in client.nodes() if each.name == node), None)
