from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker.engine.gpupeasy_batch import BatchJob, is_batch, parse_batch


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
        (b"", "No jobs were submitted (or incorrect syntax)"),
        (b" ;;; \n;;;", "No jobs were submitted (or incorrect syntax)"),
        (b"just a command;;;", "Malformed job: just a command"),
        (b"a;;b;;c;;d;;;", "Malformed job: a;;b;;c;;d"),
        (b";;out;;ls;;;", "Error in job: number 1: No job name was provided"),
        (b"a;; ;;ls;;;", "Error in job: a: Output file not specified"),
        (b"a;;out;; ;;;", "Error in job: a: No jobs were submitted"),
        (
            b"a;;taken;;ls;;;",
            "Error in job: a: Output file already exists or common to multiple jobs: {cwd}/taken",
        ),
        (
            b"a;;out;;ls;;;b;;out;;ls;;;",
            "Error in job: b: Output file already exists or common to multiple jobs: {cwd}/out",
        ),
        (
            b"a;;no/such/out;;ls;;;",
            "Error in job: a: Could not open output file: {cwd}/no/such/out",
        ),
    ],
)
def test_every_error_is_named_with_its_job(cwd: bytes, text: bytes, error: str) -> None:
    Path(os.fsdecode(cwd), "taken").touch()

    _jobs, errors = parse_batch(text, cwd)

    assert len(errors) == 1
    assert errors[0].startswith(error.format(cwd=os.fsdecode(cwd)))


def test_a_long_malformed_job_is_cut_in_its_message(cwd: bytes) -> None:
    _jobs, errors = parse_batch(b"x" * 10_000 + b";;;", cwd)

    assert errors[0].startswith(f"Malformed job: {'x' * 200}… ")
    assert len(errors[0]) < 300


def test_looking_leaves_no_file(cwd: bytes) -> None:
    parse_batch(b"a;;out;;ls;;;", cwd)

    assert os.listdir(cwd) == []


def test_bytes_that_are_no_text_are_kept(cwd: bytes) -> None:
    jobs, errors = parse_batch(b"a;;caf\xe9;;echo \xff;;;", cwd)

    assert (jobs, errors) == ([BatchJob(b"a", cwd + b"/caf\xe9", b"echo \xff")], [])


@pytest.mark.parametrize(
    "text",
    [
        b"a;;a.txt;;ls;;;",
        b"a;;a.txt;;ls;;; b;;b.txt;;ls",
        b"a;;a.txt;;\nls\n;;;\n",
        b"just a command;;;",
        b"a;;a.txt;;;\r\nb",
    ],
)
def test_a_batch_is_known_by_its_semicolons(text: bytes) -> None:
    assert is_batch(text)


@pytest.mark.parametrize(
    "text",
    [
        b"ls\nls; ls\n",
        b"python a.py --separator ';;;' b\n",
        b"case $x in 1) ls;; esac\n",
        b"# NAME;;OUTFILE;;COMMAND;;;\nls\n",
        b"",
    ],
)
def test_lines_for_the_shell_are_no_batch(text: bytes) -> None:
    assert not is_batch(text)
