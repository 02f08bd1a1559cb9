"""Orders to the proxies between the daemon and a node's supervisor, in one stream with its orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from stoker.supervisor.framing import OrderCodec
from stoker.supervisor.messages import ORDERS, Order


class SendScript(NamedTuple):
    """Copy a script of the head to the node. Its content is in Base64."""

    path: str
    content: str


class SendTree(NamedTuple):
    """Send the tree of an attempt ahead of its start: the fields of its AttemptTransfer."""

    key: str
    transfer: dict[str, Any]


class SendCheckpoints(NamedTuple):
    """Send the checkpoints of an attempt's job ahead of its start."""

    key: str


class RunInCopy(NamedTuple):
    """Start an attempt in this copy of its tree; `run_dir` is the folder of its run in it."""

    key: str
    folder: str
    run_dir: str | None


class KeepAttempts(NamedTuple):
    """Drop the logs and results of all attempts but these: the head has given up the others.

    It is the first order of each stream, so the node reports nothing before it.
    """

    keys: Sequence[str]


NodeOrder = Order | SendScript | SendTree | SendCheckpoints | RunInCopy | KeepAttempts
NODE_ORDERS: OrderCodec[NodeOrder] = OrderCodec(
    {
        **ORDERS,
        "script": SendScript,
        "tree": SendTree,
        "checkpoints": SendCheckpoints,
        "copy": RunInCopy,
        "keep": KeepAttempts,
    }
)
