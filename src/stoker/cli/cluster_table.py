"""`stoker cluster status`: shows this machine's role, and all machines of the cluster."""

from __future__ import annotations

import time
from typing import Any

from stoker import __version__
from stoker.cli.join_lines import describe_join_token, describe_listeners
from stoker.cli.messages import print_json
from stoker.cli.tables import Column, Row, print_facts, print_table
from stoker.client.client import Client
from stoker.client.transport import NoDaemonError
from stoker.cluster import ray_supervisor_control, ray_survey, settings
from stoker.cluster.tls import load_certificates
from stoker.core.durations import format_duration
from stoker.errors import StokerError

_COLUMNS = (
    Column("NODE"),
    Column("ADDRESS"),
    Column("STATE", fold=True),
    Column("LABELS", fold=True, spare=True),
)
_STYLES = {"up": "green", "away": "red", "drained": "yellow"}


def show_status(home: str, *, as_json: bool) -> int:
    """Print the status; 1 if this machine belongs to no cluster."""
    known = settings.load_settings(home)
    if known is None:
        if as_json:
            print_json({"member": False}, indent=None)
            return 1
        raise StokerError(
            "this box belongs to no cluster: stoker cluster up starts one, stoker cluster join enters one"
        )
    node = settings.load_node(home)
    ray_supervisor = ray_supervisor_control.read_state(home)
    nodes, trouble = _find_nodes(home, known)
    if as_json:
        print_json(
            {
                "member": True,
                "role": known.role,
                "address": known.target,
                "id": node.id,
                "name": node.name,
                "labels": known.labels,
                "tls": load_certificates(home) is not None,
                "ray_supervisor": ray_supervisor,
                "nodes": nodes,
                "trouble": trouble,
            }
        )
        return 0
    print_facts(
        [
            ("cluster", known.target),
            ("this box", f"{node.name}, {'its first' if known.is_head else 'a node'}"),
            ("Ray here", _describe_ray(ray_supervisor, home)),
            ("network", _describe_network(home, known)),
            *([("joining", describe_join_token(home))] if known.is_head else []),
            *([("trouble", (trouble, "red"))] if trouble else []),
        ]
    )
    if nodes:
        print()
        print_table(_COLUMNS, [_row(node) for node in nodes])
    return 0


def _row(node: dict[str, Any]) -> Row:
    labels = " ".join(f"{key}={value}" for key, value in node["labels"].items())
    state, reason = _describe_state(node)
    shown = f"{state}: {reason}" if reason else state
    return node["name"], node["address"], (shown, _STYLES.get(state, "yellow")), labels


def _describe_state(node: dict[str, Any]) -> tuple[str, str | None]:
    """Return the state of a node in a word, and the reason why no job starts there."""
    if node["state"] != "up":
        return node["state"], node.get("away")
    if node.get("drained") is not None:
        return "drained", node["drained"]
    version = node.get("version") or __version__
    return "up", node.get("lacks") or (f"Stoker {version}" if version != __version__ else None)


def _describe_ray(
    ray_supervisor: ray_supervisor_control.RayState | None, home: str
) -> tuple[str, str]:
    if ray_supervisor is None:
        return "the Ray supervisor does not run: stoker cluster up or join starts it again", "red"
    lasts = format_duration(max(0.0, time.time() - ray_supervisor.since))
    again = f", started again {ray_supervisor.restarts} times" if ray_supervisor.restarts else ""
    if ray_supervisor.state == "up":
        return f"up for {lasts}, Ray supervisor {ray_supervisor.pid}{again}", "green"
    reason = f" ({ray_supervisor.reason})" if ray_supervisor.reason else ""
    return (
        f"{ray_supervisor.state} for {lasts}{reason}{again}; more in {ray_supervisor_control.log_path(home)}",
        "yellow",
    )


def _describe_network(home: str, known: settings.ClusterSettings) -> str:
    certificates = load_certificates(home)
    secured = "not encrypted" if certificates is None else f"TLS, certificate {certificates.cert}"
    return f"{secured}; {describe_listeners(known)}"


def _find_nodes(
    home: str, known: settings.ClusterSettings
) -> tuple[list[dict[str, Any]], str | None]:
    """Ask the daemon, or else Ray, for all machines; the reason if neither answers."""
    nodes = _ask_daemon(home) if known.is_head else None
    if nodes is not None:
        return nodes, None
    try:
        ray_survey.require_ray()
        token = settings.load_token(home) or ""
        certificates = load_certificates(home)
        found = ray_survey.survey(home, known.address, known.port, token, certificates)
    except StokerError as error:
        return [], str(error)
    return _latest(found.nodes), None


def _ask_daemon(home: str) -> list[dict[str, Any]] | None:
    """Ask the daemon for its nodes; None if it does not run, or has none."""
    import msgspec

    try:
        with Client(home, restart=False) as client:
            found: list[dict[str, Any]] = msgspec.to_builtins(client.nodes())
            return found or None
    except NoDaemonError:
        return None


def _latest(members: list[ray_survey.Member]) -> list[dict[str, Any]]:
    """Return one entry for each machine: Ray keeps each earlier start as a dead node."""
    found: dict[str, ray_survey.Member] = {}
    for member in members:
        key = member.id or member.address
        if key not in found or member.alive:
            found[key] = member
    ordered = sorted(found.values(), key=lambda member: (not member.is_head, member.name))
    return [
        {
            "id": member.id,
            "name": member.name or member.address,
            "address": member.address,
            "state": "up" if member.alive else "away",
            "is_head": member.is_head,
            "version": member.version,
            "labels": {
                key: value
                for key, value in member.labels.items()
                if not key.startswith(settings.RESERVED_LABELS)
            },
        }
        for member in ordered
    ]
