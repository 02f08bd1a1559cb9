"""`stoker web`: opens the page for whoever has the link, and closes it."""

from __future__ import annotations

import os
import pwd
import re
import socket
import stat
from typing import TYPE_CHECKING, Any

from integration.daemon_fixture import free_port
from page_client import PageClient, ask, ask_by
from stoker.web.port import default_port

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

HERE = socket.gethostname()
LINK = re.compile(r"^http://127\.0\.0\.1:(\d+)/#token=(\S{43,})\n$")


def is_listening(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def reveal(tab: PageClient, welcome: Any, label: str = "handover") -> str:
    """A secret that a daemon has told a tab; to hide twice is to show."""
    assert tab.session is not None
    hidden = bytes.fromhex(welcome[label])
    pad = bytes.fromhex(tab.session.hide(label, "\0" * len(hidden)))
    return bytes(a ^ b for a, b in zip(hidden, pad, strict=True)).decode()


def open_page(queue: Queue, *words: str) -> tuple[int, str]:
    """The port and the token of the link that is printed."""
    found = LINK.match(queue.ok("web", *words))
    assert found is not None
    return int(found[1]), found[2]


def test_the_link_has_the_token_and_the_way_from_elsewhere_is_told(queue: Queue) -> None:
    ended = queue("web")
    found = LINK.match(ended.out)
    assert found is not None
    port, token = int(found[1]), found[2]
    assert ended.err.splitlines()[:2] == [
        f"From another computer, run there first: ssh -L {port}:127.0.0.1:{port} {HERE}",
        f"Where others log in too, rather: ssh -L {port}:{queue.home}/web.sock {HERE}",
    ]
    assert ask_by(port, token) == 200
    assert ask_by(port, "x" * 43) == 401
    assert ask(port, headers={"authorization": f"Bearer {token}"}) == 401
    assert ask(port, headers={"host": "evil.example"}) == 403
    assert ask(port, "/") == 200
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
    assert ask(port, "/") == 200
    assert queue.ok("web", "--close") == "the page is closed\n"
    assert not is_listening(port)
    assert not (queue.home / "token").exists()
    queue.ok("daemon", "restart")
    assert not is_listening(port)


def test_each_start_of_the_daemon_ends_the_links_of_before(queue: Queue) -> None:
    port, old = open_page(queue, "--port", free_port())
    for restart in (lambda: queue.ok("daemon", "restart"), queue.kill_daemon):
        restart()
        again, new = open_page(queue)
        assert (again, ask_by(port, old), ask_by(port, new)) == (port, 401, 200)
        old = new


def test_a_new_token_ends_older_links_and_sessions(queue: Queue) -> None:
    port, old = open_page(queue, "--port", free_port())
    with PageClient(port) as tab:
        handover = reveal(tab, tab.sign_in(old))
        again, new = open_page(queue, "--new-token")
        assert again == port
        assert tab.ask("/v1/status") == 401
    assert (ask_by(port, old), ask_by(port, new)) == (401, 200)
    with PageClient(port) as tab:
        assert tab.sign_in(handover, "handover") is None


def test_an_open_tab_gets_the_new_token_after_a_restart_once(queue: Queue) -> None:
    port, token = open_page(queue, "--port", free_port())
    with PageClient(port) as tab:
        handover = reveal(tab, tab.sign_in(token))
    queue.ok("daemon", "restart")
    with PageClient(port) as tab:
        welcome = tab.sign_in(handover, "handover")
        assert tab.is_proven
        assert reveal(tab, welcome, "token") == open_page(queue)[1] != token
        assert tab.ask("/v1/status") == 200
    queue.ok("daemon", "restart")
    with PageClient(port) as tab:
        assert tab.sign_in(handover, "handover") is None


def test_the_page_moves_to_another_address_or_port(queue: Queue) -> None:
    port, first = open_page(queue, "--port", free_port())
    ended = queue("web", "--host", "0.0.0.0")
    found = re.match(r"http://\S+:(\d+)/#token=(\S+)\n", ended.out)
    assert ended.code == 0, ended.err
    assert found is not None
    assert int(found[1]) == port
    assert (ask_by(port, first), ask_by(port, found[2])) == (401, 200)
    other = free_port()
    assert queue.ok("web", "--port", other, "--host", "127.0.0.1").split(":")[2].startswith(other)
    assert not is_listening(port)
    assert open_page(queue)[0] == int(other)


def test_a_page_opened_by_a_name_is_linked_by_its_address(queue: Queue) -> None:
    name = socket.gethostname()
    link = queue.ok("web", "--host", name, "--port", free_port()).split()[0]

    assert link.startswith(f"http://{socket.gethostbyname(name)}:")


def test_without_a_port_only_the_unix_socket_leads_to_the_page(queue: Queue) -> None:
    port, _token = open_page(queue, "--port", free_port())
    ended = queue("web", "--host", "none")
    found = LINK.match(ended.out)
    assert found is not None
    path = f"{queue.home}/web.sock"
    assert ended.err.startswith(f"First run on your own computer: ssh -L {port}:{path} {HERE}\n")
    assert not is_listening(port)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert ask_by(9000, found[2], path=path, host="localhost") == 200
    queue.ok("daemon", "restart")
    assert ask(0, "/", path=path) == 200
    queue.ok("web", "--close")
    assert not os.path.exists(path)


def test_over_the_unix_socket_too_names_and_signatures_are_checked(queue: Queue) -> None:
    _port, token = open_page(queue, "--port", free_port())
    path = f"{queue.home}/web.sock"
    with PageClient(9000, path=path, host="localhost") as tab:
        assert tab.sign_in(token) is not None
        assert tab.ask("/v1/status", host="localhost:9000") == 200
        assert tab.ask("/v1/status", host="evil.example") == 403
        assert tab.ask("/v1/status", host="localhost:9000", origin="http://localhost:1") == 403
    assert ask(0, path=path) == 401


def test_a_port_that_is_taken_is_named_and_the_page_stays_where_it_is(queue: Queue) -> None:
    port, token = open_page(queue)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        ended = queue("web", "--port", str(number))
    user = pwd.getpwuid(os.getuid()).pw_name
    assert ended.code == 1
    assert ended.err == (
        f"stoker: cannot listen at 127.0.0.1:{number}: a process of user {user} listens there"
        " already; name another --port\n"
    )
    assert ask_by(port, token) == 200


def test_an_address_that_is_not_ours_leaves_the_page_where_it_was(queue: Queue) -> None:
    port, _token = open_page(queue, "--port", free_port())
    assert queue("web", "--host", "192.0.2.1").code == 1
    again, token = open_page(queue)
    assert (again, ask_by(port, token)) == (port, 200)


def test_each_user_has_a_port_of_their_own() -> None:
    assert default_port(1000) == 21000
    assert default_port(1001) == 21001
    assert default_port(165_534) == 25534
    assert default_port() == 20000 + os.getuid() % 10000


def test_what_makes_no_sense_is_refused(queue: Queue) -> None:
    assert queue("web", "--port", "70000").err == (
        "stoker: --port 70000: a port is a number from 1 to 65535\n"
    )
    assert queue("web", "--close", "--port", "1").err == "stoker: --close takes no other option\n"
    assert "stoker web changes it" in queue("config", "web", "127.0.0.1:80").err
    ended = queue("web", "--host", "no.such.host.invalid")
    assert (ended.code, ended.out) == (1, "")
    assert "cannot find the address of no.such.host.invalid" in ended.err
