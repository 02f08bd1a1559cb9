"""An examination never keeps the loop from its work."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from stoker.core.failure import FailureClass
from stoker.engine import failure_inspection
from stoker.engine.failure_inspection import FailureInspection, is_full, read_tail

EXIT_1 = 1 << 8
OOM = "torch.OutOfMemoryError: CUDA out of memory.\n"


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("x" * 1_000_000 + "\nlast words\n")
    tail = read_tail(str(log))
    assert tail is not None
    assert tail.endswith("\nlast words\n")
    assert len(tail) < 100_000


def test_what_a_log_held_before_is_not_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("earlier\nown\n")
    assert read_tail(str(log), len("earlier\n")) == "own\n"
    log.write_text("emptied\n")
    assert read_tail(str(log), 100) == "emptied\n"


def test_a_log_that_is_a_pipe_or_nowhere_tells_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for log in (str(tmp_path / "pipe"), str(tmp_path / "nowhere")):
        assert read_tail(log) is None
        assert FailureInspection().examine(EXIT_1, log).is_mute
        assert not FailureInspection().examine(9, log).is_mute, "somebody else ended it"
    assert FailureInspection().examine(EXIT_1, None).is_mute
    (tmp_path / "empty").touch()
    assert not FailureInspection().examine(EXIT_1, str(tmp_path / "empty")).is_mute


def test_what_hangs_is_left_out_and_is_not_waited_for_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    log.write_text(OOM)
    answers = threading.Event()
    reads = []

    def hang(path: str, _since: int) -> str:
        reads.append(path)
        answers.wait()
        return OOM

    monkeypatch.setattr(failure_inspection, "read_tail", hang)
    monkeypatch.setattr(failure_inspection, "_TIMEOUT_S", 0.01)
    examiner = FailureInspection()
    assert examiner.examine(EXIT_1, str(log)).reason == "exit 1"
    assert examiner.examine(EXIT_1, str(log)).reason == "exit 1"
    assert len(reads) == 1

    answers.set()
    hanging = [each for each in threading.enumerate() if each.name == "inspection"]
    for thread in hanging:
        thread.join()
    monkeypatch.setattr(failure_inspection, "_TIMEOUT_S", 60.0)
    assert examiner.examine(EXIT_1, str(log)).kind is FailureClass.GPU_OOM


def test_a_kill_is_the_kernel_s_if_it_has_killed_since(monkeypatch: pytest.MonkeyPatch) -> None:
    kills = [3]
    monkeypatch.setattr(failure_inspection, "count_oom_kills", lambda: kills[0])
    examiner = FailureInspection()
    assert examiner.examine(9, None).kind is FailureClass.ERROR
    kills[0] = 4
    assert examiner.examine(9, None).kind is FailureClass.HOST_OOM
    assert examiner.examine(137 << 8, None).kind is FailureClass.ERROR


def test_this_kernel_tells_how_often_it_has_killed() -> None:
    assert failure_inspection.count_oom_kills() >= 0


def test_a_disk_with_space_is_not_full(tmp_path: Path) -> None:
    assert not is_full(str(tmp_path))
    assert not is_full("/nowhere at all")
