"""gRPC calls without a token, sent with curl from a host of a hosts."""

from __future__ import annotations

import re

from cluster.netns_hosts import Hosts

# A call that ends the Ray process that receives it, unless TLS keeps the caller out.
START_SYNC = "/ray.rpc.syncer.RaySyncer/StartSync"
_FLAGS = {"http": "--http2-prior-knowledge", "https": "--http2"}


def call_grpc(
    hosts: Hosts, caller: int, method: str, callee: int, port: int, scheme: str = "http"
) -> int | None:
    """Send an empty message to a method of a host; the status of the answer, None if none comes."""
    url = f"{scheme}://{hosts.address(callee)}:{port}{method}"
    words = ["curl", "-sik", "-m", "10", _FLAGS[scheme], "--data-binary", "@-", url]
    headers = ["-H", "content-type: application/grpc", "-H", "te: trailers"]
    ended = hosts.run(caller, [*words, *headers], stdin="\0" * 5)
    found = re.search(r"grpc-status: (\d+)", ended.stdout)
    return None if found is None else int(found[1])
