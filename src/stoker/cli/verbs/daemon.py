"""`stoker daemon`: starts, stops and installs the process that runs the queue."""

from __future__ import annotations

import glob
import os
import sys
from typing import TYPE_CHECKING

from stoker.cli.verbs.status import print_status
from stoker.client.autostart import DAEMON, start_daemon
from stoker.client.client import Client
from stoker.client.holder import daemon_pid, lock_path
from stoker.client.transport import NoDaemonError, unreachable
from stoker.core.lifecycle import State, is_live
from stoker.errors import StokerError, UsageError
from stoker.home import find_home
from stoker.interpreter import module_command
from stoker.pid_lock import end_holder, has_ended

if TYPE_CHECKING:
    import argparse

    from stoker.wire import Status

SUMMARY = """\
Start, stop, restart or install the daemon, which runs the queue. The first stoker add starts it by
itself. Stopping or restarting it leaves jobs running; the next one takes them up again."""
EXAMPLES = """\
examples:
  stoker daemon start --gpus 0,1    use these GPUs from now on (remembered)
  stoker daemon restart             take up a new version; jobs run on
  stoker daemon stop                jobs run on, nothing new starts
  stoker daemon stop --kill         end the jobs as well
  stoker daemon status              as stoker status; exit 1 if none runs
  stoker daemon install             start it at boot and after a crash (systemd user unit)
"""

_ACTIONS = ("start", "stop", "restart", "status", "install")
_PATIENCE_S = 60.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what this verb takes."""
    add = parser.add_argument
    add("action", choices=_ACTIONS, metavar="ACTION", help=", ".join(_ACTIONS))
    add("--gpus", metavar="SLOTS", help="start, restart: 0,1 or 0-3 or 0+1,2+3; default: all free")
    add("--kill", action="store_true", help="stop: end the jobs that run as well")


def run(args: argparse.Namespace) -> int:
    """Do one of the actions."""
    if args.gpus is not None and args.action not in ("start", "restart"):
        raise UsageError(f"--gpus is for start and restart, not for {args.action}")
    if args.kill and args.action != "stop":
        raise UsageError(f"--kill is for stop, not for {args.action}")
    home = find_home()
    status = _status(home)
    if args.action == "start":
        return _start(home, args.gpus, status)
    if args.action == "stop":
        return _stop(home, status, kill=args.kill)
    if args.action == "restart":
        return _restart(home, args.gpus, status)
    if args.action == "install":
        return _install(home, status)
    if status is None:
        pid = daemon_pid(home)
        raise StokerError(
            "no daemon runs: stoker daemon start" if pid is None else unreachable(home, pid)
        )
    print_status(status)
    return 0


def _status(home: str) -> Status | None:
    try:
        with Client(home, restart=False) as client:
            return client.status()
    except NoDaemonError:
        return None


def _start(home: str, gpus: str | None, status: Status | None) -> int:
    if status is None:
        _launch(home, gpus)
        return 0
    labels = [slot.label for slot in status.slots]
    if gpus is not None and gpus != _remembered(home) and _labels(gpus) != labels:
        raise StokerError(
            f"a daemon runs already (pid {status.pid}), {_where(status)}:"
            f" stoker daemon restart --gpus {gpus} changes that, and jobs run on"
        )
    print(f"a daemon runs already (pid {status.pid})")
    return 0


def _stop(home: str, status: Status | None, *, kill: bool) -> int:
    if status is None and _end_unreachable(home):
        ended = "; what it had left running was ended" if kill and _end_leftovers(home) else ""
        print(f"stopped{ended}")
        return 0
    if status is None:
        ended = "; what it had left running was ended" if kill and _end_leftovers(home) else ""
        print(f"no daemon runs{ended}")
        return 0
    _end(home, status, kill=kill)
    running = sum(count for state, count in status.counts.items() if is_live(state))
    waiting = status.counts.get(State.WAITING, 0)
    print("stopped", end="")
    if running and not kill:
        print(f"; {_jobs(running)} on, stoker daemon start takes them up again", end="")
    elif waiting:
        print(f"; {waiting:,} waiting until stoker daemon start", end="")
    print()
    return 0


def _restart(home: str, gpus: str | None, status: Status | None) -> int:
    if gpus is not None:
        _labels(gpus)  # nobody wants to be left without a daemon over a slip of the keyboard
    if status is not None:
        _end(home, status, kill=False)
    else:
        _end_unreachable(home)
    _launch(home, gpus)
    return 0


def restart(home: str) -> None:
    """Let the daemon begin anew; jobs run on."""
    status = _status(home)
    if status is not None:
        _end(home, status, kill=False)
    else:
        _end_unreachable(home)
    start_daemon(home, [])


def _launch(home: str, gpus: str | None) -> None:
    start_daemon(home, ["--gpus", gpus] if gpus is not None else [])
    status = _status(home)
    if status is None:
        raise StokerError(f"the daemon ended at once: {home}/daemon.log says why")
    print(f"started (pid {status.pid}), {_where(status)}")
    for notice in status.notices:
        sys.stderr.write(f"stoker: {notice}\n")


def _where(status: Status) -> str:
    labels = ", ".join(slot.label for slot in status.slots)
    return f"on GPU {labels}" if labels else "without a GPU"


def _end_leftovers(home: str) -> bool:
    """End what runs without a daemon; whether there was anything. The next daemon learns of it."""
    from stoker.executors.daemon_executor import stop_supervisor

    sockets = glob.glob(os.path.join(glob.escape(home), "supervisor-*.sock"))
    stopped = [stop_supervisor(path, kill=True) for path in sockets]
    return any(answer is not None for answer in stopped)


def _end(home: str, status: Status, *, kill: bool) -> None:
    """Stop it, and return when its process is gone."""
    process = os.pidfd_open(status.pid)
    try:
        with Client(home) as client:
            client.stop(kill=kill)
        if not has_ended(process, _PATIENCE_S):
            raise StokerError(
                f"the daemon (pid {status.pid}) has not ended within {_PATIENCE_S:.0f} s:"
                f" {home}/daemon.log may say why"
            )
    finally:
        os.close(process)


def _end_unreachable(home: str) -> bool:
    """Stop a daemon that runs and does not listen, by a signal; whether there was one."""
    pid = daemon_pid(home)
    if pid is None:
        return False
    if not pid:
        raise StokerError(
            f"a daemon holds {home}/daemon.lock, but which process it is cannot be told: end it yourself"
        )
    if not end_holder(lock_path(home), pid, _PATIENCE_S):
        raise StokerError(
            f"the daemon (pid {pid}) has not ended within {_PATIENCE_S:.0f} s: {home}/daemon.log may"
            f" say why; kill -KILL {pid} ends it, and jobs run on"
        )
    return True


def _install(home: str, status: Status | None) -> int:
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
    command = module_command(DAEMON)
    systemd_unit.write_unit(path, systemd_unit.unit_text(command, environment))
    if status is not None:
        _end(home, status, kill=False)
    else:
        _end_unreachable(home)
    systemd_unit.systemctl("daemon-reload")
    systemd_unit.systemctl("enable", "--now", name)
    print(f"installed and started: {path}")
    for warning in systemd_unit.warnings(find_user() or str(os.getuid())):
        sys.stderr.write(f"stoker: {warning}\n")
    return 0


def _remembered(home: str) -> str | None:
    with Client(home) as client:
        values = {setting.name: setting.value for setting in client.config()}
    return values.get("gpus")


def _labels(gpus: str) -> list[str]:
    """The slots that a text names; raises the error that says what is wrong with it."""
    from stoker.gpus.nvml import Nvml
    from stoker.gpus.slot_grammar import parse_slots

    nvml = Nvml.open()
    known = None if nvml is None else nvml.gpus()
    return [slot.label for slot in parse_slots(gpus, known, os.environ.get("CUDA_VISIBLE_DEVICES"))]


def _jobs(count: int) -> str:
    return "1 job runs" if count == 1 else f"{count} jobs run"
