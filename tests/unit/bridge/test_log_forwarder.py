"""Log forwarders: which logs the next agent finds, whatever ended the one before."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from stoker.bridge import log_forwarder
from stoker.bridge.log_forwarder import LogForwarders, LogList, LogPiece


def begin(logs: LogForwarders, key: str, text: str = "text") -> None:
    """Begin a log and write into it."""
    Path(logs.begin(key, f"/there/{key} é", 3)).write_text(text)


def test_the_next_agent_finds_the_logs_that_have_not_ended(tmp_path: Path) -> None:
    logs = LogForwarders(str(tmp_path))
    for key in ("1.1", "2.1", "3.1"):
        begin(logs, key)
    logs.end("2.1")
    assert len(logs.more()) == 2

    again = LogForwarders(str(tmp_path))

    expected = [LogPiece(f"/there/{key} é", 3, b"text") for key in ("1.1", "3.1")]
    assert sorted(again.more()) == expected
    again.end("1.1")
    again.end("3.1")
    assert LogForwarders(str(tmp_path)).more() == []
    assert [*tmp_path.iterdir()] == []


def test_a_log_is_on_the_list_before_its_attempt_starts(tmp_path: Path) -> None:
    LogForwarders(str(tmp_path)).begin("1.1", "/there", 0)

    (piece,) = LogForwarders(str(tmp_path)).more()
    assert piece == LogPiece("/there", 0, b"")


@pytest.mark.parametrize(
    "torn", [b'["1.1","/the', b"\xff\0[", b"[]", b'[["1.1"]]', b'["4.1",7,"x"]']
)
def test_a_torn_or_foreign_line_says_nothing(tmp_path: Path, torn: bytes) -> None:
    begin(LogForwarders(str(tmp_path)), "1.1")
    with (tmp_path / "list").open("ab") as file:
        file.write(torn)
    begin(LogForwarders(str(tmp_path)), "2.1")

    assert LogList(str(tmp_path)).read().keys() == {"1.1", "2.1"}


def test_a_start_is_refused_if_the_list_cannot_be_written(tmp_path: Path) -> None:
    logs = LogForwarders(str(tmp_path))
    begin(logs, "1.1")
    size = os.path.getsize(tmp_path / "list")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, hard))
    try:
        with pytest.raises(OSError, match=r"File too large|No space left"):
            logs.begin("2.1", "/there", 0)
        with pytest.raises(OSError, match=r"File too large|No space left"):
            logs.begin("2.1", "/there", 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    begin(logs, "3.1")

    assert LogList(str(tmp_path)).read().keys() == {"1.1", "3.1"}


def test_the_list_does_not_grow_with_the_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_forwarder, "_COMPACT_BYTES", 1000)
    logs = LogForwarders(str(tmp_path))
    begin(logs, "1.1")
    for job in range(2, 200):
        begin(logs, f"{job}.1")
        logs.end(f"{job}.1")

    assert os.path.getsize(tmp_path / "list") < 1200
    assert LogList(str(tmp_path)).read().keys() == {"1.1"}
