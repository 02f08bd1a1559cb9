"""From a queued job to the order that starts it."""

from __future__ import annotations

import base64
import json
import os
import subprocess

import pytest

from stoker.engine.launch_spec import fill_template, join_words, read_environment, split_words
from stoker.executors.command import MAX_ARGUMENT_BYTES
from stoker.executors.contract import Launch
from stoker.store.prune import forget_submissions
from stoker.testing.executor import FakeContext
from stoker.wire import Base64, NewJob
from unit.engine.engine_harness import FAILED, Harness, MakeHarness


def launched(harness: Harness) -> Launch:
    return harness.executor.launched[-1]


def context(harness: Harness) -> FakeContext:
    return harness.executor.contexts[launched(harness).context]


def test_a_plain_line_needs_no_shell_and_any_other_has_one(harness: Harness) -> None:
    harness.add("true -x a", env={"PATH": os.environ["PATH"]})
    assert [os.path.basename(launched(harness).argv[0]), *launched(harness).argv[1:]] == [
        "true",
        "-x",
        "a",
    ]
    harness.add("true && true")
    assert launched(harness).argv == ["/bin/sh", "-c", "true && true"]


def test_words_are_passed_on_as_they_are_and_found_along_the_jobs_own_path(
    harness: Harness,
) -> None:
    program = harness.home / "mine"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    harness.add(["mine", "a b", "$x", ""], env={"PATH": str(harness.home)})

    assert launched(harness).argv == [str(program), "a b", "$x", ""]


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (["true", "a b"], "true"),
        ("true -x", "true"),
        ("/bin/true -x", None),
        (["./true"], None),
        ("true && true", None),
        (["sh", "-c", "x"], None),
        ("exit 1", None),
    ],
)
def test_the_name_of_a_program_goes_along_if_path_decides_which_it_is(
    harness: Harness, command: str | list[str], program: str | None
) -> None:
    harness.add(command, env={"PATH": os.environ["PATH"]})
    assert launched(harness).program == program


def test_a_program_that_is_not_found_is_left_for_the_executor_to_complain_about(
    harness: Harness,
) -> None:
    harness.add(["no-such-program", "a"], env={"PATH": "/nowhere"})
    assert launched(harness).argv == ["no-such-program", "a"]


def test_bytes_that_are_no_text_reach_the_command(harness: Harness) -> None:
    harness.add(["echo", Base64(base64.b64encode(b"\xff").decode())])
    assert os.fsencode(launched(harness).argv[1]) == b"\xff"


def test_a_script_is_a_file_that_starts_itself_or_is_given_to_the_shell(harness: Harness) -> None:
    text = "#!/bin/sh\necho started\n"
    harness.add(NewJob(command=text, script=True))
    (path,) = launched(harness).argv
    assert path == str(harness.home / "scripts" / "1")
    assert subprocess.run([path], capture_output=True, check=True).stdout == b"started\n"

    harness.add(NewJob(command="echo a", script=True), shell="/bin/bash")
    assert launched(harness).argv == ["/bin/bash", str(harness.home / "scripts" / "2")]
    assert (harness.home / "scripts" / "2").read_bytes() == b"echo a\n"


def test_scripts_are_their_owners_alone(harness: Harness) -> None:
    harness.add(NewJob(command="echo a", script=True))
    assert (harness.home / "scripts" / "1").stat().st_mode & 0o777 == 0o700


def test_a_line_too_long_for_an_argument_goes_through_a_file(harness: Harness) -> None:
    line = "true " + "x" * MAX_ARGUMENT_BYTES
    harness.add(line)

    shell, path = launched(harness).argv
    assert shell == "/bin/sh"
    with open(path, encoding="ascii") as file:
        assert file.read() == line + "\n"


def test_a_script_that_cannot_be_written_fails_its_job_with_the_reason(harness: Harness) -> None:
    (harness.home / "scripts").write_text("in the way")
    harness.add(NewJob(command="echo a", script=True))

    ((_, state, reason),) = harness.attempts(1)
    assert state == "failed"
    assert reason is not None
    assert f"{harness.home}/scripts" in reason


def test_each_attempt_has_a_log_of_its_own_in_a_folder_that_exists(harness: Harness) -> None:
    harness.add("a", retries=1)
    assert launched(harness).log == str(harness.home / "logs" / "0" / "1.1.log")
    assert (harness.home / "logs" / "0").is_dir()
    harness.end("1.1", FAILED)

    assert launched(harness).log == str(harness.home / "logs" / "0" / "1.2.log")


def test_a_folder_of_logs_that_was_tidied_away_is_made_again(harness: Harness) -> None:
    for _ in range(2):
        harness.add("a", log="mine/{id}.log")
        assert (harness.home / "mine").is_dir()
        (harness.home / "mine").rmdir()


def test_a_thousand_jobs_share_a_folder_of_logs(harness: Harness) -> None:
    harness.database.write("INSERT INTO tally VALUES ('last_id', 2499)", ())
    harness.database.commit()
    harness.restart()
    harness.add("a")

    assert launched(harness).log == str(harness.home / "logs" / "2" / "2500.1.log")


class TestSurroundings:
    def test_a_job_runs_in_its_folder_with_its_environment_and_nothing_of_ours(
        self, harness: Harness
    ) -> None:
        harness.add("a", env={"A": "1"}, cwd="/work", shell="/bin/bash")

        assert context(harness) == FakeContext(
            {
                "A": "1",
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
                "STOKER_SUBMIT_DIR": "/work",
                "STOKER_CHECKPOINTS": f"{harness.home}/checkpoints",
            },
            "/work",
            "/bin/bash",
        )

    def test_the_order_of_devices_is_the_users_if_it_is_set(self, harness: Harness) -> None:
        harness.add("a", env={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
        assert context(harness).env["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"

    def test_with_a_snapshot_it_runs_there_and_knows_where_it_came_from(
        self, harness: Harness
    ) -> None:
        harness.add("a", snapshot="0123/sub", cwd="/work/sub")

        assert context(harness).cwd == str(harness.home / "snapshots" / "0123" / "sub")
        assert context(harness).env["STOKER_SUBMIT_DIR"] == "/work/sub"

    def test_a_job_of_sync_runs_in_a_copy_of_its_own_whose_results_go_to_its_folder(
        self, harness: Harness
    ) -> None:
        harness.add("sh train.sh", snapshot="0123/sub", sync=True, results="out/", cwd="/work/sub")

        *_python, module, order, program, script = launched(harness).argv
        assert module == "stoker.staging.local_stage"
        assert (os.path.basename(program), script) == ("sh", "train.sh")
        assert json.loads(order) == {
            "node_cache": str(harness.home / "node_cache"),
            "name": "1.1",
            "snapshot": str(harness.home / "snapshots" / "0123"),
            "inside": "sub",
            "results": "out",
            "target": "/work/sub/out",
            "limit_bytes": 1 << 30,
        }

    def test_equal_surroundings_are_told_once(self, harness: Harness) -> None:
        harness.add("a", env={"A": "1"})
        harness.add("b", env={"A": "1"})
        assert len(harness.executor.contexts) == 1
        harness.now += 5
        harness.kill("1-2")
        harness.add("c", env={"A": "2"})
        harness.add("d", env={"A": "1"}, cwd="/elsewhere")

        assert [launch.context for launch in harness.executor.launched] == [1, 1, 2, 3]

    def test_those_that_were_not_used_for_long_are_told_anew(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=1)
        for number in range(70):
            harness.add("a", env={"A": str(number)})
            harness.now += 5
            harness.end(harness.executor.running[0])
        harness.add("a", env={"A": "0"})

        assert launched(harness).context == 71
        assert context(harness).env["A"] == "0"

    def test_those_of_a_forgotten_submission_are_never_given_to_another(
        self, make_harness: MakeHarness
    ) -> None:
        harness = make_harness(gpus=1)
        harness.add("keeps the newest", env={"A": "newest"})
        harness.add("a", env={"A": "old"})
        harness.now += 5
        harness.end("1.1")
        harness.end("2.1")
        harness.rm("2")
        harness.database.write("UPDATE submission SET submitted_at_us = 1 WHERE id = 2", ())
        harness.database.commit()
        forget_submissions(harness.database)
        harness.add("b", env={"A": "new"})

        assert context(harness).env["A"] == "new"


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("/logs/{id}.log", "/logs/7.log"),
        ("/logs/{index}.log", "/logs/6.log"),
        ("/logs/{project}/{name}/{id}", "/logs/p/n/7"),
        ("/logs/{name}{name}", "/logs/nn"),
        ("/logs/{other}/{}", "/logs/{other}/{}"),
        ("/plain", "/plain"),
    ],
)
def test_placeholders_are_filled_in_and_other_braces_left(template: str, path: str) -> None:
    assert fill_template(template, 7, "n", "p") == path


def test_without_a_name_the_id_stands_for_it_and_without_a_project_default() -> None:
    assert fill_template("{project}/{name}", 7, None, None) == "default/7"


def test_an_environment_is_read_as_it_was_written() -> None:
    assert read_environment(b"A=1\0B=x=y\0C=\0D\xff=\xfe\0") == {
        "A": "1",
        "B": "x=y",
        "C": "",
        "D\udcff": "\udcfe",
    }


@pytest.mark.parametrize("words", [[b"a"], [b"a", b"", b"b c"], [b"a", b"\xff"], [b"a", b""]])
def test_words_are_the_same_after_they_were_one(words: list[bytes]) -> None:
    assert split_words(join_words(words)) == words
