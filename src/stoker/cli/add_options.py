"""What `stoker add` can be told about when a job runs and how it gives way; read only where asked for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from stoker.core.durations import parse_duration, parse_span
from stoker.errors import UsageError

if TYPE_CHECKING:
    import argparse

_LONGEST_S = 86400.0


def read_wishes(args: argparse.Namespace) -> dict[str, Any]:
    """The entries of a submission that these options stand for."""
    wishes: dict[str, Any] = {
        name: True
        for name in ("hold", "requeue", "preemptible", "preempt", "mps")
        if getattr(args, name)
    }
    for name in ("after", "after_any"):
        text = getattr(args, name)
        if text is not None:
            if not text.strip(", "):
                raise UsageError(f"--{name.replace('_', '-')}: name jobs: 12, 1,5-9, @ or a name")
            wishes[name] = text
    if args.begin is not None:
        from stoker.cli.times import parse_moment

        wishes["begin_at"] = parse_moment(args.begin, time.time())
    if args.signal is not None:
        from stoker.cli.signals import parse_signal

        wishes["stop_signal"] = parse_signal(args.signal)
    if args.grace is not None:
        wishes["grace_s"] = _at_most_a_day("--grace", args.grace, parse_span(args.grace))
    if args.backoff is not None:
        if not args.retries:
            raise UsageError("--backoff is the pause before a retry: give --retries as well")
        wishes["backoff_s"] = _at_most_a_day(
            "--backoff", args.backoff, parse_duration(args.backoff)
        )
    if args.warm is not None:
        from stoker.cli.warm_option import read_modules

        wishes["warm"] = read_modules(args.warm)
    wishes.update(read_room(args.share, args.gpu_mem))
    wishes.update(read_place(args.node, args.on, args.node_label))
    if args.requeue and args.timeout is None:
        raise UsageError("--requeue is for a job over its time limit: give -t as well")
    return wishes


def read_room(share: str | None, gpu_mem: str | None) -> dict[str, Any]:
    """The entries of a submission that --share and --gpu-mem stand for."""
    from stoker.core.sharing.rules import parse_share
    from stoker.core.size import parse_size

    room: dict[str, Any] = {}
    try:
        if share is not None:
            room["share"] = parse_share(share).text
        if gpu_mem is not None:
            room["gpu_mem_bytes"] = parse_size(gpu_mem)
    except ValueError as error:
        option = "--gpu-mem" if "share" in room or share is None else "--share"
        raise UsageError(f"{option}: {error}") from None
    return room


def read_place(node: str | None, on: str | None, node_label: list[str] | None) -> dict[str, Any]:
    """The entries of a submission that --node, --on and --node-label stand for."""
    place: dict[str, Any] = {}
    if node is not None:
        place["nodes"] = split_nodes(node)
        if not place["nodes"]:
            raise UsageError("--node: name one, or several: gpu1,gpu2")
    if on is not None:
        if not on.strip():
            raise UsageError("--on: name a kind of GPU: a100")
        place["on"] = on.strip()
    if node_label:
        place["node_labels"] = read_labels("--node-label ", node_label)
    return place


def split_nodes(text: str) -> list[str]:
    """The names of nodes in a list of them."""
    return [word.strip() for word in text.split(",") if word.strip()]


def read_labels(option: str, words: list[str]) -> dict[str, str]:
    """Labels of nodes, as typed."""
    labels: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise UsageError(f"{option}{word}: name and value, such as disk=fast")
        labels[name] = value
    return labels


def _at_most_a_day(option: str, text: str, seconds: float) -> float:
    if seconds > _LONGEST_S:
        raise UsageError(f"{option} {text}: at most 1d")
    return seconds
