from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_the_first_add_starts_the_daemon_and_the_job_runs(idle_queue: Queue) -> None:
    assert idle_queue.ok("add", "-g", "0", "echo out; echo err >&2; pwd") == "added job 1\n"
    assert idle_queue("wait").code == 0

    job = idle_queue.show()
    assert job["state"] == "done"
    assert job["exit_code"] == 0
    assert job["user"]
    assert idle_queue.ok("log", "1") == f"out\nerr\n{idle_queue.work}\n"


def test_one_word_goes_through_a_shell_and_several_do_not(queue: Queue) -> None:
    queue.ok("add", "echo $((1 + 1)) | tr 2 3")
    queue.ok("add", "echo", "$((1 + 1))", "a  b", "|")
    queue.ok("wait")

    assert queue.ok("log", "1") == "3\n"
    assert queue.ok("log", "2") == "$((1 + 1)) a  b |\n"


def test_a_job_gets_its_gpus_its_folder_and_the_environment_of_its_add(queue: Queue) -> None:
    folder = queue.work / "sub"
    folder.mkdir()
    line = 'echo "$CUDA_VISIBLE_DEVICES|$PWD|$FLAVOUR|$STOKER_JOB_ID|$STOKER_ATTEMPT"'
    env = {"FLAVOUR": "väniljä"}

    queue("add", "-C", "sub", line, env=env)
    queue("add", "-g", "2", line, env=env)
    queue.ok("wait")

    assert re.fullmatch(rf"[01]\|{folder}\|väniljä\|1\|1\n", queue.ok("log", "1"))
    assert queue.ok("log", "2") == f"0,1|{queue.work}|väniljä|2|1\n"


def test_a_job_without_gpu_sees_none(queue: Queue) -> None:
    queue.ok("add", "-g", "0", 'echo "[$CUDA_VISIBLE_DEVICES]"')
    queue.ok("wait")

    assert queue.ok("log", "@") in ("[]\n", "[-1]\n")


def test_more_gpus_than_there_are_is_an_error_that_says_so(queue: Queue) -> None:
    ended = queue("add", "-g", "3", "true")

    assert ended.code == 2
    assert re.fullmatch(r"stoker: .*asks for 3 GPUs, and this queue has 2.*\n", ended.err)


def test_without_any_gpu_an_add_says_what_to_pass(idle_queue: Queue) -> None:
    idle_queue.stoker.box.create(0)

    ended = idle_queue("add", "true")

    assert ended.code == 1
    assert "no GPU found" in ended.err
    assert "--gpus 0,1" in ended.err
    assert "-g 0" in ended.err
    assert ended.err.count("\n") == 1


def test_higher_priorities_run_first(queue: Queue) -> None:
    queue.add("-g", "2", "while [ ! -e go ]; do sleep 0.01; done")
    for priority in (0, 5, -5, 9):
        queue.add("-g", "2", "-p", str(priority), f"echo {priority} >> order")
    (queue.work / "go").touch()
    queue.ok("wait")

    assert queue.stoker.read("order") == ["9", "5", "0", "-5"]


def test_bytes_that_are_no_text_survive(queue: Queue) -> None:
    folder = os.path.join(os.fsencode(queue.work), b"caf\xe9")
    os.mkdir(folder)

    queue.ok("add", b"-C", folder, b"-o", b"\xff.log", b"printf %s \xfe; pwd")
    queue.ok("add", b"printf", b"%s", b"\xfd")
    queue.ok("wait")

    with open(os.path.join(os.fsencode(queue.work), b"\xff.log"), "rb") as file:
        assert file.read() == b"\xfe" + folder + b"\n"
    assert queue("log", "2").stdout == b"\xfd"


def test_a_job_that_adds_another_is_no_parent_of_it(queue: Queue) -> None:
    env = {"STOKER": f"{sys.executable} -m stoker"}

    queue("add", "$STOKER add -q -g 0 'echo $STOKER_JOB_ID'", env=env)
    queue.ok("wait")
    queue.ok("wait")

    assert queue.ok("log", "2") == "2\n"


def test_output_goes_where_it_was_asked_to_go(queue: Queue) -> None:
    queue.ok(
        "add",
        "-N",
        "train",
        "--project",
        "vision",
        "-o",
        "logs/{project}/{name}/{id}.log",
        "echo x",
    )
    queue.ok("wait")

    assert queue.stoker.read("logs/vision/train/1.log") == ["x"]
    assert queue.ok("log", "train") == "x\n"
    assert queue.show()["attempts"][0]["log"] == f"{queue.work}/logs/vision/train/1.log"


def test_a_script_runs_as_it_was_when_it_was_added(queue: Queue) -> None:
    queue.add("-g", "2", "while [ ! -e go ]; do sleep 0.01; done")
    queue.stoker.file("run.sh", "for i in 1 2; do\n  echo $i\ndone\n")
    queue.add("--script", "run.sh")
    queue.stoker.file("run.sh", "echo changed\n")
    (queue.work / "go").touch()
    piped = int(
        queue.ok("add", "-q", "--script", "-", stdin="#!/bin/bash\necho ${BASH_VERSION:+bash}\n")
    )
    queue.ok("wait")

    assert queue.ok("log", "2") == "1\n2\n"
    assert queue.ok("log", str(piped)) == "bash\n"


def test_a_batch_is_one_job_a_line(queue: Queue) -> None:
    lines = "# a sweep\necho 1\n\necho \\\n  2\necho 3"

    assert queue.ok("add", "-g", "0", "--batch", "-", stdin=lines) == "added jobs 1-3\n"
    queue.stoker.file("jobs.txt", "echo 4\n")
    assert queue.ok("add", "-q", "-g", "0", "--batch", "jobs.txt") == "4\n"
    queue.ok("wait")

    assert [queue.ok("log", str(number)) for number in (1, 2, 3, 4)] == ["1\n", "2\n", "3\n", "4\n"]


def test_a_batch_may_hold_more_jobs_than_one_request(queue: Queue) -> None:
    queue.add("-g", "2", "sleep 60")

    told = queue.ok("add", "-g", "2", "--batch", "-", stdin="true\n" * 100_001)

    assert told == "added jobs 2-100002\n"
    assert queue.ls("@")[100_002]["state"] == "waiting"


def test_a_batch_with_an_impossible_option_is_refused_in_one_line(queue: Queue) -> None:
    ended = queue("add", "-p", "99999999", "--batch", "-", stdin="true\n")

    assert ended.code == 2
    assert ended.err.startswith("stoker: ")
    assert ended.err.count("\n") == 1
    assert queue.ls() == {}


def test_a_gpupeasy_batch_has_names_and_output_files(queue: Queue) -> None:
    text = "one;;one.txt;;echo 1;;;\ntwo;;two.txt;;echo\n2 | cat;;;"

    assert queue.ok("add", "--batch", "-", "--format", "gpupeasy", stdin=text) == "added jobs 1-2\n"
    queue.ok("wait")

    assert queue.stoker.read("one.txt") == ["1"]
    assert queue.stoker.read("two.txt") == ["2"]
    assert {number: job["name"] for number, job in queue.ls().items()} == {1: "one", 2: "two"}


def test_any_error_rejects_a_whole_gpupeasy_batch(queue: Queue) -> None:
    text = "one;;one.txt;;echo 1;;;\n;;two.txt;;echo 2;;;three;;no/three.txt;;echo 3;;;"

    ended = queue("add", "--batch", "-", "--format", "gpupeasy", stdin=text)

    assert ended.code == 2
    first, second = ended.err.splitlines()
    assert first == "stoker: Error in job: number 2: No job name was provided"
    assert second.startswith(
        f"stoker: Error in job: three: Could not open output file: {queue.work}/no/three.txt"
    )
    assert second.endswith("2 errors, nothing was added")
    assert queue.ls() == {}
    assert queue.stoker.read("one.txt") == []


def test_following_streams_and_ends_with_the_jobs_own_success(queue: Queue) -> None:
    good = queue("add", "--follow", "--", "sh", "-c", "for i in 1 2 3; do echo $i; done")
    bad = queue("add", "--follow", "-q", "echo bad; exit 7")

    assert (good.code, good.out) == (0, "added job 1\n1\n2\n3\n")
    assert (bad.code, bad.out, bad.err) == (1, "2\nbad\n", "stoker: job 2 failed: exit 7\n")


def test_following_goes_on_through_retries(queue: Queue) -> None:
    ended = queue(
        "add", "--follow", "-q", "--retries", "1", "echo $STOKER_ATTEMPT; test $STOKER_ATTEMPT = 2"
    )

    assert (ended.code, ended.out) == (0, "1\n1\n2\n")


def test_a_time_limit_and_retries_count_for_the_job(queue: Queue) -> None:
    queue.add("-t", "1s", "sleep 60")
    queue.add("--retries", "2", "exit 3")
    assert queue("wait", "--all").code == 1

    assert queue.show(1)["state"] == "killed"
    assert queue.show(2)["attempt"] == 3


def test_the_commit_is_on_record(queue: Queue) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", *words], cwd=queue.work, env=queue.env, check=True)
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=queue.work, env=queue.env)

    queue.add("-g", "0", "true")

    assert queue.show()["git"] == {"commit": commit.decode().strip(), "dirty": False}


def test_a_snapshot_is_what_runs_and_a_fresh_retry_is_not(queue: Queue) -> None:
    queue.add("-g", "2", "while [ ! -e go ]; do sleep 0.01; done")
    folder = queue.work / "code"
    folder.mkdir()
    queue.stoker.file("code/train.sh", "echo one $STOKER_SUBMIT_DIR\n")
    job = queue.add("-C", "code", "--snapshot", "sh train.sh; exit 1")
    queue.stoker.file("code/train.sh", "echo two\n")
    (queue.work / "go").touch()

    queue("wait", str(job))
    assert queue.ok("log", str(job)) == f"one {folder}\n"
    queue.ok("retry", str(job))
    queue("wait", str(job))
    assert queue.ok("log", str(job)) == f"one {folder}\n"
    queue.ok("retry", "--fresh", str(job))
    queue("wait", str(job))
    assert queue.ok("log", str(job)) == "two\n"


def test_a_job_of_sync_runs_what_was_there_and_its_results_are_in_its_folder_at_its_end(
    queue: Queue,
) -> None:
    queue.add("-g", "2", "while [ ! -e go ]; do sleep 0.01; done")
    folder = queue.work / "code"
    folder.mkdir()
    queue.stoker.file("code/train.sh", "mkdir -p results; cp train.sh results/seen; echo x > waste")
    job = queue.add("-C", "code", "--sync", "sh train.sh; kill -USR1 $$")
    queue.stoker.file("code/train.sh", "two")
    (queue.work / "go").touch()

    queue("wait", str(job))

    assert queue.show()["reason"] == "killed by SIGUSR1"
    assert (folder / "results" / "seen").read_text().startswith("mkdir")
    assert sorted(os.listdir(folder)) == ["results", "train.sh"]
    refused = queue("retry", "--fresh", str(job))
    assert (refused.code, "add it again instead" in refused.err) == (1, True)


def test_what_a_job_of_sync_has_made_is_kept_also_when_it_is_killed(queue: Queue) -> None:
    job = queue.add(
        "--sync", "--results", "out", "mkdir out; echo half > out/x; echo ready; sleep 1000"
    )
    queue.until(lambda: "ready" in queue("log", str(job)).out)

    queue.ok("kill", str(job))
    queue("wait", str(job))

    assert (queue.work / "out" / "x").read_text() == "half\n"


def test_a_bad_name_is_refused_in_one_line(queue: Queue) -> None:
    for name in ("a b", "a/b", "12", "@", "a\x1b[2Jb", ""):
        ended = queue("add", "-N", name, "true")

        assert ended.code == 2, name
        assert ended.err.startswith("stoker: "), name
        assert ended.err.count("\n") == 1, name
        assert "\x1b" not in ended.err
    assert queue.ls() == {}


def test_a_command_of_ten_megabytes_runs(queue: Queue) -> None:
    script = "#" * 10_000_000 + "\necho ran\n"

    queue.ok("add", "--script", "-", stdin=script)
    queue.ok("wait")

    assert queue.ok("log", "@") == "ran\n"
    assert len(json.dumps(queue.ls())) < 10_000


@pytest.mark.parametrize("how", ["missing", "folder"])
def test_a_log_that_cannot_be_written_fails_the_job_with_its_reason(queue: Queue, how: str) -> None:
    if how == "folder":
        (queue.work / "out").mkdir()
    else:
        queue.stoker.file("file", "")

    queue.add("-o", "out" if how == "folder" else "file/out", "true")
    assert queue("wait", "--all").code == 1

    job = queue.show()
    assert job["state"] == "failed"
    assert str(queue.work) in job["reason"]


def test_a_quoted_line_followed_by_further_words_is_refused_with_both_ways_out(
    queue: Queue,
) -> None:
    ended = queue("add", "sleep 0", "--lr", "0.1")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        "stoker: no program is called 'sleep 0': quote all of it or nothing:"
        " stoker add 'sleep 0 --lr 0.1', or stoker add sleep 0 --lr 0.1\n"
    )


def test_a_program_whose_name_has_a_blank_is_run(queue: Queue) -> None:
    program = queue.work / "echo two"
    program.write_text("#!/bin/sh\necho it: $1\n")
    program.chmod(0o755)

    queue.ok("add", "-g", "0", "./echo two", "word")
    queue.ok("wait", "@")

    assert queue.ok("log", "@") == "it: word\n"


def test_labels_of_nodes_are_read_and_refused_where_no_node_has_them(queue: Queue) -> None:
    ended = queue("add", "--node-label", "disk=fast", "true")

    assert ended.code == 2
    assert ended.err == "stoker: no node has the label disk=fast; no node has any\n"
