"""Orders to the proxies on the way to the supervisor of a node, in the stream of its own orders."""

from __future__ import annotations

from typing import Any, NamedTuple

from stoker.supervisor.framing import OrderCodec
from stoker.supervisor.messages import ORDERS, Order


class SendScript(NamedTuple):
    """A script of the head, which the node needs a copy of; its content is in Base64."""

    path: str
    content: str


class SendTree(NamedTuple):
    """An attempt that will be started in a copy of a tree: the fields of its AttemptTransfer."""

    key: str
    transfer: dict[str, Any]


class RunInCopy(NamedTuple):
    """Where the copy of an attempt's tree is on the node, and in it the folder of its run."""

    key: str
    folder: str
    run_dir: str | None


class ForgetLogs(NamedTuple):
    """The head has given up all attempts of the node: others may write to their logs now."""


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
