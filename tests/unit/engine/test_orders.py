"""From a queued job to the order that starts it."""

from __future__ import annotations

import base64
import json
import os
import subprocess

import pytest

from stoker.engine.orders import fill_template, join_words, read_environment, split_words
from stoker.executors.command import MAX_ARGUMENT_BYTES
from stoker.executors.contract import Launch
from stoker.testing.executor import Context
from stoker.wire import Base64, NewJob
from unit.engine.world import FAILED, MakeWorld, World


def launched(world: World) -> Launch:
    return world.executor.launched[-1]


def context(world: World) -> Context:
    return world.executor.contexts[launched(world).context]


def test_a_plain_line_needs_no_shell_and_any_other_has_one(world: World) -> None:
    world.add("true -x a", env={"PATH": os.environ["PATH"]})
    assert [os.path.basename(launched(world).argv[0]), *launched(world).argv[1:]] == [
        "true",
        "-x",
        "a",
    ]
    world.add("true && true")
    assert launched(world).argv == ["/bin/sh", "-c", "true && true"]


def test_words_are_passed_on_as_they_are_and_found_along_the_jobs_own_path(world: World) -> None:
    program = world.home / "mine"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    world.add(["mine", "a b", "$x", ""], env={"PATH": str(world.home)})

    assert launched(world).argv == [str(program), "a b", "$x", ""]


def test_a_program_that_is_not_found_is_left_for_the_executor_to_complain_about(
    world: World,
) -> None:
    world.add(["no-such-program", "a"], env={"PATH": "/nowhere"})
    assert launched(world).argv == ["no-such-program", "a"]


def test_bytes_that_are_no_text_reach_the_command(world: World) -> None:
    world.add(["echo", Base64(base64.b64encode(b"\xff").decode())])
    assert os.fsencode(launched(world).argv[1]) == b"\xff"


def test_a_script_is_a_file_that_starts_itself_or_is_given_to_the_shell(world: World) -> None:
    text = "#!/bin/sh\necho started\n"
    world.add(NewJob(command=text, script=True))
    (path,) = launched(world).argv
    assert path == str(world.home / "scripts" / "1")
    assert subprocess.run([path], capture_output=True, check=True).stdout == b"started\n"

    world.add(NewJob(command="echo a", script=True), shell="/bin/bash")
    assert launched(world).argv == ["/bin/bash", str(world.home / "scripts" / "2")]
    assert (world.home / "scripts" / "2").read_bytes() == b"echo a\n"


def test_scripts_are_their_owners_alone(world: World) -> None:
    world.add(NewJob(command="echo a", script=True))
    assert (world.home / "scripts" / "1").stat().st_mode & 0o777 == 0o700


def test_a_line_too_long_for_an_argument_goes_through_a_file(world: World) -> None:
    line = "true " + "x" * MAX_ARGUMENT_BYTES
    world.add(line)

    shell, path = launched(world).argv
    assert shell == "/bin/sh"
    with open(path, encoding="ascii") as file:
        assert file.read() == line + "\n"


def test_a_script_that_cannot_be_written_fails_its_job_with_the_reason(world: World) -> None:
    (world.home / "scripts").write_text("in the way")
    world.add(NewJob(command="echo a", script=True))

    ((_, state, reason),) = world.attempts(1)
    assert state == "failed"
    assert reason is not None
    assert f"{world.home}/scripts" in reason


def test_each_attempt_has_a_log_of_its_own_in_a_folder_that_exists(world: World) -> None:
    world.add("a", retries=1)
    assert launched(world).log == str(world.home / "logs" / "0" / "1.1.log")
    assert (world.home / "logs" / "0").is_dir()
    world.end("1.1", FAILED)

    assert launched(world).log == str(world.home / "logs" / "0" / "1.2.log")


def test_a_folder_of_logs_that_was_tidied_away_is_made_again(world: World) -> None:
    for _ in range(2):
        world.add("a", log="mine/{id}.log")
        assert (world.home / "mine").is_dir()
        (world.home / "mine").rmdir()


def test_a_thousand_jobs_share_a_folder_of_logs(world: World) -> None:
    world.database.write("INSERT INTO tally VALUES ('last_id', 2499)", ())
    world.database.commit()
    world.restart()
    world.add("a")

    assert launched(world).log == str(world.home / "logs" / "2" / "2500.1.log")


class TestSurroundings:
    def test_a_job_runs_in_its_folder_with_its_environment_and_nothing_of_ours(
        self, world: World
    ) -> None:
        world.add("a", env={"A": "1"}, cwd="/work", shell="/bin/bash")

        assert context(world) == Context(
            {
                "A": "1",
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
                "STOKER_SUBMIT_DIR": "/work",
                "STOKER_CHECKPOINTS": f"{world.home}/checkpoints",
            },
            "/work",
            "/bin/bash",
        )

    def test_the_order_of_devices_is_the_users_if_it_is_set(self, world: World) -> None:
        world.add("a", env={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
        assert context(world).env["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"

    def test_with_a_snapshot_it_runs_there_and_knows_where_it_came_from(self, world: World) -> None:
        world.add("a", snapshot="0123/sub", cwd="/work/sub")

        assert context(world).cwd == str(world.home / "snapshots" / "0123" / "sub")
        assert context(world).env["STOKER_SUBMIT_DIR"] == "/work/sub"

    def test_a_job_of_sync_runs_in_a_copy_of_its_own_whose_results_go_to_its_folder(
        self, world: World
    ) -> None:
        world.add("sh train.sh", snapshot="0123/sub", sync=True, results="out/", cwd="/work/sub")

        *_python, root, order, program, script = launched(world).argv
        assert os.path.isdir(os.path.join(root, "stoker"))
        assert (os.path.basename(program), script) == ("sh", "train.sh")
        assert json.loads(order) == {
            "depot": str(world.home / "depot"),
            "name": "1.1",
            "snapshot": str(world.home / "snapshots" / "0123"),
            "inside": "sub",
            "results": "out",
            "target": "/work/sub/out",
            "limit_bytes": 1 << 30,
        }

    def test_equal_surroundings_are_told_once(self, world: World) -> None:
        world.add("a", env={"A": "1"})
        world.add("b", env={"A": "1"})
        assert len(world.executor.contexts) == 1
        world.now += 5
        world.kill("1-2")
        world.add("c", env={"A": "2"})
        world.add("d", env={"A": "1"}, cwd="/elsewhere")

        assert [launch.context for launch in world.executor.launched] == [1, 1, 2, 3]

    def test_those_that_were_not_used_for_long_are_told_anew(self, make_world: MakeWorld) -> None:
        world = make_world(gpus=1)
        for number in range(70):
            world.add("a", env={"A": str(number)})
            world.now += 5
            world.end(world.executor.running[0])
        world.add("a", env={"A": "0"})

        assert launched(world).context == 71
        assert context(world).env["A"] == "0"

    def test_those_of_a_forgotten_submission_are_never_given_to_another(
        self, make_world: MakeWorld
    ) -> None:
        world = make_world(gpus=1)
        world.add("keeps the newest", env={"A": "newest"})
        world.add("a", env={"A": "old"})
        world.now += 5
        world.end("1.1")
        world.end("2.1")
        world.rm("2")
        world.database.write("UPDATE submission SET submitted_at_us = 1 WHERE id = 2", ())
        world.database.commit()
        world.jobs.forget_submissions()
        world.add("b", env={"A": "new"})

        assert context(world).env["A"] == "new"


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
