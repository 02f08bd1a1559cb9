"""`stoker config`: shows or changes the queue's settings."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.cli.arguments import JSON, Args, arg
from stoker.cli.messages import note, print_json
from stoker.cli.tables import Column, print_table
from stoker.client.client import Client
from stoker.core.setting_names import explain_unknown
from stoker.errors import NotFoundError, UsageError
from stoker.wire import NewSetting, Setting

SUMMARY = """\
Show the queue's settings, or change one. A change counts at once, or where it says so after stoker
daemon restart, and is remembered."""
EXAMPLES = """\
  stoker config                     all settings, with their meaning
  stoker config keep.days           one value
  stoker config keep.days 30        change it
  stoker config keep.days --reset   back to its default
"""

_AFTER_RESTART = ("gpus", "cluster.lease", "cpu.bind")
_COLUMNS = (Column("NAME"), Column("VALUE"), Column("DEFAULT"), Column("MEANING", fold=True))

ARGUMENTS = (
    arg("name", nargs="?", metavar="NAME", help="a setting"),
    arg("value", nargs="?", metavar="VALUE", help="its new value"),
    arg("--reset", action="store_true", help="take its default again"),
    JSON,
)


def run(args: Args) -> int:
    """Print settings, or change one."""
    if args.reset and (args.name is None or args.value is not None):
        raise UsageError("--reset takes one NAME: stoker config keep.days --reset")
    if args.value is not None or args.reset:
        setting = _change(args.name, args.value)
        text = f"{setting.name} is {setting.value} now"
    else:
        with Client() as client:
            settings = client.config()
        if args.name is None:
            (print_json if args.json else _print_table)(settings)
            return 0
        setting = _find(settings, args.name)
        text = setting.value
    if args.json:
        print_json(setting)
    else:
        print(text)
    return 0


def _change(name: str, value: str | None) -> Setting:
    if name == "ray.address":
        from stoker.cli.verbs.cluster import use_cluster

        return use_cluster(value)
    with Client() as client:
        setting = client.set_config(NewSetting(name=name, value=value))
    if name in _AFTER_RESTART:
        note(f"{name} takes effect after stoker daemon restart; jobs run on")
    return setting


def _find(settings: Sequence[Setting], name: str) -> Setting:
    for setting in settings:
        if setting.name == name:
            return setting
    raise NotFoundError(explain_unknown(name, [setting.name for setting in settings]))


def _print_table(settings: list[Setting]) -> None:
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
