"""What Slurm's commands answer, and what becomes of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from stoker.cluster.settings import ClusterSettings
from stoker.cluster.slurm import commands
from stoker.cluster.slurm.batch_script import (
    check_options,
    last_words,
    make_options,
    make_script,
    read_token,
    write_token,
)
from stoker.cluster.slurm.commands import (
    SlurmError,
    SlurmSilentError,
    describe_error,
    list_jobs,
    parse_left,
    submit,
)
from stoker.core.allocation import Rule
from stoker.errors import StokerError

RULE = Rule(id=3, time_s=5400.0, gpus=4, options=("-p", "gpu", "--job-name=mine"))
SETTINGS = ClusterSettings(role="head", address="10.0.0.1", port=7866, own_address="10.0.0.1")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4:05", 245.0),
        ("3:59:10", 14350.0),
        ("1-02:03:04", 93784.0),
        ("UNLIMITED", None),
        ("INVALID", None),
        ("0:00", 0.0),
    ],
)
def test_the_time_that_is_left_is_read_in_all_its_forms(text: str, seconds: float | None) -> None:
    assert parse_left(text) == seconds


def test_of_an_error_the_line_is_told_that_names_the_mistake() -> None:
    munge = (
        "sbatch: error: If munged is up, restart with --num-threads=10\n"
        'sbatch: error: Munge encode failed: Failed to access "/run/munge": No such file or directory\n'
        "sbatch: error: slurm_send_node_msg: auth_g_create: Protocol authentication error\n"
    )
    found = describe_error("sbatch", munge, 1)
    assert (
        found
        == 'sbatch: Munge encode failed: Failed to access "/run/munge": No such file or directory'
    )
    assert describe_error("sbatch", "allocation failure: Bad \x1b[31mthing\n", 1) == (
        "sbatch: allocation failure: Bad  [31mthing"
    )
    assert describe_error("squeue", "", 3) == "squeue failed with exit 3"


def program(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program before all others in PATH."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_one_call_lists_this_queue_jobs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (
        "12|RUNNING|3:59:10|2026-11-20T12:00:00|None|stoker-a-1",
        "13|PENDING|4:00:00|N/A|Priority|stoker-a-2",
        "14|RUNNING|1:00|N/A|None|other",
        "15_3|RUNNING|1:00|N/A|None|stoker-a-1",
        "what|ever",
    )
    program(tmp_path, "squeue", "cat <<'END'\n" + "\n".join(lines) + "\nEND", monkeypatch)
    jobs = list_jobs("stoker-a-")
    assert {*jobs} == {12, 13}
    assert jobs[12].left_s == 14350.0
    assert not jobs[12].is_pending
    assert jobs[13].is_pending
    assert jobs[13].reason == "Priority"


def test_a_script_goes_by_standard_input_without_the_home_of_the_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(
        tmp_path,
        "sbatch",
        f'cat >{tmp_path}/script; echo "$@" >{tmp_path}/words; env >{tmp_path}/env; echo "77;lab"',
        monkeypatch,
    )
    monkeypatch.setenv("STOKER_HOME", "/somewhere")
    monkeypatch.setenv("STOKER_CLUSTER_TOKEN", "secret")
    assert submit(["-p", "gpu"], "#!/bin/sh\n") == 77
    assert (tmp_path / "script").read_text() == "#!/bin/sh\n"
    assert (tmp_path / "words").read_text() == "-p gpu --parsable\n"
    environment = (tmp_path / "env").read_text()
    assert "STOKER_HOME" not in environment
    assert "secret" not in environment


def test_an_answer_without_a_number_is_no_allocation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "sbatch", "echo hello", monkeypatch)
    with pytest.raises(SlurmError, match="sbatch answers 'hello' and no number"):
        submit([], "")


def test_a_controller_that_does_not_answer_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "echo 'sbatch: error: Unable to contact slurm controller (connect failure)' >&2; exit 1"
    program(tmp_path, "sbatch", text, monkeypatch)
    with pytest.raises(SlurmSilentError, match="sbatch: Unable to contact slurm controller"):
        submit([], "")
    program(
        tmp_path, "sbatch", "echo 'allocation failure: Invalid account' >&2; exit 1", monkeypatch
    )
    with pytest.raises(SlurmError, match="Invalid account") as refused:
        submit([], "")
    assert not isinstance(refused.value, SlurmSilentError)


def test_a_command_that_hangs_without_munged_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "sbatch", "exec sleep 1000", monkeypatch)
    monkeypatch.setattr(commands, "_TIMEOUT_S", 0.2)
    monkeypatch.setattr(commands, "_runs", lambda name: name != "munged")
    with pytest.raises(SlurmSilentError, match="within 0s: munged does not run on this machine"):
        submit([], "")


def test_without_slurm_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        SlurmError, match="Slurm is not installed on this machine: there is no scancel"
    ):
        commands.cancel([1])


def test_options_of_the_user_cannot_replace_those_of_an_allocation() -> None:
    options = make_options(RULE, "stoker-a", "/shared")
    assert options[:3] == ["-p", "gpu", "--job-name=mine"]
    assert options.index("--job-name=stoker-a-3") > options.index("--job-name=mine")
    assert {"--gres=gpu:4", "--time=90", "--no-requeue", "--nodes=1"} <= {*options}
    own = Rule(id=1, time_s=61.0, options=("--gres=gpu:a100:2",))
    assert [word for word in make_options(own, "q", "/") if "gres" in word] == ["--gres=gpu:a100:2"]
    assert "--time=2" in make_options(own, "q", "/")
    for word in ("--array=1-3", "--wrap", "-a", "--requeue"):
        with pytest.raises(StokerError, match=f"{word}: an allocation is one job"):
            check_options([word])


def test_the_token_is_in_a_private_file_and_in_no_script(tmp_path: Path) -> None:
    home, shared = tmp_path / "home", tmp_path / "shared"
    shared.mkdir()
    path = Path(write_token(str(home), 3, str(shared)))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    script = make_script(RULE, SETTINGS, str(path))
    secret = path.read_text().rpartition("-")[2]
    assert secret not in script
    assert f"--token-file {path}" in script
    assert write_token(str(home), 3, str(shared)) == str(path)
    assert path.read_text().endswith(secret)  # it is still valid, and kept
    assert (read_token(3, str(shared)) or "none") in path.read_text()


def test_the_last_line_of_an_allocation_is_told_as_plain_text(tmp_path: Path) -> None:
    (tmp_path / "7.log").write_bytes(b"first\n\x1b[31mno \xffway\n\n")
    assert last_words(7, str(tmp_path)) == "[31mno \ufffdway"
    assert last_words(8, str(tmp_path)) is None
