"""Shell watchdog: a second lease watchdog that is no Python program.

`pkill -9 -u me python` kills the supervisor and the lease watchdog at one moment, but not jobs that are other
programs. This shell script still ends those when the lease of their node expires. Its command line contains
neither "python" nor "stoker": its parameters are in its environment. It uses only what every Linux has: a
POSIX shell, sleep, grep and xargs.
"""

from __future__ import annotations

import contextlib
import os
import signal

# Times are tenths of a second of the boot clock. It acts after the supervisor and the lease watchdog, and
# before the head gives the jobs up, which is two seconds after the end of the lease.
_SCRIPT = r"""
export LC_ALL=C
trap '' HUP INT QUIT TERM
cd /

pause() {
  sleep "$1" 2>/dev/null || sleep 1
}

read_lease() {
  read -r now _ </proc/uptime
  now=${now%?}
  now=${now%.*}${now#*.}
  until=0
  read -r boot </proc/sys/kernel/random/boot_id
  { read -r of end _ <"$WATCH_FILE"; } 2>/dev/null
  [ "$of" = "$boot" ] || return 0
  case $end in '' | *[!0-9.]*) return 0 ;; esac
  until=${end%?????}
  until=${until%.*}${until#*.}
  while [ "${until#0}" != "$until" ] && [ "$until" != 0 ]; do until=${until#0}; done
}

is_over() {
  read_lease
  [ $((now - until)) -ge 8 ]
}

find_jobs() {
  found=$(printf '%s\n' /proc/[0-9]*/environ |
    xargs -r grep -lsa "STOKER_COOKIE=[A-Za-z0-9_./:-]*$WATCH_NAME:" |
    xargs -r grep -Lsa -e STOKER_PART= -e STOKER_ON_CUT=finish)
}

start_of() {
  start=
  { read -r line </proc/"$1"/stat; } 2>/dev/null || return 0
  set -- ${line##*) }
  start=${20}
}

is_supervisor_gone() {
  start_of "$WATCH_PID"
  [ -z "$start" ] || [ "$start" != "$born" ]
}

is_over_for_certain() {
  is_over && pause 0.1 && is_over
}

start_of "$WATCH_PID"
born=$start
while :; do
  gone= over= found=
  is_supervisor_gone && gone=1
  is_over_for_certain && over=1
  [ -z "$gone$over" ] || find_jobs
  [ -z "$gone" ] || [ -n "$found" ] || exit 0
  if [ -n "$over" ]; then
    for path in $found; do
      pid=${path#/proc/}
      kill -9 "${pid%/environ}" 2>/dev/null
    done
  fi
  left=$(((until - now) / 10))
  if [ -n "$over" ] && [ -n "$found" ]; then pause 0.5
  elif [ -n "$over" ] || [ "$left" -ge 6 ]; then sleep 5
  elif [ "$left" -ge 2 ]; then sleep "$((left - 1))"
  else pause 0.2; fi
done
"""


class ShellWatchdog:
    """The shell watchdog of this process, which outlives it as long as jobs do."""

    def __init__(self, lease_file: str, name: str) -> None:
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "STOKER_PART": "guard",
            "WATCH_FILE": lease_file,
            "WATCH_NAME": name,
            "WATCH_PID": str(os.getpid()),
        }
        null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
        argv = ["/bin/sh", "-c", _SCRIPT]
        self.pid = os.posix_spawn(argv[0], argv, env, file_actions=null, setsid=True, setsigmask=[])
        self._pidfd = os.pidfd_open(self.pid)

    def end(self) -> None:
        """Kill it with the program that it runs at this moment: a sleep of some seconds."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(
                self._pidfd, 0
            )  # it was not reaped: the number is still its own
            os.killpg(self.pid, signal.SIGKILL)
