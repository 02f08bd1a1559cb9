"""`stoker daemon`: starts, stops and installs the process that runs the queue."""

from __future__ import annotations

import glob
import os
import time
from typing import TYPE_CHECKING

from stoker.cli.arguments import Args, arg
from stoker.cli.messages import note, print_json
from stoker.cli.verbs.status import print_status
from stoker.client.autostart import DAEMON, start_daemon
from stoker.client.client import Client
from stoker.client.daemon_process import daemon_pid, lock_path
from stoker.client.transport import NoDaemonError, unreachable
from stoker.core.lifecycle import State, is_live
from stoker.core.user_reservation import spell_time
from stoker.errors import StokerError, UsageError
from stoker.home import find_home
from stoker.interpreter import module_command
from stoker.pid_lock import end_holder, has_ended

if TYPE_CHECKING:
    from stoker.wire import Status

SUMMARY = """\
Start, stop, restart or install the daemon, which runs the queue. The first stoker add starts it by
itself. Stopping or restarting it leaves jobs running; the next one takes them up again."""
EXAMPLES = """\
  stoker daemon start --gpus 0,1    use these GPUs from now on (remembered)
  stoker daemon restart             take up a new version; jobs run on
  stoker daemon stop                jobs run on, nothing new starts
  stoker daemon stop --kill         end the jobs as well
  stoker daemon status              as stoker status; exit 1 if none runs
  stoker daemon install             start it at boot and after a crash (systemd user unit)
"""

_ACTIONS = ("start", "stop", "restart", "status", "install")
_STOP_TIMEOUT_S = 60.0

ARGUMENTS = (
    arg("action", choices=_ACTIONS, metavar="ACTION", help=", ".join(_ACTIONS)),
    arg("--gpus", metavar="SLOTS", help="start, restart: 0,1 or 0-3 or 0+1,2+3; default: all free"),
    arg("--kill", action="store_true", help="stop: end the jobs that run as well"),
    arg("--json", action="store_true", help="status: as JSON, for programs"),
)


def run(args: Args) -> int:
    """Perform one of the actions."""
    if args.gpus is not None and args.action not in ("start", "restart"):
        raise UsageError(f"--gpus is for start and restart, not for {args.action}")
    if args.kill and args.action != "stop":
        raise UsageError(f"--kill is for stop, not for {args.action}")
    if args.json and args.action != "status":
        raise UsageError(f"--json is for status, not for {args.action}")
    home = find_home()
    status = _read_status(home)
    match args.action:
        case "start":
            _start(home, args.gpus, status)
        case "stop":
            _stop(home, status, kill=args.kill)
        case "restart":
            if args.gpus is not None:
                _parse_labels(args.gpus)  # a typing error must not leave the queue without a daemon
            _restart(home, args.gpus, status)
        case "install":
            install(home)
        case _:
            if status is None:
                pid = daemon_pid(home)
                raise StokerError(
                    "no daemon runs: stoker daemon start" if pid is None else unreachable(home, pid)
                )
            print_json(status) if args.json else print_status(status)
    return 0


def restart(home: str) -> None:
    """Restart the daemon; jobs run on."""
    _end(home, _read_status(home))
    start_daemon(home, [])


def _restart(home: str, gpus: str | None, status: Status | None) -> None:
    from stoker.cli import upgrade_advice

    upgrade_advice.refuse_other_ray(home)
    nodes = upgrade_advice.read_nodes(home)  # the next daemon learns of them later
    _end(home, status)
    _launch(home, gpus)
    upgrade_advice.advise(home, status, nodes)


def _read_status(home: str) -> Status | None:
    try:
        with Client(home, restart=False) as client:
            return client.status()
    except NoDaemonError:
        return None


def _start(home: str, gpus: str | None, status: Status | None) -> None:
    if status is None:
        _launch(home, gpus)
        return
    labels = [slot.label for slot in status.slots]
    if gpus is not None and gpus != _remembered_gpus(home) and _parse_labels(gpus) != labels:
        raise StokerError(
            f"a daemon runs already (pid {status.pid}), {_describe_gpus(status)}:"
            f" stoker daemon restart --gpus {gpus} changes that, and jobs run on"
        )
    print(f"a daemon runs already (pid {status.pid})")


def _stop(home: str, status: Status | None, *, kill: bool) -> None:
    ended = _end(home, status, kill=kill)
    if status is None:
        leftovers = "; what it had left running was ended" if kill and _end_leftovers(home) else ""
        print(f"{'stopped' if ended else 'no daemon runs'}{leftovers}")
        return
    reserved = [slot for slot in status.slots if slot.reserved_until is not None]
    if reserved and not kill:
        labels = ", ".join(slot.label for slot in reserved)
        last = max(slot.reserved_until or 0.0 for slot in reserved)
        note(f"GPU {labels} stays reserved, until {spell_time(last, time.time())} at the latest")
    running = sum(count for state, count in status.counts.items() if is_live(state))
    waiting = status.counts.get(State.WAITING, 0)
    effect = ""
    if running and not kill:
        jobs = "1 job runs" if running == 1 else f"{running} jobs run"
        effect = f"; {jobs} on, stoker daemon start takes them up again"
    elif waiting:
        effect = f"; {waiting:,} waiting until stoker daemon start"
    print(f"stopped{effect}")


def _launch(home: str, gpus: str | None) -> None:
    start_daemon(home, ["--gpus", gpus] if gpus is not None else [])
    status = _read_status(home)
    if status is None:
        raise StokerError(f"the daemon ended at once: {home}/daemon.log says why")
    print(f"started (pid {status.pid}), {_describe_gpus(status)}")
    for notice in status.notices:
        note(notice)


def _describe_gpus(status: Status) -> str:
    labels = ", ".join(slot.label for slot in status.slots)
    return f"on GPU {labels}" if labels else "without a GPU"


def _end_leftovers(home: str) -> bool:
    """End jobs that run without a daemon; whether there were any. The next daemon records their ends."""
    from stoker.executors.daemon_executor import stop_supervisor

    sockets = glob.glob(os.path.join(glob.escape(home), "supervisor-*.sock"))
    stopped = [stop_supervisor(path, kill=True) for path in sockets]
    return any(answer is not None for answer in stopped)


def _end(home: str, status: Status | None, *, kill: bool = False) -> bool:
    """Stop the daemon, and wait until its process is gone; whether there was one."""
    if status is None:
        return _end_unreachable(home)
    process = os.pidfd_open(status.pid)
    try:
        with Client(home) as client:
            client.stop(kill=kill)
        if not has_ended(process, _STOP_TIMEOUT_S):
            raise _has_not_ended(home, status.pid)
    finally:
        os.close(process)
    return True


def _end_unreachable(home: str) -> bool:
    """Stop a daemon that does not listen, by a signal; whether there was one."""
    pid = daemon_pid(home)
    if pid is None:
        return False
    if not pid:
        raise StokerError(
            f"a daemon holds {home}/daemon.lock, but its pid is not known: find it and end it"
        )
    if not end_holder(lock_path(home), pid, _STOP_TIMEOUT_S):
        raise _has_not_ended(home, pid)
    return True


def _has_not_ended(home: str, pid: int) -> StokerError:
    return StokerError(
        f"the daemon (pid {pid}) has not ended within {_STOP_TIMEOUT_S:.0f}s: {home}/daemon.log may"
        f" say why; kill -KILL {pid} ends it, and jobs run on"
    )


def install(home: str) -> None:
    """Let systemd run the daemon, from boot on and after a crash. Jobs run on."""
    from stoker.cli import systemd_unit
    from stoker.submit_context import find_user

    named = os.environ.get("STOKER_HOME")
    name = systemd_unit.unit_name(home if named else None)
    path = systemd_unit.unit_path(name)
    if not systemd_unit.has_systemd():
        raise StokerError(
            "there is no systemd for your user here: the first stoker add starts the daemon;"
            " @reboot stoker daemon start in your crontab starts it at boot"
        )
    passed = ("STOKER_LEASE_DIR", "CUDA_VISIBLE_DEVICES")
    environment = {key: value for key in passed if (value := os.environ.get(key))}
    if named:
        environment["STOKER_HOME"] = home
    systemd_unit.write_unit(path, systemd_unit.unit_text(module_command(DAEMON), environment))
    _end(home, _read_status(home))
    systemd_unit.systemctl("daemon-reload")
    systemd_unit.systemctl("enable", "--now", name)
    print(f"installed and started: {path}")
    for warning in systemd_unit.warnings(find_user() or str(os.getuid())):
        note(warning)


def _remembered_gpus(home: str) -> str | None:
    with Client(home) as client:
        return next((each.value for each in client.config() if each.name == "gpus"), None)


def _parse_labels(gpus: str) -> list[str]:
    """Return the labels of the slots that a text names; raises an error for wrong text."""
    from stoker.gpus.drivers import open_driver
    from stoker.gpus.slot_grammar import parse_slots

    nvml = open_driver()
    known = None if nvml is None else nvml.gpus()
    return [slot.label for slot in parse_slots(gpus, known, os.environ.get("CUDA_VISIBLE_DEVICES"))]
