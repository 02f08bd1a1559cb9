from __future__ import annotations

import base64
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoker import wire
from stoker.cli.main import main

Message = dict[str, Any]


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """Return the sent submissions; the test has its own home and working folder."""
    messages: list[Message] = []

    def submit(_home: str, message: Message) -> Message:
        msgspec.convert(message, wire.Submission)
        messages.append(message)
        return {"first": 12, "last": 12, "repeated": False, "notice": None}

    monkeypatch.setattr("stoker.client.submit.submit", submit)
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return messages


def test_one_word_is_a_shell_line_and_several_are_a_command(sent: list[Message]) -> None:
    assert main(["add", "python a.py | tee log"]) == 0
    assert main(["add", "python", "a.py", "--lr", "1", "-q", "a b"]) == 0

    assert sent[0]["jobs"] == [{"command": "python a.py | tee log"}]
    assert sent[1]["jobs"] == [{"command": ["python", "a.py", "--lr", "1", "-q", "a b"]}]


def test_two_dashes_end_the_options(
    sent: list[Message], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["add", "-q", "--", "sh", "-c", "exit 7", "--"]) == 0

    assert sent[0]["jobs"] == [{"command": ["sh", "-c", "exit 7", "--"]}]
    assert capsys.readouterr().out == "12\n"


def test_add_prints_the_id(sent: list[Message], capsys: pytest.CaptureFixture[str]) -> None:
    main(["add", "true"])

    assert capsys.readouterr().out == "added job 12\n"


def test_every_option_is_sent(sent: list[Message], tmp_path: Path) -> None:
    words = "add -N big -p 5 -g 2 -t 1h30m --retries 3 --project vision --shell /bin/sh --linger"

    assert main([*words.split(), "-o", "logs/{project}/{name}/{id}.log", "-C", "..", "true"]) == 0

    message = sent[0]
    assert message["name"] == "big"
    assert message["priority"] == 5
    assert message["gpus"] == 2
    assert message["timeout_s"] == 5400
    assert message["retries"] == 3
    assert message["project"] == "vision"
    assert message["shell"] == "/bin/sh"
    assert message["linger"] is True
    assert message["log"] == f"{tmp_path}/work/logs/{{project}}/{{name}}/{{id}}.log"
    assert message["cwd"] == str(tmp_path)
    assert len(message["request_id"]) >= 8


def test_the_environment_is_sent_without_variables_of_another_job(
    sent: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environb, b"PLAIN", "wért".encode())
    monkeypatch.setitem(os.environb, b"RAW", b"\xff\xfe")
    monkeypatch.setenv("STOKER_LEASE_DIR", "/leases")
    monkeypatch.delenv("STOKER_LONG", raising=False)  # of the tests themselves
    for name in ("COOKIE", "JOB_ID", "ATTEMPT", "PART", "CHECKPOINT_DIR"):
        monkeypatch.setenv(f"STOKER_{name}", "1")

    main(["add", "true"])

    assert sent[0]["env"]["PLAIN"] == "wért"
    assert {name for name in sent[0]["env"] if name.startswith("STOKER_")} == {
        "STOKER_HOME",
        "STOKER_LEASE_DIR",
    }
    assert base64.b64decode(sent[0]["env_b64"]) == b"RAW=\xff\xfe\0"


def test_bytes_that_are_not_utf8_are_sent_unchanged(sent: list[Message], tmp_path: Path) -> None:
    folder = os.path.join(os.fsencode(tmp_path), b"caf\xe9")
    os.mkdir(folder)

    main(
        ["add", "-C", os.fsdecode(folder), "-o", os.fsdecode(b"\xff.log"), os.fsdecode(b"ls \xff")]
    )

    job = msgspec.convert(sent[0], wire.Submission)
    assert wire.from_wire(job.cwd) == folder
    assert isinstance(job.jobs[0].command, wire.Base64)
    assert wire.from_wire(job.jobs[0].command) == b"ls \xff"
    assert wire.from_wire(job.log or "") == os.fsencode(tmp_path) + b"/work/\xff.log"


def test_a_script_is_sent_with_its_present_content(sent: list[Message], tmp_path: Path) -> None:
    Path("run.sh").write_text("#!/bin/bash\nset -e\ntrue\n")

    assert main(["add", "--script", "run.sh"]) == 0

    assert sent[0]["jobs"] == [{"command": "#!/bin/bash\nset -e\ntrue\n", "script": True}]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no command was given"),
        (["-q", "--"], "no command was given"),
        (["  "], "the command is empty"),
        (["--script", "a", "true"], "give one of a command, --script and --batch"),
        (["--script", "a", "--batch", "b"], "give one of a command, --script and --batch"),
        (["--script", "missing"], "cannot read missing: No such file"),
        (["--batch", "missing"], "cannot read missing: No such file"),
        (["--batch", "."], "cannot read .: Is a directory"),
        (["--batch", "empty"], "it has no jobs"),
        (["--script", "empty"], "the script is empty"),
        (["--batch", "nul"], "job 2 of the batch holds a NUL byte"),
        (["--batch", "one", "--follow"], "leave it out with --batch"),
        (["--batch", "one", "-o", "x.log"], "put {id} into its name"),
        (["--batch", "peasy", "--format", "gpupeasy", "-o", "{id}"], "names its own output file"),
        (["--batch", "one", "--format", "gpupeasy"], "1 error, nothing was added"),
        (["--batch", "peasy", "-o", "{id}"], "names its own output file"),
        (["-g", "-1", "true"], "-g -1: write 0 or more"),
        (["-P", "", "true"], "-P is empty: name it, or leave -P out"),
        (
            ["--batch", "one.py"],
            "one.py is a program, not a list of commands: stoker add python one.py",
        ),
        (["-n", "big", "true"], "a name follows -N or --name"),
        (["-g", "x", "true"], "invalid int value: 'x'"),
        (["--retries", "-1", "true"], "--retries -1: write 0 or more"),
        (["-t", "5", "true"], "write 5s, 5m or 5h"),
        (["-o", "{user}.log", "true"], "there is no {user}, only {project}, {name}, {id}"),
        (["--shell", "nosuchshell", "true"], "no shell 'nosuchshell'"),
        (["--format", "csv", "true"], "invalid choice: 'csv'"),
        (["-C", "missing", "true"], "missing does not exist"),
        (["-C", "one", "true"], "one is no folder"),
    ],
)
def test_a_mistake_is_reported_in_one_line_and_nothing_is_sent(
    sent: list[Message], capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    Path("empty").write_text("\n# nothing\n" if "--batch" in words else "")
    Path("one").write_text("true\n")
    Path("one.py").write_text("print(1)\n")
    Path("nul").write_bytes(b"true\nfal\0se\n")
    Path("peasy").write_text("a;;a.txt;;true;;;")

    code = main(["add", *words])

    err = capsys.readouterr().err
    assert code in (1, 2)
    assert message in err
    assert err.startswith("stoker: ")
    assert err.count("\n") == 1
    assert sent == []


def test_a_byte_order_mark_is_no_part_of_a_batch(sent: list[Message]) -> None:
    Path("jobs").write_bytes(b"\xef\xbb\xbf#!/bin/sh\ntrue\n")

    assert main(["add", "--script", "jobs"]) == 0

    assert sent[0]["jobs"][0]["command"] == "#!/bin/sh\ntrue\n"


def test_a_line_for_bash_is_explained_unless_a_shell_is_named(
    sent: list[Message], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.executors.command.lacks_bash", lambda _shell: True)

    assert main(["add", "source env.sh && python a.py"]) == 0
    assert capsys.readouterr().err == "stoker: /bin/sh does not know source: --shell bash does\n"
    assert main(["add", "--shell", "bash", "source env.sh && python a.py"]) == 0
    assert capsys.readouterr().err == ""
    assert len(sent) == 2


def test_a_deleted_working_folder_is_reported(
    sent: list[Message], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "work").rmdir()

    assert main(["add", "true"]) == 1
    assert main(["add", "-C", str(tmp_path), "true"]) == 0
    assert main(["add", "-C", str(tmp_path), "-o", "x", "true"]) == 1

    err = capsys.readouterr().err
    assert err == "stoker: the folder you are in is gone: cd to one that exists\n" * 2


def test_the_commit_of_a_repository_is_sent(
    sent: list[Message], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work" / ".git").mkdir()
    (tmp_path / "work" / ".git" / "HEAD").write_text("a" * 40)
    monkeypatch.setenv("PATH", "/nonexistent")

    main(["add", "true"])

    assert sent[0]["git"] == {"commit": "a" * 40, "dirty": True}


def test_sync_sends_a_snapshot_and_the_results_folder(sent: list[Message], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("one")
    main(["add", "--sync", "--results", f"{os.getcwd()}/out", "python train.py"])

    assert (tmp_path / "home" / "snapshots" / sent[0]["snapshot"]).is_dir()
    assert (sent[0]["sync"], sent[0]["results"]) == (True, "out")


def test_results_without_sync_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["add", "--results", "out", "true"]) == 2
    assert "give --sync as well" in capsys.readouterr().err


def test_a_snapshot_is_taken_at_once(sent: list[Message], tmp_path: Path) -> None:
    Path("train.py").write_text("one")

    main(["add", "--snapshot", "python train.py"])

    copy = tmp_path / "home" / "snapshots" / sent[0]["snapshot"]
    assert (copy / "train.py").read_text() == "one"


def test_every_parsed_option_is_sent(sent: list[Message], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1000.0)
    words = (
        "add --hold --after 1,2 --after-any train --begin +10m --retries 2 --backoff 1m -t 1h"
        " --requeue --preemptible --preempt --signal USR1 --grace 0"
        " --on-nan stop --stall 20m --idle never --on-cut finish true"
    )

    assert main(words.split()) == 0

    options = {
        "hold": True,
        "after": "1,2",
        "after_any": "train",
        "begin_at": 1600.0,
        "backoff_s": 60.0,
        "requeue": True,
        "preemptible": True,
        "preempt": True,
        "stop_signal": 10,
        "grace_s": 0.0,
        "on_nan": "stop",
        "stall_s": 1200.0,
        "idle_s": 0.0,
        "on_cut": "finish",
    }
    assert {name: sent[0][name] for name in options} == options


@pytest.mark.parametrize(
    ("words", "stop_signal", "grace_s"),
    [
        ("hf", signal.SIGTERM, 300.0),
        ("lightning", signal.SIGTERM, 300.0),
        ("submitit", signal.SIGUSR2, 90.0),
        ("hf --grace 20m", signal.SIGTERM, 1200.0),
        ("lightning --signal USR2", signal.SIGUSR2, 300.0),
    ],
)
def test_a_framework_sets_signal_and_grace_unless_they_are_given(
    sent: list[Message], words: str, stop_signal: int, grace_s: float
) -> None:
    assert main(["add", "--checkpoint", *words.split(), "true"]) == 0

    assert (sent[0]["stop_signal"], sent[0]["grace_s"]) == (stop_signal, grace_s)
    assert sent[0]["signal_main"] is True


def test_placement_and_sharing_options_are_sent(sent: list[Message]) -> None:
    words = (
        "add --share always:2 --gpu-mem 1G --cpus 8 --mem 1.5G --node gpu1,gpu2 --on a100"
        " --node-label disk=fast --node-label net=ib --warm torch,numpy --mps true"
    )

    assert main(words.split()) == 0

    options = {
        "share": "always:2",
        "gpu_mem_bytes": 2**30,
        "cpus": 8,
        "mem_bytes": 3 * 2**29,
        "nodes": ["gpu1", "gpu2"],
        "on": "a100",
        "node_labels": {"disk": "fast", "net": "ib"},
        "warm": ["torch", "numpy"],
        "mps": True,
    }
    assert {name: sent[0][name] for name in options} == options


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--share some", "--share: 'some' is not a sharing mode"),
        ("--gpu-mem much", "--gpu-mem: "),
        ("--mem lots", "--mem: 'lots' is not an amount of memory: write 10G"),
        ("--mem 1", "--mem: '1' is not an amount of memory: write 10G"),
        ("--mem 9999T", "--mem: '9999T' is more memory than any machine has"),
        ("--cpus 0", "--cpus 0: write 1 or more"),
        ("--cpus many", "argument --cpus: invalid int value: 'many'"),
        ("--node ,", "--node: name one node"),
        ("--node-label fast", "--node-label fast: write name and value"),
        ("--warm python", "--warm: name modules"),
        ("--begin 2001-01-01", "lies in the past"),
        ("--begin soon", "is not a time"),
        ("--after ,", "--after: name jobs"),
        ("--backoff 1m", "give --retries as well"),
        ("--retries 1 --backoff 2d", "at most 1d"),
        ("--requeue", "give -t as well"),
        ("--signal STOP", "does not end it"),
        ("--grace soon", "is not a duration"),
        ("--checkpoint keras", "invalid choice: 'keras'"),
        ("--on-nan kill", "invalid choice: 'kill'"),
        ("--stall 20", "--stall: '20' has no unit: write 20s, 20m or 20h, or never"),
        ("--idle soon", "--idle: 'soon' is not a duration"),
        ("-g 0 --idle 5m", "--idle is for a job with a GPU"),
    ],
)
def test_a_wrong_option_is_refused(
    sent: list[Message], words: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["add", *words.split(), "true"]) == 2

    assert complaint in capsys.readouterr().err
    assert sent == []
