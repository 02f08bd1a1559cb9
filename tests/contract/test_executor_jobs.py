"""What a real job finds around it, and programs that are not what they seemed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.executor_harness import (
    SLOTS,
    Harness,
    kept_executor,
    local_executor,
    occupy_for_real,
    put_away,
)
from stoker.executors.contract import Ended, Executor, Launch, Started
from stoker.supervisor import process_tree

# What a job sees of its surroundings.
PROBE = """
import json, os
def is_open(fd):
    try:
        return bool(os.fstat(fd))
    except OSError:
        return False
print(json.dumps({
    "stdin": os.readlink("/proc/self/fd/0"),
    "pid": os.getpid(), "session": os.getsid(0), "group": os.getpgid(0),
    "cwd": os.getcwd(), "env": dict(os.environ),
    "open": [fd for fd in map(int, os.listdir("/proc/self/fd")) if is_open(fd)],
}))
"""


def probe(
    harness: Harness, key: str, slots: tuple[int, ...], context: int = 0
) -> dict[str, object]:
    """Let a job tell what it sees."""
    log = harness.work / f"log-{key}"
    launch = Launch(key, slots, [sys.executable, "-I", "-c", PROBE], str(log), context)
    harness.executor.launch([launch])
    assert harness.ended(key).status == 0
    found = json.loads(log.read_text())
    assert isinstance(found, dict)
    assert found["pid"] == harness.started(key).pid
    return found


def env_of(seen: dict[str, object]) -> dict[str, str]:
    env = seen["env"]
    assert isinstance(env, dict)
    return env


class TestSurroundings:
    @pytest.fixture
    def seen(self, real: Harness) -> dict[str, object]:
        return probe(real, "12.3", (1,))

    def test_its_input_is_empty(self, seen: dict[str, object]) -> None:
        assert seen["stdin"] == "/dev/null"

    def test_it_has_a_group_of_its_own_and_no_terminal(self, seen: dict[str, object]) -> None:
        assert seen["group"] == seen["pid"]
        assert seen["session"] not in (os.getsid(0), os.getpgid(0))

    def test_it_runs_in_the_folder_it_was_given(
        self, seen: dict[str, object], surroundings: Path
    ) -> None:
        assert seen["cwd"] == str(surroundings)

    def test_it_knows_its_gpus_its_number_and_its_attempt(self, seen: dict[str, object]) -> None:
        env = env_of(seen)
        assert env["CUDA_VISIBLE_DEVICES"] == "2,3"
        assert env["STOKER_JOB_ID"] == "12"
        assert env["STOKER_ATTEMPT"] == "3"
        assert env["PATH"] == os.environ["PATH"]
        assert env[process_tree.COOKIE].endswith(":12.3")

    def test_it_has_only_the_environment_it_was_given(self, seen: dict[str, object]) -> None:
        own = {"CUDA_VISIBLE_DEVICES", "STOKER_JOB_ID", "STOKER_ATTEMPT", process_tree.COOKIE}
        own |= {"MASTER_ADDR", "MASTER_PORT", "PET_MASTER_PORT"}  # it has two GPUs
        own |= {"STOKER_GPU_UUIDS"}  # these have UUIDs
        assert set(env_of(seen)) - {"LC_CTYPE"} == {"PATH", "ODD"} | own

    def test_no_signal_is_blocked_or_ignored(self, real: Harness) -> None:
        log = real.work / "log"
        words = ["/bin/grep", "^Sig[BI]", "/proc/self/status"]
        real.executor.launch([Launch("1.1", (0,), words, str(log))])
        real.ended("1.1")

        masks = dict(line.split() for line in log.read_text().splitlines())
        real_time = ~0x7FFFFFFF
        assert int(masks["SigBlk:"], 16) == 0
        assert int(masks["SigIgn:"], 16) & ~real_time == 0

    def test_a_broken_pipe_ends_its_writer_quietly(self, real: Harness) -> None:
        log = real.work / "log"
        real.sh("1.1", "yes | head -1", log=log)

        assert real.ended("1.1").status == 0
        assert log.read_text() == "y\n"

    def test_bytes_that_are_not_utf8_arrive_unchanged(self, real: Harness) -> None:
        odd = os.fsdecode(b"a\xff\xc3(b\n'\"$x")
        script = 'printf "%s|%s" "$1" "$ODD" > "$2"'
        out = os.fsdecode(bytes(real.work) + b"/out\xfd")
        real.executor.launch([Launch("1.1", (0,), ["/bin/sh", "-c", script, "sh", odd, out])])

        assert real.ended("1.1").status == 0
        with open(out, "rb") as file:
            assert file.read() == b"a\xff\xc3(b\n'\"$x|\xfe\xff"

    def test_a_log_is_appended_to_with_output_and_errors(self, real: Harness) -> None:
        log = real.work / os.fsdecode(b"log\xff")
        log.write_text("earlier\n")
        real.sh("1.1", "echo out; echo err >&2", log=log)
        real.sh("1.2", "echo again", log=log)
        real.ended("1.2")

        assert log.read_text() == "earlier\nout\nerr\nagain\n"

    def test_the_usage_of_an_attempt_is_reported(self, real: Harness) -> None:
        real.sh("1.1", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")

        ended = real.ended("1.1")
        assert ended.cpu_us > 0
        assert ended.max_rss_kb > 100


def test_a_job_inherits_the_leases_and_no_other_descriptor(local: Harness) -> None:
    ours = {int(fd) for fd in os.listdir("/proc/self/fd")}
    passed_on = {fd for fd in ours if fd > 3 and is_inheritable(fd)}

    assert probe(local, "1.1", (1,))["open"] == sorted({0, 1, 2, 200, 201} | passed_on)


def test_a_job_of_a_daemon_inherits_nothing_else_even_if_the_daemon_could(kept: Harness) -> None:
    assert probe(kept, "1.1", (1,))["open"] == [0, 1, 2, 200, 201]


def test_a_job_on_several_slots_sees_and_holds_the_gpus_of_all(real: Harness) -> None:
    seen = probe(real, "1.1", (1, 0))

    assert env_of(seen)["CUDA_VISIBLE_DEVICES"] == "2,3,0"
    fds = seen["open"]
    assert isinstance(fds, list)
    assert {200, 201, 202} <= set(fds)


def test_a_job_on_no_slot_sees_and_holds_no_gpu(real: Harness) -> None:
    seen = probe(real, "1.1", ())

    assert env_of(seen)["CUDA_VISIBLE_DEVICES"] == ""
    fds = seen["open"]
    assert isinstance(fds, list)
    assert not {200, 201, 202} & set(fds)


def test_each_job_runs_in_the_context_it_names(real: Harness) -> None:
    folder = real.work / "elsewhere"
    folder.mkdir()
    env = {"PATH": os.environ["PATH"], "STOKER_PART": "x", process_tree.COOKIE: "outer:1.1"}
    real.executor.define_context(7, {**env, "LR": "0.1"}, str(folder), "/bin/sh")
    real.executor.define_context(7, {**env, "LR": "0.2"}, "/", "/bin/sh")

    seen = probe(real, "1.1", (0,), context=7)
    assert seen["cwd"] == str(folder)
    assert env_of(seen)["LR"] == "0.1"
    assert env_of(seen)[process_tree.COOKIE].endswith(":1.1")
    assert "outer" not in env_of(seen)[process_tree.COOKIE]
    assert "STOKER_PART" not in env_of(seen)
    assert probe(real, "2.1", (0,))["cwd"] == str(real.work)


def test_more_contexts_than_a_supervisor_caches_work(kept: Harness) -> None:
    numbers = [*range(1, 100), 3, 2, 1]
    for job, number in enumerate(numbers):
        env = {"PATH": os.environ["PATH"], "N": str(number)}
        kept.executor.define_context(number, env, str(kept.work), "/bin/sh")
        words = ["/bin/sh", "-c", f"[ $N = {number} ]"]
        kept.executor.launch([Launch(f"{job}.1", (job % 2,), words, context=number)])
    kept.until(lambda: len(kept.of(Ended)) == len(numbers))

    assert {report.status for report in kept.of(Ended)} == {0}


class TestStarts:
    def test_a_script_without_shebang_is_run_by_the_shell(self, real: Harness) -> None:
        script = real.work / "train"
        script.write_text('echo "$#:$1" > out\nexit 7\n')
        script.chmod(0o755)
        real.executor.launch([Launch("1.1", (0,), [str(script), "a", "b"])])

        assert real.ended("1.1").status == 7 << 8
        assert (real.work / "out").read_text() == "2:a\n"

    def test_a_script_without_shebang_gets_its_arguments_unchanged(self, real: Harness) -> None:
        folder = real.work / "my $(tools)"
        folder.mkdir()
        script = folder / "train"
        script.write_text('printf "%s\\n" "$@" > out\n')
        script.chmod(0o755)
        real.executor.launch([Launch("1.1", (0,), [str(script), "a b", "$HOME", ";", "*"])])

        assert real.ended("1.1").status == 0
        assert (real.work / "out").read_text() == "a b\n$HOME\n;\n*\n"

    def test_the_shell_reports_a_missing_program(self, real: Harness) -> None:
        log = real.work / "log"
        real.executor.launch([Launch("1.1", (0,), [str(real.work / "vanished"), "x"], str(log))])

        assert real.ended("1.1").status == 127 << 8
        assert "not found" in log.read_text()

    def test_the_shell_reports_a_program_that_is_not_executable(self, real: Harness) -> None:
        (real.work / "data").write_text("x")
        real.executor.launch([Launch("1.1", (0,), [str(real.work / "data")])])

        assert real.ended("1.1").status == 126 << 8

    def test_a_log_that_cannot_be_opened_refuses_the_start_and_the_next_goes_on(
        self, real: Harness
    ) -> None:
        log = real.work / os.fsdecode(b"miss\xffing") / "log"
        real.sh("1.1", "touch ran", log=log)
        real.sh("2.1", "exit 0")

        refused = real.refused("1.1")
        assert refused.reason == rf"No such file or directory: {real.work}/miss\xffing/log"
        assert real.ended("2.1").status == 0
        assert not (real.work / "ran").exists()
        assert [report.key for report in real.of(Started)] == ["2.1"]

    def test_arguments_with_nul_bytes_refuse_the_start(self, real: Harness) -> None:
        real.sh("1.1", "echo \0")
        assert "null" in real.refused("1.1").reason
        real.sh("2.1", "exit 0")

        assert real.ended("2.1").status == 0

    def test_arguments_that_are_too_long_refuse_the_start(self, real: Harness) -> None:
        real.sh("1.1", "x" * 200_000)

        assert real.refused("1.1").reason == "Argument list too long: /bin/sh"

    @pytest.mark.parametrize("make", [local_executor, kept_executor])
    @pytest.mark.parametrize("missing", ["cwd", "shell"])
    def test_a_folder_or_a_shell_that_is_gone_refuses_the_start(
        self, surroundings: Path, make: Callable[..., Executor], missing: str
    ) -> None:
        gone = str(surroundings / "gone")
        executor = make(surroundings, **{missing: gone})
        harness = Harness(executor, surroundings, occupy_for_real)
        try:
            harness.hold_all()
            program = gone if missing == "shell" else "/bin/sh"
            executor.launch([Launch("1.1", (0,), [program, "-c", "exit 0"])])
            assert harness.refused("1.1").reason == f"No such file or directory: {gone}"
        finally:
            put_away(executor)


def test_a_recreated_folder_is_entered_again(kept: Harness) -> None:
    """A daemon's supervisor lives for weeks: a folder of the same name is not the same folder."""
    folder = kept.work / "checkout"
    folder.mkdir()
    kept.executor.define_context(5, {"PATH": os.environ["PATH"]}, str(folder), "/bin/sh")
    for number in (1, 2):
        words = ["/bin/sh", "-c", f"echo {number} > out"]
        kept.executor.launch([Launch(f"{number}.1", (0,), words, context=5)])
        assert kept.ended(f"{number}.1").status == 0
        assert (folder / "out").read_text() == f"{number}\n"
        (folder / "out").unlink()
        folder.rmdir()
        folder.mkdir()


def test_slots_without_a_supervisor_in_common_are_refused_at_once(surroundings: Path) -> None:
    executor = local_executor(surroundings)
    try:
        executor.define_slots([type(SLOTS[0])(n, (str(n),), (f"GPU-{n}",)) for n in range(4)])
        assert len(executor.parents) == 2
        with pytest.raises(ValueError, match="no supervisor in common"):
            executor.launch([Launch("1.1", (0, 1), ["/bin/true"])])
    finally:
        put_away(executor)


def is_inheritable(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:
        return False
