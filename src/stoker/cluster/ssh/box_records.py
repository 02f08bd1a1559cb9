"""Record of the machines that were added over ssh: how to reach each, and what it has of Stoker's.

It is in `<home>/cluster/boxes.json` on the head, by the names of the nodes.
"""

from __future__ import annotations

import os

import msgspec

from stoker.cluster import ray_supervisor_control
from stoker.cluster.settings import BOXES, folder_of, read_struct, write_file
from stoker.cluster.ssh.tunnel import close_tunnel


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that was added over ssh."""

    target: str  # as for ssh
    python: str  # the interpreter that was there before
    digest: str  # of its private environment
    address: str | None = None  # if the machine is reached through a tunnel


def load_boxes(home: str) -> dict[str, Box]:
    """Return all records by the names of the nodes."""
    return read_struct(os.path.join(folder_of(home), BOXES), dict[str, Box]) or {}


def save_box(home: str, name: str, box: Box | None) -> None:
    """Replace the record of a node; None removes it. Callers hold the lock of the membership."""
    boxes = {other: kept for other, kept in load_boxes(home).items() if other != name}
    if box is not None:
        boxes[name] = box
    write_file(home, BOXES, msgspec.json.encode(boxes))


def forget_box(home: str, name: str) -> None:
    """Remove the record of a node and close its tunnel, if it was added over ssh."""
    with ray_supervisor_control.turn(home):
        box = load_boxes(home).get(name)
        if box is None:
            return
        if box.address is not None:
            close_tunnel(home, box.address)
        save_box(home, name, None)
