"""`stoker web`: opens the page for whoever has the link, and closes it."""

from __future__ import annotations

import http.client
import os
import re
import socket
import stat
from typing import TYPE_CHECKING

from integration.door import free_port
from patience import PATIENCE_S

if TYPE_CHECKING:
    from integration.door import Queue

LINK = re.compile(r"^http://127\.0\.0\.1:(\d+)/#token=(\S{43,})\n$")


def open_page(queue: Queue, *words: str) -> tuple[int, str]:
    """The port and the token of the link that is printed."""
    found = LINK.match(queue.ok("web", *words))
    assert found is not None
    return int(found[1]), found[2]


def ask(port: int, token: str, path: str = "/v1/status", **headers: str) -> int:
    """The status of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path, headers={"authorization": f"Bearer {token}", **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_link_has_the_token_and_the_way_from_elsewhere_is_told(queue: Queue) -> None:
    ended = queue("web")
    found = LINK.match(ended.out)
    assert found is not None
    port, token = int(found[1]), found[2]
    tunnel = f"ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}\n"
    assert ended.err.startswith(f"From another computer, run there first: {tunnel}")
    assert ask(port, token) == 200
    assert ask(port, "x" * 43) == 401
    assert ask(port, token, host="evil.example") == 403
    assert ask(port, "", "/") == 200
    assert open_page(queue) == (port, token)
    assert stat.S_IMODE(os.stat(queue.home / "token").st_mode) == 0o600
    assert token not in (queue.home / "daemon.log").read_text()


def test_only_this_machine_is_listened_to(queue: Queue) -> None:
    port, _token = open_page(queue)
    with open("/proc/net/tcp", encoding="ascii") as file:
        listening = [line.split()[1] for line in file if line.split()[3] == "0A"]
    addresses = {each.split(":")[0] for each in listening if int(each.split(":")[1], 16) == port}
    assert addresses == {"0100007F"}


def test_it_is_where_it_was_after_a_restart_until_it_is_closed(queue: Queue) -> None:
    port, token = open_page(queue, "--port", free_port())
    assert open_page(queue) == (port, token)
    queue.ok("daemon", "restart")
    assert ask(port, token) == 200
    assert queue.ok("web", "--close") == "the page is closed\n"
    with socket.socket() as sock:
        assert sock.connect_ex(("127.0.0.1", port)) != 0
    queue.ok("daemon", "restart")
    with socket.socket() as sock:
        assert sock.connect_ex(("127.0.0.1", port)) != 0


def test_a_new_token_ends_older_links(queue: Queue) -> None:
    port, old = open_page(queue, "--port", free_port())
    again, new = open_page(queue, "--new-token")
    assert again == port
    assert (ask(port, old), ask(port, new)) == (401, 200)


def test_a_port_that_is_taken_is_named_and_the_page_stays_where_it_is(queue: Queue) -> None:
    port, token = open_page(queue)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        ended = queue("web", "--port", str(number))
    assert ended.code == 1
    assert f"cannot listen at 127.0.0.1:{number}" in ended.err
    assert ended.err.endswith("name another --port\n")
    assert ask(port, token) == 200


def test_what_makes_no_sense_is_refused(queue: Queue) -> None:
    assert queue("web", "--port", "70000").err == (
        "stoker: --port 70000: a port is a number from 1 to 65535\n"
    )
    assert queue("web", "--close", "--port", "1").err == "stoker: --close stands alone\n"
    assert "stoker web changes it" in queue("config", "web", "127.0.0.1:80").err
    ended = queue("web", "--host", "no.such.host.invalid")
    assert (ended.code, ended.out) == (1, "")
    assert "cannot listen at no.such.host.invalid" in ended.err
