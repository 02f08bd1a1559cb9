"""Role of this machine in a cluster, as far as clients of its daemon need it.

On a node, the queue is that of the head: no command starts a second one there by itself.
"""

from __future__ import annotations

import os


def head_of(home: str) -> str | None:
    """Return the head's address if this machine is a node of a cluster; None if it is not."""
    path = os.path.join(home, "cluster", "settings.json")
    if not os.path.exists(path):
        return None
    import json

    try:
        with open(path, "rb") as file:
            settings = json.load(file)
        return str(settings["address"]) if settings["role"] == "node" else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # `stoker cluster` says what is wrong with it


def describe_head(address: str) -> str:
    """Say where the queue is."""
    return (
        f"this box is a node of a cluster, whose queue is on {address}: run stoker there (ssh {address});"
        " stoker daemon start, here, starts a queue of this box alone"
    )
