"""`stoker gpus`: shows GPUs and their users; adds, drains or removes one."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from stoker.cli.arguments import Args, arg
from stoker.cli.messages import note, print_json
from stoker.cli.tables import Column, print_table
from stoker.errors import StokerError, UsageError

if TYPE_CHECKING:
    from stoker.core.gpu_links import Link
    from stoker.gpus.availability import GpuState
    from stoker.gpus.lease_holder import Holder
    from stoker.gpus.process_users import GpuUser
    from stoker.wire import GpuInfo

SUMMARY = """\
Show this machine's GPUs, or all of a cluster's: memory, utilisation, who uses and who holds each, and what
the queue does there. Where several people use Stoker, also who waits, and how much each has used recently.
Or change which of them the queue uses, while jobs run: what runs on a GPU is never touched."""
EXAMPLES = """\
  stoker gpus             a table
  stoker gpus --json      a list for scripts: [] where there is no GPU
  stoker gpus --rules     the rules of a machine that several people share
  stoker gpus --topology  which GPUs NVLink or a PCIe switch joins
  stoker gpus drain 1     start nothing more on GPU 1; what runs there goes on
  stoker gpus add 1       use it again, or a GPU that the queue did not have
  stoker gpus remove 1    let the queue have it no longer
"""

_COLUMNS = [
    Column(header, fold=True) for header in ("GPU", "NAME", "MEMORY", "UTIL", "USED BY", "HELD BY")
]
_QUEUE = Column("QUEUE", fold=True)
_USER_COLUMNS = [
    Column(header, fold=True) for header in ("USER", "HOLDS", "WAITS FOR", "RECENT USE", "PART")
]
_LINK_TEXTS = {"NVLINK": "NVLink", "SWITCH": "switch", "NODE": "NUMA node", "OTHER": "other"}
_ACTIONS = ("add", "drain", "remove")
_TIMEOUT_S = 2.0

ARGUMENTS = (
    arg("action", nargs="?", choices=_ACTIONS, metavar="ACTION", help=", ".join(_ACTIONS)),
    arg("gpu", nargs="?", metavar="ID", help="a GPU as the table names it; 0+1 is a slot of two"),
    arg("--json", action="store_true", help="print a JSON list"),
    arg("--rules", action="store_true", help="show the rules that this machine's admin has set"),
    arg(
        "--topology",
        action="store_true",
        help="show how each pair of this machine's GPUs is joined",
    ),
)


def run(args: Args) -> int:
    """Print the GPUs or the rules, or change which GPUs the queue uses."""
    if args.rules:
        if args.action is not None or args.json:
            raise UsageError("--rules stands alone: stoker gpus --rules")
        return _show_rules()
    if args.topology:
        if args.action is not None:
            raise UsageError("--topology changes nothing: stoker gpus --topology")
        return _show_topology(as_json=args.json)
    if args.action is None:
        return _show(args)
    if args.gpu is None:
        raise UsageError(f"which GPU? stoker gpus {args.action} 1; stoker gpus shows them")
    if args.json:
        raise UsageError(f"--json is for the table, not for {args.action}")
    return _change(args.action, args.gpu)


def _change(action: str, gpu: str) -> int:
    from stoker.cli.selection import name_jobs
    from stoker.client.client import Client
    from stoker.wire import GpuOrder

    with Client() as client:
        changed = client.gpus(GpuOrder(action=action, gpu=gpu))  # type: ignore[arg-type]
    done = {"add": "in use", "drain": "drained", "remove": "removed"}[action]
    jobs = f"; {name_jobs(changed.jobs)} still on it" if changed.jobs and action != "add" else ""
    print(
        f"GPU {', '.join(changed.slots)} {'are' if len(changed.slots) > 1 else 'is'} {done}{jobs}"
    )
    if changed.notice:
        note(changed.notice)
    return 0


def _show(args: Args) -> int:
    """Print the GPUs; without any, a table is an error and JSON is an empty list."""
    from stoker.gpus.availability import survey
    from stoker.gpus.drivers import open_driver, why_unavailable
    from stoker.gpus.lease_holder import holder

    nvml = open_driver()
    states = survey(nvml) if nvml else ()
    reserved = _read_reserved([state.gpu.uuid for state in states])
    rows = [(state, holder(state.gpu.uuid), reserved.get(state.gpu.uuid, 0)) for state in states]
    slots = _slots_of_queue()
    if slots is not None and any("/" in slot["label"] for slot in slots):
        return _show_cluster(as_json=args.json)
    named = _without_nvml({state.gpu.label for state in states}, slots or [])
    if args.json:
        known = [_json_row(*row, slots) for row in rows]
        print_json([*known, *({"label": n, "queue": q} for n, q in named.items())])
    elif not rows and slots:
        print_table([_COLUMNS[0], _QUEUE], [(name, _in_queue(name, slots)) for name in named])
    elif not rows:
        reason = "lists none" if nvml else why_unavailable()
        raise StokerError(f"no GPU found (NVML: {reason})")
    elif slots is None:
        print_table(_COLUMNS, [_text_row(*row) for row in rows])
    else:
        table = [(*_text_row(*row), _in_queue(row[0].gpu.label, slots)) for row in rows]
        blank = ("-",) * (len(_COLUMNS) - 1)
        table += [(name, *blank, _in_queue(name, slots)) for name in named]
        print_table([*_COLUMNS, _QUEUE], table)
    if rows and not args.json:
        _show_users({state.gpu.uuid: state.gpu.label for state in states})
    return 0


def _show_rules() -> int:
    from stoker.core.box_rules import describe_rules
    from stoker.gpus.box_file import BoxFile, rules_path

    box_file = BoxFile()
    box_file.refresh()
    if box_file.error is not None:
        raise StokerError(f"{box_file.error}; daemons keep the rules that they read before")
    lines = describe_rules(box_file.rules)
    print("\n".join(lines) if lines else f"no rules: everybody has the same share ({rules_path()})")
    return 0


def _show_topology(*, as_json: bool) -> int:
    """Print the links between this machine's cards; without any GPU, JSON is an empty list."""
    from stoker.gpus.drivers import open_driver, why_unavailable
    from stoker.gpus.topology import read_links

    nvml = open_driver()
    links = {} if nvml is None else read_links(nvml)
    gpus = [] if nvml is None else [gpu for gpu in nvml.gpus() if not gpu.is_mig]
    if as_json:
        pairs = [(one, other) for one in gpus for other in gpus if one.index < other.index]
        found = [(a.label, b.label, links.get(frozenset((a.uuid, b.uuid)))) for a, b in pairs]
        print_json([{"gpus": [a, b], "link": link and link.name.lower()} for a, b, link in found])
        return 0
    if not gpus:
        reason = "lists no whole card" if nvml else why_unavailable()
        raise StokerError(f"no links to show (NVML: {reason})")
    rows = [
        (
            one.label,
            *(
                "-" if one is other else _link_text(links.get(frozenset((one.uuid, other.uuid))))
                for other in gpus
            ),
        )
        for one in gpus
    ]
    print_table([Column("GPU"), *(Column(gpu.label) for gpu in gpus)], rows)
    return 0


def _link_text(link: Link | None) -> str:
    """Name a link; an unknown one counts as the worst."""
    return "unknown" if link is None else _LINK_TEXTS[link.name]


def _read_reserved(keys: list[str]) -> dict[str, int]:
    """Return until when GPUs are reserved, as far as their holders tell it and the rules allow it."""
    from stoker.core.user_reservation import is_credible
    from stoker.gpus.box_file import BoxFile
    from stoker.gpus.lease_holder import holding_users
    from stoker.gpus.turn_files import read_users

    users = read_users(time.clock_gettime(time.CLOCK_BOOTTIME))
    if not any(user.reserved for user in users.values()):
        return {}
    box_file = BoxFile()
    box_file.refresh()
    found, now = {}, time.time()
    for key, uid in holding_users(keys).items():
        end = users[uid].reserved.get(key, 0) if uid in users else 0
        if is_credible(end, now, box_file.longest_reservation_s(uid)):
            found[key] = end
    return found


def _show_users(labels: dict[str, str]) -> None:
    """Print which GPUs each user holds and waits for, and its recent use, if there are several users."""
    from stoker.accounts import name_of
    from stoker.core.turns import format_use
    from stoker.gpus.lease_holder import holding_users
    from stoker.gpus.turn_files import read_users

    users = read_users(time.clock_gettime(time.CLOCK_BOOTTIME))
    held: dict[int, list[str]] = {}
    for key, uid in holding_users(labels).items():
        held.setdefault(uid, []).append(labels[key])
    uids = sorted({*held, *users}, key=name_of)
    if len(uids) < 2:
        return
    total_s = sum(user.use_s for user in users.values())
    table = []
    for uid in uids:
        user = users.get(uid)
        waits = [] if user is None else [labels[key] for key in sorted(user.gpus) if key in labels]
        use_s = 0.0 if user is None else user.use_s
        table.append(
            (
                name_of(uid),
                ", ".join(sorted(held.get(uid, ()))) or "-",
                ", ".join(sorted(waits)) or "-",
                format_use(use_s),
                f"{100 * use_s / total_s:.0f}%" if total_s else "-",
            )
        )
    print()
    print_table(_USER_COLUMNS, table)


def _without_nvml(seen: set[str], slots: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the queue's slots whose GPUs NVML does not show, by label."""
    found: dict[str, list[dict[str, Any]]] = {}
    for slot in slots:
        if seen.isdisjoint(slot["label"].split("+")):
            found.setdefault(slot["label"], []).append(slot)
    return found


def _show_cluster(*, as_json: bool) -> int:
    """Print the GPUs of all machines, as the daemon knows them."""
    from stoker.client.client import Client

    with Client() as client:
        found = client.read_gpus()
    if as_json:
        print_json(found)
        return 0
    print_table([*_COLUMNS, _QUEUE], [_cluster_row(gpu) for gpu in found])
    return 0


def _cluster_row(gpu: GpuInfo) -> tuple[str, ...]:
    from stoker.core.size import format_bytes

    used, total = gpu.mem_used_bytes / 2**30, gpu.mem_total_bytes / 2**30
    users = [
        f"{user.user or f'pid {user.pid}'} ({format_bytes(user.mem_bytes)})" for user in gpu.users
    ]
    jobs = [f"job {job}" for job in gpu.jobs]
    return (
        gpu.label,
        gpu.name or "-",
        "lost" if gpu.lost else f"{used:.1f}/{total:.1f} GiB" if total else "-",
        "-" if gpu.utilisation_pct is None else f"{gpu.utilisation_pct}%",
        "; ".join(users) or "-",
        gpu.held_by or "-",
        (", ".join([*jobs, *filter(None, [gpu.drained, gpu.closed])]) or "free")
        + _reserved_text(gpu.reserved_until),
    )


def _slots_of_queue() -> list[dict[str, Any]] | None:
    """Ask the daemon for its slots; None if no daemon runs (this starts none)."""
    import json

    from stoker.client.transport import Connection
    from stoker.home import find_home

    try:
        with Connection(find_home(), _TIMEOUT_S) as connection:
            status = json.loads(connection.request("GET", "/v1/status").body)
    except StokerError:
        return None
    found = status["slots"]
    assert isinstance(found, list)
    return found


def _in_queue(label: str, slots: list[dict[str, Any]]) -> str:
    """Describe what the queue does on a GPU."""
    words = []
    for slot in slots:
        if label in (slot["label"], *slot["label"].split("+")):
            jobs = [f"job {job}" for job in slot["jobs"]]
            shut = slot["drained"] or slot["closed"]
            words += [*jobs, *_describe_shared(slot), *filter(None, [shut])] or ["free"]
    return ", ".join(dict.fromkeys(words)) or "-"


def _describe_shared(slot: dict[str, Any]) -> list[str]:
    """Describe how much of a shared GPU's memory is set aside."""
    shared = slot.get("shared")
    if shared is None:
        return []
    reserved, capacity = shared["reserved_bytes"] / 2**30, shared["capacity_bytes"] / 2**30
    capped = f" ({shared['capped']} capped)" if shared["capped"] else ""
    return [f"{reserved:.1f} of {capacity:.1f} GiB set aside{capped}"]


def _json_row(
    state: GpuState,
    held_by: Holder | None,
    reserved_until: int,
    slots: list[dict[str, Any]] | None,
) -> dict[str, Any]:
    import msgspec

    gpu, reading = state.gpu, state.reading
    mine = [slot for slot in slots or () if gpu.label in slot["label"].split("+")]
    return {
        "label": gpu.label,
        **msgspec.to_builtins(gpu),
        "lost": reading.lost,
        "mem_used_bytes": reading.mem_used_bytes,
        "mem_free_bytes": reading.mem_free_bytes,
        "utilisation_pct": reading.utilisation_pct,
        "temperature_c": reading.temperature_c,
        "power_w": reading.power_w,
        "users": msgspec.to_builtins(state.users),
        "holder": held_by._asdict() if held_by else None,
        "reserved_until": reserved_until or None,
        "queue": mine if slots is not None else None,
    }


def _text_row(state: GpuState, held_by: Holder | None, reserved_until: int) -> tuple[str, ...]:
    gpu, reading = state.gpu, state.reading
    memory = f"{reading.mem_used_bytes / 2**30:.1f}/{gpu.mem_total_bytes / 2**30:.1f} GiB"
    utilisation = "-" if reading.utilisation_pct is None else f"{reading.utilisation_pct}%"
    return (
        gpu.label,
        gpu.name,
        "lost" if reading.lost else memory,
        utilisation,
        "; ".join(_user_text(user) for user in state.users) or "-",
        held_by.text + _reserved_text(reserved_until) if held_by else "-",
    )


def _reserved_text(reserved_until: float | None) -> str:
    from stoker.core.user_reservation import spell_time

    return f", reserved until {spell_time(reserved_until, time.time())}" if reserved_until else ""


def _user_text(user: GpuUser) -> str:
    from stoker.core.size import format_bytes

    if user.user is None or user.command is None:
        return f"pid {user.pid} outside this container ({format_bytes(user.mem_bytes)})"
    return f"{user.user}: {_brief(user.command)} ({format_bytes(user.mem_bytes)})"


def _brief(command: str, limit: int = 40) -> str:
    program, _, rest = command.partition(" ")
    text = f"{os.path.basename(program)} {rest}".strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"
