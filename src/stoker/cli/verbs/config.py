"""`stoker config`: the queue's settings."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoker.cli.tables import Column, print_table
from stoker.client.client import Client
from stoker.errors import NotFoundError, UsageError
from stoker.wire import NewSetting, Setting

if TYPE_CHECKING:
    import argparse

SUMMARY = """\
Show the queue's settings, or change one. A change counts at once, or where it says so after stoker
daemon restart, and is remembered."""
EXAMPLES = """\
examples:
  stoker config                     all settings, with their meaning
  stoker config keep.days           one value
  stoker config keep.days 30        change it
  stoker config keep.days --reset   back to its default
"""

_AFTER_RESTART = ("gpus", "cluster.lease")
_COLUMNS = (Column("NAME"), Column("VALUE"), Column("DEFAULT"), Column("MEANING", fold=True))


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what this verb takes."""
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help="a setting")
    add("value", nargs="?", metavar="VALUE", help="its new value")
    add("--reset", action="store_true", help="take its default again")
    add("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print settings, or change one."""
    if args.reset and (args.name is None or args.value is not None):
        raise UsageError("--reset takes one NAME: stoker config keep.days --reset")
    if args.value is not None or args.reset:
        setting = _change(args.name, args.value)
        told = f"{setting.name} is {setting.value} now"
    else:
        with Client() as client:
            settings = client.config()
        if args.name is None:
            _print_all(settings, as_json=args.json)
            return 0
        setting = _find(settings, args.name)
        told = setting.value
    if args.json:
        _print_json(setting)
    else:
        print(told)
    return 0


def _change(name: str, value: str | None) -> Setting:
    if name == "ray.address":
        from stoker.cli.verbs.cluster import reach_over

        return reach_over(value)
    with Client() as client:
        setting = client.set_config(NewSetting(name=name, value=value))
    if name in _AFTER_RESTART:
        sys.stderr.write(f"stoker: {name} counts after stoker daemon restart; jobs run on\n")
    return setting


def _find(settings: Sequence[Setting], name: str) -> Setting:
    for setting in settings:
        if setting.name == name:
            return setting
    known = ", ".join(setting.name for setting in settings)
    raise NotFoundError(f"there is no setting '{name}'; there are: {known}")


def _print_all(settings: list[Setting], *, as_json: bool) -> None:
    if as_json:
        _print_json(settings)
        return
    rows = [
        (
            setting.name,
            (setting.value, "bold" if setting.value != setting.default else ""),
            (setting.default, "dim"),
            setting.meaning,
        )
        for setting in settings
    ]
    print_table(_COLUMNS, rows)


def _print_json(value: Setting | list[Setting]) -> None:
    import json

    import msgspec

    print(json.dumps(msgspec.to_builtins(value), indent=2))
