"""`stoker cluster alloc`: rules by which the queue asks Slurm for allocations."""

from __future__ import annotations

from stoker.cli.arguments import Args
from stoker.cli.messages import print_json
from stoker.cli.tables import Column, Row, print_table
from stoker.client.client import Client
from stoker.core.durations import format_duration, parse_option, parse_span, spell_duration
from stoker.errors import UsageError
from stoker.wire import AllocationInfo, AllocationOrder, AllocationRule, NewAllocationRule

_VERBS = ("add", "ls", "rm", "pause", "resume")
_OF_ADD = ("gpus", "time", "max", "idle", "may_cut", "setup")
_COLUMNS = (
    Column("RULE"),
    Column("SLURM"),
    Column("STATE", fold=True),
    Column("GPUS"),
    Column("JOBS"),
    Column("LEFT"),
)
_STYLES = {"up": "green", "queued": "yellow", "starting": "yellow", "paused": "red"}


def alloc(args: Args) -> int:
    """Perform one of the verbs of `alloc`."""
    if args.target not in _VERBS:
        raise UsageError(f"stoker cluster alloc {'|'.join(_VERBS)}, not {args.target or 'nothing'}")
    _check(args)
    if args.target == "add":
        return _add(args)
    if args.target == "ls":
        return _list(as_json=args.json)
    return _change(args)


def _check(args: Args) -> None:
    if args.target != "add":
        given = [name for name in _OF_ADD if getattr(args, name) not in (None, False)]
        if given or args.command is not None:
            what = f"--{given[0].replace('_', '-')}" if given else "--"
            raise UsageError(f"{what} is for alloc add, not for alloc {args.target}")
    if args.force and args.target != "rm":
        raise UsageError(f"--force is for alloc rm, not for alloc {args.target}")
    if args.json and args.target != "ls":
        raise UsageError(f"--json is for alloc ls, not for alloc {args.target}")
    if args.target == "ls" and args.reason:
        raise UsageError(f"alloc ls takes no {' '.join(args.reason)!r}")


def _add(args: Args) -> int:
    example = "stoker cluster alloc add slurm --time 4h --gpus 4 -- -p gpu -A account"
    if args.reason != ["slurm"]:
        raise UsageError(f"which batch system? There is slurm: {example}")
    if args.time is None:
        raise UsageError(f"--time: how long does an allocation last? {example}")
    gpus = "1" if args.gpus is None else args.gpus
    if not gpus.isdecimal() or not 1 <= int(gpus) <= 1024:
        raise UsageError(f"--gpus {gpus}: a number of GPUs, as in --gpus 4")
    if args.max is not None and not 1 <= args.max <= 1000:
        raise UsageError(f"--max {args.max}: a number from 1 to 1000")
    order = NewAllocationRule(
        time_s=_time("--time", args.time),
        gpus=int(gpus),
        most=args.max or 1,
        idle_s=300.0 if args.idle is None else _idle(args.idle),
        options=args.command or [],
        setup=args.setup,
        may_cut=args.may_cut,
    )
    with Client(start=True) as client:
        made = client.add_allocation_rule(order)
    print(f"rule {made.id}: {_describe(made)}, as soon as jobs wait that fit")
    return 0


def _time(option: str, text: str) -> float:
    seconds = parse_option(option, text)
    if not 60 <= seconds <= 366 * 86400:
        raise UsageError(f"{option} {text}: a time from 1m to 366d")
    return seconds


def _idle(text: str) -> float:
    try:
        seconds = parse_span(text)
    except UsageError as error:
        raise UsageError(f"--idle: {error}") from None
    if seconds > 86400:
        raise UsageError(f"--idle {text}: 1d at most")
    return seconds


def _describe(rule: AllocationRule) -> str:
    gpus = f"{rule.gpus} GPU{'s' * (rule.gpus != 1)}"
    some = "one allocation" if rule.most == 1 else f"up to {rule.most} allocations"
    return f"{some} of {gpus} for {spell_duration(rule.time_s)}"


def _change(args: Args) -> int:
    if len(args.reason) != 1 or not args.reason[0].isdecimal() or not int(args.reason[0][:15]):
        raise UsageError(f"which rule? stoker cluster alloc {args.target} 1; alloc ls shows them")
    order = AllocationOrder(action=args.target, rule=int(args.reason[0][:15]), force=args.force)
    with Client() as client:
        rule = client.change_allocation_rule(order)
    has = len(rule.allocations)
    what = f"its {has} allocation{'s' * (has != 1)}" if has else "it has no allocation"
    print(
        {
            "rm": f"rule {rule.id} is removed"
            + (f"; {what} end when their jobs have ended" if has else ""),
            "pause": f"rule {rule.id} is paused: {what}" + (" stay" if has else ""),
            "resume": f"rule {rule.id} asks again",
        }[args.target]
    )
    return 0


def _list(*, as_json: bool) -> int:
    with Client() as client:
        rules = client.allocations()
    if as_json:
        print_json(rules)
        return 0
    if not rules:
        print("there is no rule: stoker cluster alloc add slurm --time 4h --gpus 4 -- -p gpu")
        return 0
    print_table(_COLUMNS, [row for rule in rules for row in _rows(rule)])
    for trouble in dict.fromkeys(rule.trouble for rule in rules if rule.trouble):
        print(f"\nSlurm does not answer: {trouble}")
    return 0


def _rows(rule: AllocationRule) -> list[Row]:
    options = f" -- {' '.join(rule.options)}" if rule.options else ""
    state, word = _state(rule)
    first: Row = (
        str(rule.id),
        "",
        (f"{state}: {_describe(rule)}{options}", _STYLES.get(word, "")),
        str(rule.gpus),
        "",
        "",
    )
    return [first, *(_row(rule, each) for each in rule.allocations)]


def _state(rule: AllocationRule) -> tuple[str, str]:
    if rule.is_removed:
        return "removed", "removed"
    if rule.paused is not None:
        return f"paused ({rule.paused})", "paused"
    wanted = f"{rule.wanted} GPU{'s' * (rule.wanted != 1)} wanted" if rule.wanted else "on"
    return wanted if rule.failure is None else f"{wanted} ({rule.failure})", "on"


def _row(rule: AllocationRule, each: AllocationInfo) -> Row:
    stage = each.stage.value
    return (
        "",
        str(each.id),
        (f"{stage}: {each.why}" if each.why else stage, _STYLES.get(stage, "")),
        str(rule.gpus),
        str(each.jobs) if each.stage.value in ("up", "ending") else "",
        "" if each.left_s is None else format_duration(each.left_s),
    )
