"""Main program of the daemon."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Sequence

from stoker import __version__, pid_lock
from stoker.client.daemon_process import daemon_pid, lock_path
from stoker.daemon.accept_errors import AcceptErrors
from stoker.daemon.build import Daemon
from stoker.engine.event_publisher import log
from stoker.errors import StokerError
from stoker.failpoints import reach
from stoker.home import find_home
from stoker.open_files import raise_limit

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon of a home until it is asked to stop."""
    parser = argparse.ArgumentParser(prog="python -m stoker.daemon", description=main.__doc__)
    parser.add_argument("--gpus", metavar="SLOTS", help="slots to use, remembered")
    parser.add_argument(
        "--gpus-with-others",
        action="store_true",
        help="use GPUs that are found also while others compute there, remembered",
    )
    parser.add_argument("--ready-fd", type=int, metavar="N", help="where to write 'ready'")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        home = find_home()
        _take_lock(home)
        reach("daemon-locked")
        raise_limit()
        asyncio.run(_serve(home, args))
    except (StokerError, sqlite3.OperationalError) as error:
        return _give_up(args.ready_fd, str(error))
    except sqlite3.DatabaseError as error:
        reason = f"{find_home()}/stoker.db is damaged ({error}): move it away to start anew"
        return _give_up(args.ready_fd, reason)
    return 0


def _take_lock(home: str) -> None:
    """Become the only daemon of a home, until this process ends."""
    if pid_lock.take(lock_path(home)) is None:
        raise StokerError(
            f"a daemon runs already (process {daemon_pid(home) or 'unknown'}) for {home}:"
            " stoker daemon status"
        )


async def _serve(home: str, args: argparse.Namespace) -> None:
    daemon = Daemon(home, args.gpus, gpus_with_others=args.gpus_with_others)
    reach("daemon-built")
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(AcceptErrors(log))
    for signum in _SIGNALS:
        loop.add_signal_handler(signum, daemon.ask_to_stop)
    try:
        log(f"stoker {__version__} started, process {os.getpid()}, home {home}")
        gc.collect()
        gc.freeze()
        await daemon.run(lambda: _tell(args.ready_fd, "ready\n"))
    finally:
        daemon.close()
        log(f"stopped after {time.time() - daemon.since:.0f}s")


def _give_up(ready_fd: int | None, reason: str) -> int:
    log(f"error: {reason}")
    _tell(ready_fd, f"error: {reason}\n")
    return 1


def _tell(ready_fd: int | None, text: str) -> None:
    """Answer the process that started the daemon, once, if it still reads."""
    if ready_fd is None:
        return
    with contextlib.suppress(OSError):
        os.write(ready_fd, text.encode(errors="replace"))
        os.close(ready_fd)


if __name__ == "__main__":
    sys.exit(main())
