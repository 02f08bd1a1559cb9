"""A time of day that tests set, for the processes that load it."""

from __future__ import annotations

import subprocess
from pathlib import Path

# Moves the time of day by as many seconds as the file $CLOCK_OFFSET says; other clocks stay. It may be called
# at any moment, so it takes no memory.
_SHIM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
    char text[32];
    const char *path = getenv("CLOCK_OFFSET");
    int fd = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return 0;
    long size = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    if (size <= 0) return 0;
    text[size] = 0;
    return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME && result == 0) now->tv_sec += offset();
    return result;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""


class Clock:
    """The time of day of processes that are started with `env`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "clock-offset"
        library = folder / "clock.so"
        command = ["gcc", "-O1", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=_SHIM, text=True, check=True)
        self.env = {"LD_PRELOAD": str(library), "CLOCK_OFFSET": str(self._path)}
        self.set(0)

    def set(self, offset_s: int) -> None:
        """Set the clock to so many seconds from the true time."""
        new = self._path.with_suffix(".new")
        new.write_text(str(offset_s))
        new.rename(self._path)
