from __future__ import annotations

import contextlib
import fcntl
import os
import re
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.supervisor.journal import (
    Ending,
    Journal,
    Loss,
    Record,
    Refusal,
    journal_path,
    read_journal,
    read_journals,
)

BOOT_ID = "0f2dd1a4-5f0e-4a3a-9d4b-1c2d3e4f5a6b"
BOOT = f"boot {BOOT_ID} 77 .\n"
STORY = (
    BOOT,
    "spawn 1.1 .\n",
    "start 1.1 4242 99887766 99887767 1700000000000000 .\n",
    "spawn 12.3 .\n",
    "end 1.1 256 1700000000250000 750000 2048 .\n",
    "start 12.3 4243 99887799 99887799 1700000001000000 .\n",
    "spawn 2.1 .\n",
    "end 12.3 0 1700000001500000 2250000 4096 .\n",
)
ENDING = Ending(256, 1700000000250000, 750000, 2048)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "journal")


@contextlib.contextmanager
def journal_at(path: str) -> Iterator[Journal]:
    journal = Journal()
    journal.open(path)
    try:
        yield journal
    finally:
        os.close(journal._fd)


@contextlib.contextmanager
def room_for(path: str, count: int) -> Iterator[None]:
    """Let a file grow by so many bytes and no more: the last write is cut short, then refused."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def told(path: str, text: str) -> dict[str, Record]:
    Path(path).write_text(text)
    return read_journal(path)


def test_what_was_written_is_read_back(path: str) -> None:
    with journal_at(path) as journal:
        journal.note(BOOT)
        journal.intend("spawn 1.1 .\n")
        journal.note("start 1.1 4242 99887766 99887767 1700000000000000 .\n")
        journal.intend("spawn 2.1 .\n")
        journal.note("end 1.1 256 1700000000250000 750000 2048 .\n")
        journal.flush()

    assert read_journal(path) == {
        "1.1": Record(4242, 99887766, ENDING, 99887767, 1700000000000000, boot=BOOT_ID),
        "2.1": Record(None, None, None, boot=BOOT_ID),
    }


def test_a_missing_journal_has_no_records(path: str) -> None:
    assert read_journal(path) == {}


def test_only_the_owner_can_read_a_journal(path: str) -> None:
    with journal_at(path):
        assert os.stat(path).st_mode & 0o777 == 0o600


def test_a_note_is_kept_until_the_next_intent_or_flush(path: str) -> None:
    with journal_at(path) as journal:
        journal.note("start 1.1 1 1 1 1 .\n")
        assert os.path.getsize(path) == 0
        journal.intend("spawn 2.1 .\n")
        assert Path(path).read_text() == "start 1.1 1 1 1 1 .\nspawn 2.1 .\n"


def test_a_reopened_journal_appends(path: str) -> None:
    for key in ("1.1", "1.2"):
        with journal_at(path) as journal:
            journal.intend(f"spawn {key} .\n")

    assert set(read_journal(path)) == {"1.1", "1.2"}


def test_a_reader_waits_for_the_writer(path: str) -> None:
    with journal_at(path), open(path, "rb") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_an_end_whose_start_was_not_written_counts(path: str) -> None:
    assert told(path, "end 1.1 256 1700000000250000 750000 2048 .\n") == {
        "1.1": Record(None, None, ENDING)
    }


def tellable(path: str, cut: int) -> list[dict[str, Record]]:
    """What a journal cut there may tell: its whole lines, and one that lacks but its newline."""
    text = "".join(STORY)
    whole = text[: text.rfind("\n", 0, cut) + 1]
    return [told(path, whole), told(path, text[: cut + 1] if text[cut] == "\n" else whole)]


def test_a_journal_torn_anywhere_keeps_its_whole_lines_and_invents_nothing(path: str) -> None:
    text = "".join(STORY)
    for cut in range(len(text)):
        allowed = tellable(path, cut)
        assert told(path, text[:cut]) in allowed, text[:cut]


def test_a_torn_journal_that_is_appended_to_keeps_both_parts(
    path: str,
) -> None:
    """A supervisor died in the middle of a line; the next one appends to the same file."""
    text = "".join(STORY)
    later = {
        "30.1": Record(5, 6, None, 7, 8, boot=BOOT_ID),
        "31.1": Record(None, None, ENDING, boot=BOOT_ID),
    }
    for cut in range(len(text)):
        allowed = [records | later for records in tellable(path, cut)]
        Path(path).write_text(text[:cut])
        with journal_at(path) as journal:
            journal.note(BOOT)
            journal.intend("spawn 30.1 .\n")
            journal.note("start 30.1 5 6 7 8 .\n")
            journal.intend("spawn 31.1 .\n")
            journal.note("end 31.1 256 1700000000250000 750000 2048 .\n")
            journal.flush()
        assert read_journal(path) in allowed, text[:cut]


@settings(deadline=None, derandomize=True)
@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from(["spawn", "start", "end", "1.1", ".", "7", "x"]))
)
def test_any_content_can_be_read(
    tmp_path_factory: pytest.TempPathFactory, content: bytes | list[str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "strange-journal"
    path.write_bytes(content if isinstance(content, bytes) else " ".join(content).encode())

    assert all(key and not key.isspace() for key in read_journal(str(path)))


@pytest.mark.parametrize("length", range(len("spawn 1.1 .\n")))
def test_an_intent_on_a_full_disk_fails_and_leaves_no_line(path: str, length: int) -> None:
    with journal_at(path) as journal:
        with room_for(path, length), pytest.raises(OSError, match="No space left"):
            journal.intend("spawn 1.1 .\n")
        during = Path(path).read_text()
        journal.intend("spawn 2.1 .\n")
        journal.note("start 2.1 5 6 7 8 .\n")
        journal.flush()

    assert read_journal(path) == {"2.1": Record(5, 6, None, 7, 8)}
    assert len(during) == length


def test_notes_on_a_full_disk_are_kept_whole_until_there_is_space(path: str) -> None:
    notes = "end 1.1 256 1700000000250000 750000 2048 .\nstart 3.1 5 6 7 8 .\n"
    everything = notes + "spawn 2.1 .\n"
    for length in range(len(everything)):
        Path(path).unlink(missing_ok=True)
        with journal_at(path) as journal:
            journal.note(notes)
            with room_for(path, length):
                with pytest.raises(OSError, match="No space left"):
                    journal.intend("spawn 2.1 .\n")
                journal.flush()
                with pytest.raises(OSError, match="No space left"):
                    journal.intend("spawn 4.1 .\n")
            journal.flush()
        assert read_journal(path) == {
            "1.1": Record(None, None, ENDING),
            "3.1": Record(5, 6, None, 7, 8),
        }


def test_a_device_without_any_space_refuses_every_intent() -> None:
    with journal_at("/dev/full") as journal:
        journal.note(BOOT)
        journal.flush()
        with pytest.raises(OSError, match="No space left"):
            journal.intend("spawn 1.1 .\n")


def test_an_end_in_one_journal_outweighs_an_intent_in_another(tmp_path: Path) -> None:
    base = str(tmp_path / "journal")
    with open(base, "w", encoding="ascii") as first:
        first.write(
            "boot b one .\nspawn 1.1 .\nstart 1.1 7 8 9 10 .\nend 1.1 0 1 2 3 .\nspawn 9.1 .\n"
        )
    with open(journal_path(base, 1), "w", encoding="ascii") as second:
        second.write("boot b two .\nspawn 1.1 .\n")

    contents = read_journals(base, {"1.1"})

    assert contents.names == {"one", "two"}
    assert contents.records == {"1.1": Record(7, 8, Ending(0, 1, 2, 3), 9, 10, boot="b")}


FULL = {
    "1.1": Record(4242, 99887766, ENDING, 99887767, 1700000000000000, boot=BOOT_ID),
    "2.1": Record(outcome=Refusal(2, "No such file or directory: /a b/\u00fc\t."), boot=BOOT_ID),
    "3.1": Record(5, 6, Loss("unknown. It is so ."), 7, 8, boot=BOOT_ID),
    "4.1": Record(5, 6, None, 7, 8, boot=BOOT_ID),
    "5.1": Record(boot=BOOT_ID),
}


def test_the_lines_of_a_record_are_read_as_the_same_record(path: str) -> None:
    assert told(path, BOOT + "".join(record.lines(key) for key, record in FULL.items())) == FULL
    kinds = [Ending, Refusal, Loss, type(None), type(None)]
    assert [type(record.outcome) for record in FULL.values()] == kinds


def test_acknowledged_attempts_have_no_record(path: str) -> None:
    text = BOOT + "".join(record.lines(key) for key, record in FULL.items())
    assert told(path, text + "ack 1.1 .\nack 2.1 .\nack 9.9 .\nack 3.1") == {
        key: record for key, record in FULL.items() if key not in ("1.1", "2.1")
    }


def test_records_have_the_boot_of_their_attempt(path: str) -> None:
    text = "boot earlier 77 .\nspawn 1.1 .\n" + BOOT + "spawn 2.1 .\nend 1.1 0 1 2 3 .\n"

    records = told(path, text)
    assert (records["1.1"].boot, records["2.1"].boot) == ("earlier", BOOT_ID)


class TestRewriting:
    def test_a_rewritten_journal_has_the_new_lines_and_accepts_more(self, path: str) -> None:
        with journal_at(path) as journal:
            journal.intend("spawn 1.1 .\n")
            journal.note("end 1.1 0 1 2 3 .\n")
            journal.rewrite("spawn 2.1 .\n")
            assert journal.is_written
            assert journal.size == os.path.getsize(path)
            journal.intend("spawn 3.1 .\n")
            assert journal.size == os.path.getsize(path)

        assert set(read_journal(path)) == {"2.1", "3.1"}
        assert os.listdir(os.path.dirname(path)) == ["journal"]

    def test_a_journal_stays_locked_while_it_is_rewritten(self, path: str) -> None:
        with journal_at(path) as journal, open(path, "rb") as early:
            journal.rewrite("spawn 2.1 .\n")
            fcntl.flock(
                early, fcntl.LOCK_SH | fcntl.LOCK_NB
            )  # of the old file, which is nobody's now
            with open(path, "rb") as late, pytest.raises(BlockingIOError):
                fcntl.flock(late, fcntl.LOCK_SH | fcntl.LOCK_NB)
            with pytest.raises(BlockingIOError):
                Journal().claim(path)

    def test_a_reader_that_waited_for_the_old_journal_reads_the_new_one(self, path: str) -> None:
        read: list[dict[str, Record]] = []
        with journal_at(path) as journal:
            journal.intend("spawn 1.1 .\n")
            reader = threading.Thread(target=lambda: read.append(read_journal(path)))
            reader.start()
            inode = os.stat(path).st_ino
            until_waited_for(inode)
            journal.rewrite("spawn 2.1 .\n")
            until_waited_for(os.stat(path).st_ino)
            assert read == []
            journal.intend("spawn 3.1 .\n")
        reader.join()

        assert set(read[0]) == {"2.1", "3.1"}

    def test_a_rewrite_on_a_full_disk_keeps_the_old_journal(self, path: str) -> None:
        with journal_at(path) as journal:
            journal.intend("spawn 1.1 .\n")
            with room_for(path, 10), pytest.raises(OSError, match="File too large"):
                journal.rewrite("spawn 2.1 .\n" * 10)
            journal.intend("spawn 3.1 .\n")

        assert set(read_journal(path)) == {"1.1", "3.1"}
        assert os.listdir(os.path.dirname(path)) == ["journal"]

    def test_a_half_written_new_journal_of_a_killed_process_is_replaced(self, path: str) -> None:
        Path(f"{path}.new").write_text("spawn 9.9 .\n")
        with journal_at(path) as journal:
            journal.rewrite("spawn 2.1 .\n")

        assert set(read_journal(path)) == {"2.1"}

    def test_claim_returns_the_records_and_appends(self, path: str) -> None:
        Path(path).write_text(BOOT + "spawn 1.1 .\nend 2.1 0 1")
        journal = Journal()
        contents = journal.claim(path)
        journal.intend("spawn 3.1 .\n")
        os.close(journal._fd)

        assert (set(contents.records), contents.names) == ({"1.1"}, {"77"})
        assert set(read_journal(path)) == {"1.1", "3.1"}


def until_waited_for(inode: int) -> None:
    """Wait until somebody waits for the lock of a file."""
    while not re.search(rf"-> FLOCK .*:{inode} ", Path("/proc/locks").read_text()):
        time.sleep(0.001)


def test_the_exit_of_a_first_process_is_not_the_end_of_its_attempt(path: str) -> None:
    figures = "256 1700000000250000 750000 2048"
    Path(path).write_text(f"{BOOT}spawn 1.1 .\nexit 1.1 {figures} .\n")
    record = read_journal(path)["1.1"]

    assert record.outcome is None
    assert record.exit == record.last_known == ENDING
    assert f"exit 1.1 {figures} ." in record.lines("1.1")


def test_what_was_left_of_an_attempt_is_read_back(path: str) -> None:
    ending = ENDING._replace(leftovers=("python", 'a "b" ?'), stuck=(7, 8))
    Path(path).write_text(BOOT + Record(outcome=ending, exit=ENDING).lines("1.1"))

    assert read_journal(path)["1.1"].outcome == ending


def test_the_reported_memory_of_an_attempt_is_read_back(path: str) -> None:
    record = Record(1, 2, ENDING._replace(gpu_peak_bytes=3 << 30, stuck=(7,)), 3, 4, boot=BOOT_ID)
    assert told(path, BOOT + record.lines("1.1"))["1.1"] == record


def test_the_ram_that_an_attempt_may_use_is_read_back(path: str) -> None:
    record = Record(1, 2, None, 3, 4, boot=BOOT_ID, mem_bytes=1 << 30)
    assert told(path, BOOT + record.lines("1.1"))["1.1"] == record


@pytest.mark.parametrize(("status", "over"), [(9, 2 << 30), (0, 0), (256, 0)])
def test_an_attempt_that_was_killed_for_its_ram_ended_for_that_unless_it_ended_first(
    path: str, status: int, over: int
) -> None:
    record = Record(mem_bytes=1 << 30, over_mem_bytes=2 << 30)
    lines = record.lines("1.1") + f"end 1.1 {status} 1700000000250000 0 0 .\n"
    outcome = told(path, BOOT + lines)["1.1"].outcome

    assert isinstance(outcome, Ending)
    assert outcome.over_mem_bytes == over


def test_an_end_with_a_torn_list_of_leftovers_counts(path: str) -> None:
    ending = ENDING._replace(leftovers=("python",))
    lines = Record(outcome=ending).lines("1.1")
    Path(path).write_text(BOOT + lines[: lines.index("left") + 8])

    assert read_journal(path)["1.1"].outcome == ENDING
