"""A second user opens connections to the page without end; the owner's queue and page still work."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from integration.daemon_fixture import free_port
from page_client import PageClient
from patience import until
from scale import LONG
from security.quick_queue import QuickQueue
from web.conftest import Site, browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from security.second_user import SecondUser

__all__ = ["browser"]
MAX_LOG_BYTES = 20_000
# Holds more connections than the daemon may have descriptors, and then replaces each that is closed; some of
# them ask for a file. It is ready when all were accepted, or nobody accepts any more.
FLOOD = """
port, many = int(sys.argv[3]), int(sys.argv[4])
poll = select.poll()
held = {}

def add(timeout_s):
    sock = socket.socket()
    sock.settimeout(timeout_s)
    with contextlib.suppress(OSError):
        sock.connect(("127.0.0.1", port))
        if len(held) % 3 == 0:
            sock.send(b"GET /all.js HTTP/1.1\\r\\nhost: 127.0.0.1\\r\\n\\r\\n")
    held[sock.fileno()] = sock
    poll.register(sock, select.POLLIN | select.POLLHUP | select.POLLERR)
    return sock

while len(held) < many:
    sock = add(2)
    try:
        sock.getpeername()
    except OSError:
        break
print("ready", flush=True)
while True:
    for fd, _event in poll.poll(1000):
        poll.unregister(fd)
        held.pop(fd).close()
        add(0)
    time.sleep(0.01)
"""


def start_with(queue: QuickQueue, descriptors: int) -> int:
    """Start a daemon and leave it so many descriptors, as a hard limit would; its pid."""
    queue.start()
    pid = int(json.loads(queue.ok("status", "--json"))["pid"])
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (descriptors, descriptors))
    return pid


@pytest.mark.parametrize("many", [256, 1024] if LONG else [256])
def test_a_flood_of_idle_connections_locks_nobody_out(
    quick_queue: QuickQueue, second_user: SecondUser, browser: Browser, many: int
) -> None:
    queue = quick_queue
    pid = start_with(queue, many)
    site = Site(queue, browser)
    port = int(site.url.rstrip("/").rpartition(":")[2])
    page = site.tab("/jobs")
    second_user.start_until_ready(FLOOD, str(port), str(many + 200))

    job = queue.add("-N", "meanwhile", "-g", "0", "true")
    queue.ok("wait", str(job))
    assert queue.states()[job] == "done"
    expect(page.get_by_role("cell", name="meanwhile")).to_be_visible()
    for _ in range(5):
        with PageClient(port) as tab:
            assert tab.sign_in(site.token) is not None
            assert tab.ask("/v1/status") == 200
    other = site.tab("/jobs")
    expect(other.get_by_role("cell", name="meanwhile")).to_be_visible()

    assert len(os.listdir(f"/proc/{pid}/fd")) < many // 2
    assert os.path.getsize(queue.home / "daemon.log") < MAX_LOG_BYTES


def test_connections_that_say_nothing_are_closed(
    quick_queue: QuickQueue, second_user: SecondUser
) -> None:
    queue = quick_queue
    queue.start()
    port = int(free_port())
    queue.ok("web", "--port", str(port))
    source = """
    socks = [socket.socket() for _ in range(3)]
    for sock in socks:
        sock.settimeout(60)
        sock.connect(("127.0.0.1", int(sys.argv[3])))
    socks[1].sendall(b"GET / HT")
    upgrade = b"GET /v1/live HTTP/1.1\\r\\nhost: 127.0.0.1\\r\\norigin: http://127.0.0.1\\r\\n"
    upgrade += b"upgrade: websocket\\r\\nconnection: upgrade\\r\\nsec-websocket-version: 13\\r\\n"
    socks[2].sendall(upgrade + b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\\r\\n\\r\\n")
    for sock in socks:
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(4096):
                pass
    print("closed")
    """
    assert second_user.run(source, str(port)) == "closed\n"


def test_a_daemon_without_descriptors_says_so_in_one_line_and_recovers(
    quick_queue: QuickQueue,
) -> None:
    queue = quick_queue
    start_with(queue, 128)
    log = queue.home / "daemon.log"
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            sock = stack.enter_context(socket.socket(socket.AF_UNIX))
            sock.connect(str(queue.home / "stoker.sock"))
        until(lambda: "cannot accept a connection" in log.read_text(), "the daemon has said so")
    job = queue.add("-g", "0", "true")
    queue.ok("wait", str(job))
    assert log.read_text().count("Too many open files") == 1
