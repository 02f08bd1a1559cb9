from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Stoker


def test_output_passes_through_byte_for_byte(stoker: Stoker) -> None:
    lines = "printf 'a\\000\\377\\033[2J'\necho err >&2\nprintf 'no end'\n"

    ended = stoker.run("--gpus", "0", lines=lines)

    assert ended.stdout == b"a\0\xff\x1b[2Jno end"
    assert ended.stderr.startswith(b"err\n")


def test_output_is_seen_while_the_job_runs(stoker: Stoker) -> None:
    process = stoker.start("run", "--gpus", "0")
    assert process.stdin is not None
    assert process.stdout is not None

    process.stdin.write(b"echo now; until [ -e go ]; do sleep 0.01; done\n")
    process.stdin.flush()

    assert process.stdout.readline() == b"now\n"
    stoker.file("go", "")
    assert stoker.end(process).code == 0


def test_logs_gets_a_file_for_each_job(stoker: Stoker) -> None:
    ended = stoker.run(
        "--gpus",
        "0",
        "--logs",
        "a/b",
        "--retries",
        "1",
        lines="echo 1; echo e >&2\nprintf x; false\n",
    )

    logs = {path.name: path.read_bytes() for path in (stoker.work / "a" / "b").iterdir()}
    assert logs == {"1.log": b"1\ne\n", "2.log": b"x", "2.2.log": b"x"}
    assert (ended.code, ended.out) == (1, "")


def test_tags_stand_before_whole_lines(stoker: Stoker) -> None:
    lines = "echo a; echo b >&2; printf c\ntrue\nprintf '\\nd\\r\\n'; printf 'e\\377'\n"

    ended = stoker.run("--gpus", "0", "--tag", lines=lines)

    assert ended.code == 0
    assert sorted(ended.stdout.split(b"\n")) == sorted(
        [b"[1] a", b"[1] b", b"[1] c", b"[3] ", b"[3] d\r", b"[3] e\xff", b""]
    )


def test_tagged_lines_of_jobs_that_run_at_once_are_never_mixed(stoker: Stoker) -> None:
    job = "i=0; while [ $i -lt 200 ]; do printf {0}; printf {0}; echo {0}; i=$((i+1)); done\n"

    ended = stoker.run("--gpus", "0-3", "--tag", lines="".join(job.format(c * 50) for c in "abcd"))

    written = ended.out.splitlines()
    assert len(written) == 800
    assert set(written) == {f"[{i + 1}] {c * 150}" for i, c in enumerate("abcd")}


def test_a_tagged_line_is_seen_while_the_job_runs(stoker: Stoker) -> None:
    process = stoker.start("run", "--gpus", "0", "--tag")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"echo now; printf half; until [ -e go ]; do sleep 0.01; done\n")
    process.stdin.flush()

    assert process.stdout.readline() == b"[1] now\n"
    stoker.file("go", "")
    assert stoker.end(process).out == "[1] half\n"


def test_a_lot_of_tagged_output_is_passed_on_whole(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0", "--tag", lines="seq 100000\nhead -c 3000000 /dev/zero\n")

    assert ended.code == 0
    numbers = re.findall(rb"^\[1\] (\d+)$", ended.stdout, re.MULTILINE)
    assert [int(number) for number in numbers] == list(range(1, 100001))
    assert ended.stdout.count(b"\0") == 3000000


def test_tags_on_leftovers_reach_the_output_too(stoker: Stoker) -> None:
    lines = "(trap '' TERM; sleep 0.3; echo late) & echo early\n"

    ended = stoker.run("--gpus", "0", "--tag", lines=lines)

    assert ended.out.splitlines() == ["[1] early", "[1] late"]


@pytest.fixture
def events(stoker: Stoker) -> list[dict[str, Any]]:
    lines = "echo a\nfalse\n[ $STOKER_ATTEMPT = 2 ]\nkill -9 $$\nno-such-command-here\n"
    ended = stoker.run("--gpus", "0,2+3", "--json", "--retries", "1", lines=lines)
    assert ended.code == 1
    return [json.loads(line) for line in ended.out.splitlines()]


def test_json_has_a_start_and_an_end_for_every_attempt(events: list[dict[str, Any]]) -> None:
    keys = {
        kind: sorted((e["job"], e["attempt"]) for e in events if e["event"] == kind)
        for kind in ("start", "end")
    }

    assert keys["start"] == keys["end"]
    # A command that does not exist is not tried again.
    assert keys["end"] == [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (4, 2), (5, 1)]
    assert [event["event"] for event in events][-1] == "summary"


def test_json_starts_tell_what_runs_where(events: list[dict[str, Any]]) -> None:
    first = next(e for e in events if e["event"] == "start" and e["job"] == 1)

    assert first["command"] == "echo a"
    assert first["gpus"] in (["0"], ["2", "3"])
    assert first["pid"] > 1
    assert first["at"] > 1e9
    with open(first["log"], encoding="utf-8") as log:
        assert log.read() == "a\n"


def test_json_ends_tell_how_it_went(events: list[dict[str, Any]]) -> None:
    ends = {(e["job"], e["attempt"]): e for e in events if e["event"] == "end"}

    told = {key: (e["state"], e["exit_code"], e["retried"], e["reason"]) for key, e in ends.items()}
    assert told[1, 1] == ("done", 0, False, None)
    assert told[2, 1] == ("failed", 1, True, "exit 1")
    assert told[2, 2] == ("failed", 1, False, "exit 1")
    assert told[3, 2] == ("done", 0, False, None)
    assert told[4, 2] == ("failed", None, False, "killed by SIGKILL")
    reason = "exit 127: command not found: no-such-command-here"
    assert told[5, 1] == ("failed", 127, False, reason)
    assert all(e["cpu_s"] >= 0 and e["max_rss_kb"] > 0 and e["at"] > 1e9 for e in ends.values())


def test_json_sums_up(events: list[dict[str, Any]]) -> None:
    summary = events[-1]

    assert summary.pop("seconds") > 0
    assert summary == {
        "event": "summary",
        "done": 2,
        "failed": 3,
        "killed": 0,
        "lost": 0,
        "pruned": 0,
        "already_done": 0,
        "complete": True,
    }


def test_json_stays_valid_for_commands_that_are_no_text(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0", "--json", lines=b': \xff "quoted" \x1b[2J \\\\\n')

    start = json.loads(ended.stdout.splitlines()[0])
    assert start["command"] == ': \\xff "quoted" \x1b[2J \\\\'
    assert ended.stderr == b""


def test_every_job_that_starts_is_told_as_started_before_it_is_told_as_ended(
    stoker: Stoker,
) -> None:
    ended = stoker.run("--gpus", "0,1", "--json", lines="true\n" * 200)

    seen: dict[int, list[str]] = {}
    for line in ended.out.splitlines()[:-1]:
        event = json.loads(line)
        seen.setdefault(event["job"], []).append(event["event"])
    assert len(seen) == 200
    assert set(map(tuple, seen.values())) == {("start", "end")}
