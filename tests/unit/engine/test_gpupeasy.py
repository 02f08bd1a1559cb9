from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.engine.gpupeasy import BatchJob, parse_batch


@pytest.fixture
def cwd(tmp_path: Path) -> bytes:
    return os.fsencode(tmp_path)


def test_jobs_may_span_lines_and_the_last_needs_no_end(cwd: bytes) -> None:
    text = b"one;;one.txt;;python -u a.py\n  --lr 0.1;;;\r\n two ;; sub/../two.txt ;;ls -l | wc"

    Path(os.fsdecode(cwd), "sub").mkdir()

    jobs, errors = parse_batch(text, cwd)

    assert errors == []
    assert (
        jobs
        == [
            BatchJob(b"one", cwd + b"/one.txt", b"python -u a.py   --lr 0.1"),
            BatchJob(b"two", cwd + b"/sub/../two.txt", b"ls -l | wc"),
        ]
        or errors
    )


def test_a_backslash_at_the_end_of_a_line_is_no_word_of_the_command(cwd: bytes) -> None:
    jobs, _errors = parse_batch(b"a;;a.txt;;python a.py \\\n--lr 1;;;", cwd)

    assert jobs[0].command == b"python a.py  --lr 1"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"", "no jobs were submitted"),
        (b" ;;; \n;;;", "no jobs were submitted"),
        (b"just a command;;;", "job 1: malformed"),
        (b"a;;b;;c;;d;;;", "job 1: malformed"),
        (b";;out;;ls;;;", "job 1: no job name was provided"),
        (b"a;; ;;ls;;;", "job 1: output file not specified"),
        (b"a;;out;; ;;;", "job 1: no command was provided"),
        (b"a;;taken;;ls;;;", "job 1: output file already exists: {cwd}/taken"),
        (b"a;;out;;ls;;;b;;out;;ls;;;", "job 2: output file already exists: {cwd}/out"),
        (b"a;;no/such/out;;ls;;;", "job 1: could not open output file: {cwd}/no/such/out"),
    ],
)
def test_every_error_is_named_with_its_job(cwd: bytes, text: bytes, error: str) -> None:
    Path(os.fsdecode(cwd), "taken").touch()

    _jobs, errors = parse_batch(text, cwd)

    assert len(errors) == 1
    assert errors[0].startswith(error.format(cwd=os.fsdecode(cwd)))


def test_looking_leaves_no_file(cwd: bytes) -> None:
    parse_batch(b"a;;out;;ls;;;", cwd)

    assert os.listdir(cwd) == []


def test_bytes_that_are_no_text_are_kept(cwd: bytes) -> None:
    jobs, errors = parse_batch(b"a;;caf\xe9;;echo \xff;;;", cwd)

    assert (jobs, errors) == ([BatchJob(b"a", cwd + b"/caf\xe9", b"echo \xff")], [])
