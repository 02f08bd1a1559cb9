"""Version of the messages between the head of a cluster and its nodes.

It changes with the messages, not with each version of Stoker. A head understands nodes of its own version of
the protocol and of the one before, so the head is upgraded first, and the nodes one after the other.

1: before machines told it. 2: the agent introduces itself with it; the messages are those of 1.
"""

from __future__ import annotations

FIRST = 1  # of machines that do not tell theirs
PROTOCOL = 2


def is_understood(node: int, head: int = PROTOCOL) -> bool:
    """Return whether a head with one version of the protocol can give jobs to a node with another one."""
    return head - 1 <= node <= head
