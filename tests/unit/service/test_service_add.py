from __future__ import annotations

import asyncio
import base64
import os
from typing import Any

import pytest

from stoker.core.lifecycle import State
from stoker.engine.launch_spec import read_environment
from stoker.errors import StokerError, UsageError
from stoker.service import add as service
from stoker.service.add import MAX_COMMAND_BYTES, add
from stoker.store.database import Database
from stoker.wire import Base64, Git, NewJob
from unit.engine.engine_harness import Harness, MakeHarness

MANY = [f"job {number}" for number in range(2400)]


def b64(data: bytes) -> Base64:
    return Base64(base64.b64encode(data).decode())


def refusal(harness: Harness, *commands: Any, **common: Any) -> str:
    with pytest.raises(StokerError) as caught:
        harness.add(*(commands or ("a",)), **common)
    assert harness.states() == {}
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def commands(harness: Harness) -> list[tuple[int, bytes]]:
    return harness.database.execute("SELECT id, command FROM job ORDER BY id").fetchall()


def test_what_is_acknowledged_is_committed_and_synced(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def look(_fd: int) -> None:
        other = Database(harness.database.path)
        seen.append(other.execute("SELECT count(*) FROM job").fetchone()[0])
        other.close()

    monkeypatch.setattr("stoker.store.database.os.fdatasync", look)
    harness.run(add(harness.context, harness.submission("a", "b")))

    assert seen == [2]


def test_everything_that_was_captured_is_kept(harness: Harness) -> None:
    harness.add(
        NewJob(command="python train.py", name="one"),
        env={"A": "1", "ü": "ö"},
        env_b64=base64.b64encode(b"RAW=\xff\0").decode(),
        project="vision",
        gpus=2,
        priority=5,
        timeout_s=60.5,
        retries=3,
        git=Git(commit="abc", dirty=True),
        snapshot="0123/sub",
        user="ada",
        shell="/bin/bash",
        linger=True,
    )

    facts = harness.jobs.facts(1)
    request = facts.request
    assert (facts.name, request.project, request.slots, request.priority) == ("one", "vision", 2, 5)
    assert (request.timeout_s, request.retries, facts.form) == (60.5, 3, None)
    common = harness.jobs.surroundings(facts.submission)
    assert (common.cwd, common.shell, common.snapshot, common.linger) == (
        os.fsencode(harness.home),
        "/bin/bash",
        "0123/sub",
        True,
    )
    assert read_environment(harness.jobs.environment(common.environment)) == {
        "A": "1",
        "ü": "ö",
        "RAW": "\udcff",
    }
    row = harness.database.execute("SELECT git_commit, git_dirty, user, host FROM submission")
    assert row.fetchone() == ("abc", 1, "ada", os.uname().nodename)


def test_a_line_an_argv_and_a_script_are_told_apart_and_bytes_survive(harness: Harness) -> None:
    harness.add(
        "a && b",
        ["echo", "a b", b64(b"\xff\xfe")],
        b64(b"echo \xff"),
        NewJob(command="#!/bin/sh\necho \0", script=True),
    )

    found = [(harness.jobs.facts(n).form, harness.jobs.facts(n).command) for n in (1, 2, 3, 4)]
    assert found == [
        (None, b"a && b"),
        ("argv", b"echo\0a b\0\xff\xfe"),
        (None, b"echo \xff"),
        ("script", b"#!/bin/sh\necho \0"),
    ]


def test_names_and_logs_of_a_job_go_before_those_of_its_submission(harness: Harness) -> None:
    harness.add(
        NewJob(command="a", name="own", log="own.log"),
        NewJob(command="b"),
        name="shared",
        log="/logs/{project}/{name}/{id}.log",
    )

    first, second = harness.jobs.facts(1), harness.jobs.facts(2)
    assert (first.name, second.name) == ("own", "shared")
    assert first.log == os.fsencode(harness.home / "own.log")
    assert second.log == b"/logs/{project}/{name}/{id}.log"


class TestRepeats:
    def test_the_same_request_gets_the_same_answer_and_adds_nothing(self, harness: Harness) -> None:
        first = harness.add("a", "b", request_id="the-same")
        again = harness.add("a", "b", request_id="the-same")

        assert (first.first, first.last, first.repeated) == (1, 2, False)
        assert (again.first, again.last, again.repeated) == (1, 2, True)
        assert len(harness.states()) == 2

    def test_also_after_a_restart_and_after_its_jobs_are_gone(self, harness: Harness) -> None:
        harness.add("a", request_id="the-same")
        harness.rm("1", kill=True)
        harness.restart()
        again = harness.add("a", request_id="the-same")

        assert (again.first, again.repeated) == (1, True)
        assert harness.states() == {}

    def test_also_when_it_would_be_refused_today(self, make_harness: MakeHarness) -> None:
        harness = make_harness(gpus=2)
        harness.add("a", gpus=2, request_id="the-same")
        harness.restart(gpus=0)

        assert harness.add("a", gpus=2, request_id="the-same").repeated

    def test_a_repeat_is_on_disk_before_it_is_acknowledged(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first one may have been committed and not synced when the daemon was killed."""
        harness.add("a", request_id="the-same")
        synced: list[int] = []
        monkeypatch.setattr("stoker.store.database.os.fdatasync", synced.append)
        harness.run(add(harness.context, harness.submission("a", request_id="the-same")))

        assert synced

    def test_another_request_with_its_id_is_refused(self, harness: Harness) -> None:
        harness.add("a", request_id="the-same")
        with pytest.raises(UsageError, match="another request had this request id"):
            harness.add("a", "b", request_id="the-same")

        assert len(harness.states()) == 1


class TestManyAtOnce:
    def test_all_of_them_are_added_in_their_order(self, harness: Harness) -> None:
        added = harness.add(*MANY)

        assert (added.first, added.last) == (1, 2400)
        assert commands(harness) == [(n + 1, text.encode()) for n, text in enumerate(MANY)]

    def test_the_engine_starts_the_first_while_others_are_still_added(
        self, harness: Harness
    ) -> None:
        started_at: list[int] = []
        launch = harness.executor.launch

        def look(launches: Any) -> None:
            started_at.append(len(harness.states()))
            launch(launches)

        harness.executor.launch = look  # type: ignore[method-assign]
        harness.add(*MANY)

        assert started_at[0] < len(MANY)

    def test_one_that_a_crash_cut_short_goes_on_where_it_ended(self, harness: Harness) -> None:
        submission = harness.submission(*MANY, request_id="the-same")

        async def begin_and_die() -> None:
            task = asyncio.ensure_future(add(harness.context, submission))
            while len(harness.states()) < 1000:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        harness.run(begin_and_die())
        assert 1000 <= len(harness.states()) < 2400
        harness.restart()
        other = harness.add("other")
        again = harness.run(add(harness.context, submission))
        harness.settle()

        assert (again.first, again.last, again.repeated) == (1, 2400, False)
        assert other.first == 2401
        assert commands(harness)[:2400] == [(n + 1, text.encode()) for n, text in enumerate(MANY)]

    def test_a_request_that_is_repeated_while_it_is_still_being_added_is_one(
        self, harness: Harness
    ) -> None:
        submission = harness.submission(*MANY, request_id="the-same")

        async def both() -> list[Any]:
            return await asyncio.gather(*(add(harness.context, submission) for _ in range(3)))

        answers = harness.run(both())
        harness.settle()

        assert {(answer.first, answer.last) for answer in answers} == {(1, 2400)}
        assert len(harness.states()) == 2400

    def test_others_have_their_turn_before_all_of_it_is_read(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(service, "_ROWS_AT_ONCE", 100)
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            task = asyncio.ensure_future(add(harness.context, harness.submission(*MANY)))
            while not harness.states():
                turns += 1
                await asyncio.sleep(0)
            await task

        harness.run(count_turns())

        assert turns > len(MANY) / 100

    def test_one_that_finds_the_disk_full_on_its_way_waits_for_space(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(service, "_PAUSE_S", 0.0)
        refused: list[int] = []
        fill = harness.jobs.fill

        def refuse(reservation: Any, offset: int, *more: Any) -> None:
            if offset >= 1000 and len(refused) < 3:
                refused.append(offset)
                harness.database.execute("INSERT INTO nowhere VALUES (1)")
            fill(reservation, offset, *more)

        monkeypatch.setattr(harness.jobs, "fill", refuse)
        added = harness.add(*MANY)

        assert refused == [1000, 1000, 1000]
        assert (added.first, added.last) == (1, 2400)
        assert len(harness.states()) == 2400
        assert "wait for space" in harness.notices()

    def test_a_small_one_that_finds_the_disk_full_is_refused_as_a_whole(
        self, harness: Harness
    ) -> None:
        harness.settle()
        pages = harness.database.execute("PRAGMA page_count").fetchone()[0]
        harness.database.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StokerError, match="nothing was changed: make room"):
            harness.run(add(harness.context, harness.submission(*["x" * 500] * 300)))

        harness.database.execute("PRAGMA max_page_count = 100000")
        assert harness.states() == {}
        assert harness.jobs.tally() == {}
        assert harness.add("a").first > 0


class TestRefusals:
    @pytest.mark.parametrize("cwd", ["relative", "", "a/b"])
    def test_a_relative_folder(self, harness: Harness, cwd: str) -> None:
        assert "cwd is not an absolute path" in refusal(harness, cwd=cwd)

    def test_a_folder_with_a_nul_byte(self, harness: Harness) -> None:
        assert "NUL" in refusal(harness, cwd="/a\0b")

    @pytest.mark.parametrize("command", ["", " \n\t", [], [""], b64(b"")])
    def test_an_empty_command(self, harness: Harness, command: Any) -> None:
        assert "empty" in refusal(harness, command) or "at least one" in refusal(harness, command)

    @pytest.mark.parametrize("command", ["a\0b", b64(b"a\0b"), ["a", "b\0c"], ["a\0b"]])
    def test_a_nul_byte(self, harness: Harness, command: Any) -> None:
        assert "NUL" in refusal(harness, command)

    def test_a_script_of_words(self, harness: Harness) -> None:
        assert "is no script" in refusal(harness, NewJob(command=["a"], script=True))

    def test_a_command_that_is_too_long(self, harness: Harness) -> None:
        assert "longer than 32 MiB" in refusal(harness, "x" * (MAX_COMMAND_BYTES + 1))

    @pytest.mark.parametrize("what", ["command", "cwd", "log"])
    def test_what_is_no_base64(self, harness: Harness, what: str) -> None:
        wrong = Base64("***")
        text = refusal(harness, wrong) if what == "command" else refusal(harness, **{what: wrong})
        assert f"{what} is no base64" in text

    @pytest.mark.parametrize("log", ["", "a\0b"])
    def test_a_log_without_a_path(self, harness: Harness, log: str) -> None:
        assert "path of the log" in refusal(harness, log=log)

    @pytest.mark.parametrize("shell", ["bash", "", "/bin/sh\0"])
    def test_a_shell_that_is_no_absolute_path(self, harness: Harness, shell: str) -> None:
        assert "shell is not an absolute path" in refusal(harness, shell=shell)

    @pytest.mark.parametrize("snapshot", ["", ".", "..", "/", "/abs", "id/../..", "id//a", "a\0b"])
    def test_a_snapshot_outside_the_snapshots(self, harness: Harness, snapshot: str) -> None:
        assert "snapshot is named by its id" in refusal(harness, snapshot=snapshot)

    @pytest.mark.parametrize(
        "results", [".", "..", "/abs", "a/../..", "../a", "a\0b", ".git/hooks", "a/.git"]
    )
    def test_results_outside_of_the_folder(self, harness: Harness, results: str) -> None:
        assert "below the one that the job runs in" in refusal(harness, results=results)

    def test_sync_without_a_snapshot(self, harness: Harness) -> None:
        assert "the submission names none" in refusal(harness, sync=True)

    @pytest.mark.parametrize(
        "env", [{"": "a"}, {"A=B": "c"}, {"=A": "b"}, {"A": "b\0c"}, {"A\0": "b"}]
    )
    def test_a_variable_that_no_process_can_have(
        self, harness: Harness, env: dict[str, str]
    ) -> None:
        assert "the environment holds" in refusal(harness, env=env)

    @pytest.mark.parametrize("block", [b"=x\0", b"=\0", b"NO_VALUE\0"])
    def test_such_a_variable_among_those_that_are_no_text(
        self, harness: Harness, block: bytes
    ) -> None:
        text = refusal(harness, env_b64=base64.b64encode(block).decode())
        assert "the environment holds" in text

    def test_variables_that_are_no_base64(self, harness: Harness) -> None:
        assert "env_b64 is no base64" in refusal(harness, env_b64="***")

    @pytest.mark.parametrize("name", ["7", "a b", "@", "a/b"])
    def test_a_name_that_could_not_be_told_apart(self, harness: Harness, name: str) -> None:
        assert "the name" in refusal(harness, name=name)
        assert "the name" in refusal(harness, NewJob(command="a", name=name))
        assert "the project" in refusal(harness, project=name)

    def test_more_gpus_than_there_are(self, harness: Harness) -> None:
        assert "asks for 3 GPUs, and this queue has 2: ask for fewer (-g)" in refusal(
            harness, gpus=3
        )

    def test_a_gpu_where_there_is_none_with_what_to_pass(self, make_harness: MakeHarness) -> None:
        text = refusal(make_harness(gpus=0))
        assert text.startswith("no GPU found: ")
        assert "--gpus 0,1" in text
        assert "-g 0" in text


def test_a_refused_submission_leaves_no_gap_in_the_ids(harness: Harness) -> None:
    harness.add("a")
    with pytest.raises(UsageError):
        harness.add("b", gpus=3)

    assert harness.add("c").first == 2


def test_a_job_without_gpu_is_welcome_where_there_is_none(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=0)
    harness.add("a", gpus=0)

    assert harness.jobs.tally() == {State.RUNNING: 1}


def test_slurm_s_variables_are_warned_of_for_jobs_on_several_gpus_alone(harness: Harness) -> None:
    slurm = {"SLURM_NTASKS": "4", "SLURM_JOB_ID": "7", "PATH": "/bin"}

    assert harness.add("a", env=slurm).notice is None
    assert harness.add("a", gpus=2).notice is None
    notice = harness.add("a", env=slurm, gpus=2).notice
    assert notice is not None
    assert notice.startswith("2 SLURM_* variables of this shell go along")
