"""`stoker cluster add`: sets machines up over ssh and lets them join."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from stoker.cli.arguments import Args
from stoker.cli.messages import note
from stoker.client.client import Client
from stoker.cluster import ray_survey, settings
from stoker.cluster.ssh.bundle import collect
from stoker.cluster.ssh.connection import SshConnection, check_target
from stoker.cluster.ssh.new_box import NewBox
from stoker.cluster.ssh.python_search import find_python
from stoker.errors import ConflictError, StokerError, UsageError

_UP_S = 60.0
_AT_ONCE = 8
_LOOK_S = 0.1


def add(home: str, args: Args) -> int:
    """Add machines to the cluster of this one, at the same time. Returns 1 if one could not be added."""
    targets = [args.target, *args.reason] if args.target else []
    if not targets:
        raise UsageError("which box? stoker cluster add user@host, as for ssh")
    if args.name is not None and len(targets) > 1:
        raise UsageError("--name is for one box")
    ray_survey.require_ray()
    head = require_head(home)
    options = _options_of_join(args)
    if args.name is not None:
        _check_name(home, args.name)
    bundle = collect()
    with contextlib.ExitStack() as stack:
        # One after the other: each may ask for a password.
        opened = _open_all(stack, targets, args.python)
        boxes = [NewBox(home, box, python, bundle, _speaker(box)) for box, python in opened]
        if len(targets) == 1:
            _add_box(home, head, boxes[0], options)
            return 0
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            done = list(threads.map(lambda box: _try_to_add(home, head, box, options), boxes))
        return 0 if done.count(True) == len(targets) else 1


def require_head(home: str) -> settings.ClusterSettings:
    """Return the settings of this machine's cluster; raise ConflictError if it is not the head."""
    known = settings.load_settings(home)
    if known is None:
        raise ConflictError("this box belongs to no cluster: stoker cluster up starts one")
    if not known.is_head:
        raise ConflictError(f"boxes are added on the first box, {known.address}")
    return known


def _check_name(home: str, name: str) -> None:
    """Raise ConflictError if a node has this name: before anything is copied."""
    settings.check_node_name(name)
    with Client(home, start=True) as client:
        if any(node.name == name for node in client.nodes()):
            raise ConflictError(f"--name {name}: another box of the cluster has that name")


def _open_all(
    stack: contextlib.ExitStack, targets: Sequence[str], python: str | None
) -> list[tuple[SshConnection, str]]:
    """Connect to the machines; of several, say which cannot be reached, and leave them out."""
    for target in targets:
        check_target(target)
    opened = []
    for target in targets:
        try:
            opened.append(_open(stack, target, python))
        except StokerError as error:
            if len(targets) == 1:
                raise
            note(str(error))
    return opened


def _open(
    stack: contextlib.ExitStack, target: str, python: str | None
) -> tuple[SshConnection, str]:
    """Connect to a machine, and find its interpreter."""
    connection = stack.enter_context(SshConnection(target))
    return connection, find_python(connection, python)


def _speaker(connection: SshConnection) -> Callable[[str], None]:
    return lambda text: print(f"{connection.target}: {text}", flush=True)


def _try_to_add(
    home: str, head: settings.ClusterSettings, box: NewBox, options: Sequence[str]
) -> bool:
    """Add one of several machines. Returns whether that worked; says why it did not."""
    try:
        _add_box(home, head, box, options)
    except StokerError as error:
        note(str(error))
        return False
    except OSError as error:
        note(f"{box.target}: {error}")
        return False
    return True


def _add_box(
    home: str, head: settings.ClusterSettings, box: NewBox, options: Sequence[str]
) -> None:
    began = time.monotonic()
    name = box.add(head, options)
    wait_until_up(home, name)
    print(f"{name} is usable ({time.monotonic() - began:.0f}s)", flush=True)


def _options_of_join(args: Args) -> list[str]:
    """Return the options for `stoker cluster join` on the machine."""
    words = []
    for option in ("name", "gpus", "setup", "ports"):
        if getattr(args, option) is not None:
            words += [f"--{option}={getattr(args, option)}"]
    for option in ("label", "env"):
        words += [f"--{option}={value}" for value in getattr(args, option) or ()]
    return words


def wait_until_up(home: str, name: str) -> None:
    """Wait until the daemon can start jobs on a node."""
    deadline = time.monotonic() + _UP_S
    with Client(home, start=True) as client:
        while not any(node.name == name and node.state == "up" for node in client.nodes()):
            if time.monotonic() > deadline:
                raise StokerError(
                    f"{name} has joined, and the daemon does not reach it: stoker cluster status says more"
                )
            time.sleep(_LOOK_S)
