import select
import socket
from collections.abc import Iterator

import pytest

from stoker.supervisor.protocol import ProtocolServer


class Talk:
    """A wire, what its client hears, and the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("stoker.supervisor.protocol.time.monotonic", lambda: self.now)
        self.poll = select.epoll()
        self.protocol = ProtocolServer(self.poll)
        mine, self.client = socket.socketpair()
        self.client.setblocking(False)
        self.protocol.attach(mine)
        self.protocol.open()

    def heard(self) -> bytes:
        try:
            return self.client.recv(4096)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        self.protocol.detach()
        self.client.close()
        self.poll.close()


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Talk]:
    found = Talk(monkeypatch)
    yield found
    found.close()


def test_a_report_waits_for_an_urgent_one(talk: Talk) -> None:
    talk.protocol.reports.append('"first"')
    talk.protocol.flush(late=False)
    assert talk.heard() == b""
    talk.protocol.reports.append('"second"')
    talk.protocol.urgent = True
    talk.protocol.flush(late=False)
    assert talk.heard() == b'"first"\n"second"\n'


def test_a_report_is_sent_when_nothing_else_happens(talk: Talk) -> None:
    talk.protocol.reports.append('"first"')
    talk.protocol.flush(late=True)
    assert talk.heard() == b'"first"\n'


def test_a_report_waits_for_a_limited_time_on_a_busy_connection(talk: Talk) -> None:
    for number in range(10):
        talk.protocol.reports.append(f'"{number}"')
        talk.protocol.flush(late=False)
        talk.now += 0.005
    heard = talk.heard()
    assert heard.startswith(b'"0"\n"1"\n')
    assert b'"8"\n' in heard


def test_each_report_waits_anew(talk: Talk) -> None:
    talk.protocol.reports.append('"first"')
    talk.protocol.flush(late=False)
    talk.now += 0.05
    talk.protocol.flush(late=False)
    assert talk.heard() == b'"first"\n'
    talk.now += 10.0
    talk.protocol.reports.append('"second"')
    talk.protocol.flush(late=False)
    assert talk.heard() == b""
