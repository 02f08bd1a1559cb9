"""Orders to the proxies between the daemon and a node's supervisor, in one stream with its orders."""

from __future__ import annotations

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


class RunInCopy(NamedTuple):
    """Start an attempt in this copy of its tree; `run_dir` is the folder of its run in it."""

    key: str
    folder: str
    run_dir: str | None


class ForgetLogs(NamedTuple):
    """Forward no more logs: the head has given up all attempts of the node."""


NodeOrder = Order | SendScript | SendTree | RunInCopy | ForgetLogs
NODE_ORDERS: OrderCodec[NodeOrder] = OrderCodec(
    {
        **ORDERS,
        "script": SendScript,
        "tree": SendTree,
        "copy": RunInCopy,
        "logs": ForgetLogs,
    }
)
