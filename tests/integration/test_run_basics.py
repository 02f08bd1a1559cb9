from __future__ import annotations

import os
import pwd
import re
from typing import TYPE_CHECKING

import pytest

from patience import AT_ONCE_S

if TYPE_CHECKING:
    from conftest import Stoker


def test_three_commands_run_the_failed_one_is_named_and_the_exit_code_is_1(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0,1", lines="echo a\n\n# c\nfalse\necho $CUDA_VISIBLE_DEVICES\n")

    first, gpu = sorted(ended.out.split(), reverse=True)
    assert (first, ended.code) == ("a", 1)
    assert gpu in {"0", "1"}
    assert "stoker: 2 exit 1: false\n" in ended.err
    assert "stoker: 2 done, 1 failed, in " in ended.err
    assert [row.state for row in stoker.rows()] == ["done", "failed", "done"]


def test_a_line_starts_when_it_arrives(stoker: Stoker) -> None:
    process = stoker.start("run", "--gpus", "0")
    assert process.stdin is not None
    assert process.stdout is not None

    process.stdin.write(b"echo first\n")
    process.stdin.flush()
    first = process.stdout.readline()  # blocks for ever if the line waits for the writer's end

    assert first == b"first\n"
    ended = stoker.end(process, "echo second\n")
    assert (ended.code, ended.out) == (0, "second\n")
    assert _is_summary(ended.err, 2)


def _is_summary(text: str, count: int) -> bool:
    return re.fullmatch(rf"stoker: {count} done, in [0-9.]+s\n", text) is not None


def test_after_a_kill_resume_runs_each_command_to_exactly_one_success(stoker: Stoker) -> None:
    lines = (
        "echo a >> ran\necho a >> ran\n[ -e go ] || exec sleep 60; echo b >> ran\necho a >> ran\n"
    )
    file = stoker.file("jobs.txt", lines)
    process = stoker.start("run", file, "--gpus", "0")
    sleeper = stoker.until(lambda: [p for p, w in stoker.processes().items() if w == "sleep 60"])

    process.kill()
    stoker.until(lambda: not stoker.is_alive(sleeper[0]), deadline_s=AT_ONCE_S)
    stoker.file("go", "")
    ended = stoker.run(file, "--gpus", "0", "--resume")

    assert (ended.code, stoker.read("ran")) == (0, ["a", "a", "b", "a"])
    assert "2 done, 2 had succeeded before" in ended.err
    assert [row.job for row in stoker.rows() if row.outcome == "done"] == [1, 2, 3, 4]


def test_commands_start_in_the_order_given(stoker: Stoker) -> None:
    numbers = [str(number) for number in range(50)]

    ended = stoker.run("--gpus", "0", lines="".join(f"echo {n}\n" for n in numbers))

    assert (ended.out.split(), ended.code) == (numbers, 0)


def test_quick_commands_do_not_queue_up_behind_a_long_one(stoker: Stoker) -> None:
    long = "until [ $(cat ran | wc -l) = 70 ]; do sleep 0.01; done\n"

    ended = stoker.run(
        "--gpus", "0,1", lines="echo a >> ran\n" * 60 + long + "echo a >> ran\n" * 10
    )

    assert ended.code == 0
    assert "71 done" in ended.err


def test_nothing_to_run_is_a_success(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0")

    assert (ended.code, ended.out) == (0, "")
    assert _is_summary(ended.err, 0)


def test_the_exit_code_is_0_only_if_all_succeed(stoker: Stoker) -> None:
    assert stoker.run("--gpus", "0", lines="true\ntrue\n").code == 0
    assert stoker.run("--gpus", "0", lines="true\nexit 3\n").code == 1
    assert stoker.run("--gpus", "0", lines="true\nkill -SEGV $$\n").code == 1


def test_failures_are_named_with_their_reason(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0", lines="exit 3\ntrue\nkill -SEGV $$\n")

    assert "stoker: 1 exit 3: exit 3\n" in ended.err
    assert "stoker: 3 killed by SIGSEGV: kill -SEGV $$\n" in ended.err
    assert "stoker: 1 done, 2 failed, in " in ended.err
    assert "--resume" in ended.err


def test_every_job_sees_the_gpu_of_its_slot(stoker: Stoker) -> None:
    wait = "until [ -e {} ]; do sleep 0.01; done"
    lines = "".join(
        f"echo $CUDA_VISIBLE_DEVICES >> gpus; touch at{i}; {wait.format(f'at{1 - i}')}\n"
        for i in (0, 1)
    )

    assert stoker.run("--gpus", "1,3", lines=lines).code == 0
    assert sorted(stoker.read("gpus")) == ["1", "3"]


@pytest.mark.parametrize(
    ("slots", "seen"),
    [
        ("0+1,2+3", ["0,1", "2,3"]),
        ("0,0", ["0", "0"]),
        ("2-3", ["2", "3"]),
        ("-1,-1", ["-1", "-1"]),
    ],
)
def test_slots_are_pairs_repeats_ranges_or_no_gpu_at_all(
    stoker: Stoker, slots: str, seen: list[str]
) -> None:
    meet = "touch {}; until [ -e {} ]; do sleep 0.01; done; echo $CUDA_VISIBLE_DEVICES >> gpus\n"

    ended = stoker.run(f"--gpus={slots}", lines=meet.format("a", "b") + meet.format("b", "a"))

    assert (ended.code, sorted(stoker.read("gpus"))) == (0, seen)


def test_j_runs_that_many_at_once_on_each_gpu(stoker: Stoker) -> None:
    others = " ".join(f"[ -e at{i} ] &&" for i in range(4))
    wait = f"until {others} true; do sleep 0.01; done"

    ended = stoker.run(
        "--gpus", "0,1", "-j", "2", lines="".join(f"touch at{i}; {wait}\n" for i in range(4))
    )

    assert ended.code == 0
    assert sorted(row.slots or "" for row in stoker.rows()) == ["0", "0", "1", "1"]


def test_cuda_counts_gpus_as_nvml_does_unless_the_user_says_otherwise(stoker: Stoker) -> None:
    job = "echo $CUDA_DEVICE_ORDER\n"

    assert stoker.run("--gpus", "0", lines=job).out == "PCI_BUS_ID\n"
    users = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    assert stoker.run("--gpus", "0", lines=job, env=users).out == "FASTEST_FIRST\n"


def test_a_job_that_reads_its_input_does_not_swallow_the_queue(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0", lines="cat > f\necho next\nreadlink /proc/self/fd/0\n")

    assert (ended.code, ended.out) == (0, "next\n/dev/null\n")
    assert (stoker.work / "f").read_bytes() == b""


def test_jobs_get_no_descriptors_but_their_own_and_the_lease(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0+1", lines="ls /proc/self/fd\n")

    numbers = [int(word) for word in ended.out.split()]
    assert [n for n in numbers if n > 3] == [200, 201]  # 3 is the folder that ls reads


def test_jobs_ignore_no_signal_that_their_programs_rely_on(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0", lines="yes | head -1\ngrep SigIgn /proc/self/status\n")

    first, ignored = ended.out.splitlines()
    of_libc = 1 << 31 | 1 << 32  # signals 32 and 33, which posix_spawn itself sets aside
    assert (ended.code, first) == (0, "y")
    assert int(ignored.split()[1], 16) & ~of_libc == 0


def test_shell_syntax_works(stoker: Stoker) -> None:
    lines = "a=1; echo $((a + 1)) | tr 2 x > f && cat f\necho 'one  two' \"$HOME\" ; (exit 0)\n"

    ended = stoker.run("--gpus", "0", lines=lines)

    assert (ended.code, ended.out) == (0, f"x\none  two {stoker.env['HOME']}\n")


def test_the_shell_can_be_chosen(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0", "--shell", "bash", lines="[[ abc == a* ]] && echo $BASH\n")

    assert (ended.code, os.path.basename(ended.out.strip())) == (0, "bash")


def test_login_is_the_users_login_shell(stoker: Stoker) -> None:
    ended = stoker.run(
        "--gpus", "0", "--shell", "login", lines='readlink -f "/proc/$$/exe"; true\n'
    )

    shell = pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    assert ended.out.strip() == os.path.realpath(shell)


def test_a_missing_shell_is_one_clear_line(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0", "--shell", "no-such-shell", lines="echo a\n")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("stoker: no shell 'no-such-shell'")
    assert ended.err.count("\n") == 1


def test_a_dry_run_shows_everything_and_runs_nothing(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0,1", "--dry-run", lines="touch ran\n# c\ntouch ran2\n")

    assert ended.code == 0
    assert ended.out.splitlines()[1:] == [
        "     1  touch ran",
        "     2  touch ran2",
        "2 commands would run",
    ]
    assert os.listdir(stoker.work) == []
    assert stoker.folders() == []


def test_what_stoker_says_itself_goes_to_standard_error(stoker: Stoker) -> None:
    ended = stoker.run("--gpus", "0", lines="true\nfalse\n")

    assert ended.out == ""
    assert all(line.startswith("stoker: ") for line in ended.err.splitlines())
