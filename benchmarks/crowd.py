"""Many clients that follow the same log: `python crowd.py HOME TARGET COUNT`, until stdin closes.

Prints `ready` when every client has an answer, and at the end how many bytes the slowest received.
"""

from __future__ import annotations

import os
import select
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks.line import Line


def main(home: str, target: str, count: int) -> None:
    """Follow, and throw away what comes."""
    sockets = {}
    poll = select.epoll()
    poll.register(0, select.EPOLLIN)
    for _ in range(count):
        sock = Line(home).follow(target)
        sock.setblocking(False)
        sockets[sock.fileno()] = sock
        poll.register(sock.fileno(), select.EPOLLIN)
    got = dict.fromkeys(sockets, 0)
    unanswered = set(sockets)
    buffer = bytearray(1 << 20)
    while True:
        for fd, _event in poll.poll():
            if fd == 0:
                print(min(got.values()), flush=True)
                return
            size = sockets[fd].recv_into(buffer)
            if not size:
                sys.exit("the daemon hung up")
            got[fd] += size
            if fd in unanswered:
                unanswered.discard(fd)
                if not unanswered:
                    print("ready", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
