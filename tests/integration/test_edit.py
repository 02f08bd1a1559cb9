from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Ended
    from integration.daemon_fixture import Queue


def edit(queue: Queue, script: str, job: str = "1") -> Ended:
    """Edit with a shell script as the editor; $1 is the file."""
    path = queue.work / "editor.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return queue("edit", job, env={"EDITOR": str(path)})


@pytest.fixture
def held(queue: Queue) -> Queue:
    """Return a queue with a held job."""
    queue.add("--hold", "-N", "train", "-t", "90m", "python", "a.py", "--lr", "0 1")
    return queue


def test_an_edited_setting_is_applied(held: Queue) -> None:
    ended = edit(held, "sed -i 's/^priority = 0/priority = 7/; s/^timeout = .*/timeout = none/' $1")

    assert (ended.code, ended.out) == (0, "changed job 1\n")
    job = held.show(1)
    assert (job["priority"], job["timeout_s"]) == (7, None)
    assert job["argv"] == ["python", "a.py", "--lr", "0 1"]


def test_the_edited_text_has_all_settings(held: Queue) -> None:
    edit(held, "cp $1 seen")

    lines = held.stoker.read("seen")
    assert lines[0].startswith("# Job 1, held.")
    assert lines[2:] == [
        "name = train",
        "project = none",
        "priority = 0",
        "gpus = 1",
        "gpu_mem = none",
        "cpus = none",
        "mem = none",
        "share = never",
        "node = none",
        "on = none",
        "node_label = none",
        "timeout = 1h30m",
        "retries = 0",
        "begin = none",
        "after = none",
        "after_any = none",
        "log = none",
        "",
        "--- command ---",
        "python a.py --lr '0 1'",
    ]


def test_a_command_of_several_lines_can_be_written(held: Queue) -> None:
    edit(
        held,
        "printf 'for i in 1 2; do\\n  echo $i = x\\ndone\\n' > body;"
        " sed -i '/^--- command/q' $1; cat body >> $1; sed -i 's/^gpus = 1/gpus = 0/' $1",
    )
    held.ok("release", "1")
    held.ok("wait")

    assert held.ok("log", "1") == "1 = x\n2 = x\n"


def test_an_unchanged_text_prints_unchanged(held: Queue) -> None:
    assert edit(held, "true").out == "unchanged\n"
    assert edit(held, "echo '# a remark' >> $1.x; rm $1.x").out == "unchanged\n"


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("sed -i 's/^priority = 0/priority = high/' $1", "priority=high: write a whole number"),
        ("sed -i 's/^gpus = 1/gpus = 9/' $1", "9 GPUs are more than the 2"),
        ("sed -i '1i colour = red' $1", "there is no setting 'colour'"),
        ("sed -i '1i what is this' $1", "'what is this' is not a setting"),
        ("sed -i 's/^after = none/after = 1/' $1", "that would be a circle"),
        ("exit 3", "editor.sh ended with exit 3"),
    ],
)
def test_wrong_text_is_one_clear_line_and_changes_nothing(
    held: Queue, script: str, complaint: str
) -> None:
    before = held.show(1)

    ended = edit(held, script)

    assert ended.code in (1, 2)
    assert complaint in ended.err
    assert "nothing was changed" in ended.err
    assert ended.err.count("\n") == 1
    assert held.show(1) == before


def test_the_text_of_a_running_job_has_only_settings_that_can_change(queue: Queue) -> None:
    queue.add("sleep 60")
    queue.until_running(1)
    edit(queue, "cp $1 seen; sed -i 's/^name = none/name = long/' $1")

    names = [line.split()[0] for line in queue.stoker.read("seen") if line[:1] not in ("#", "")]
    assert names == ["name", "priority", "timeout", "retries"]
    assert queue.show(1)["name"] == "long"


def test_without_an_editor_the_error_names_the_variable(held: Queue) -> None:
    ended = held("edit", "1", env={"EDITOR": os.fspath(held.work / "none")})

    assert ended.code == 1
    assert "name an editor in $EDITOR" in ended.err


def test_an_ended_job_cannot_be_edited(queue: Queue) -> None:
    queue.add("true")
    queue.ok("wait")

    assert edit(queue, "true").err == ("stoker: job 1 is done: it cannot be changed any more\n")
