from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from stoker.containers.command import (
    ContainerSettings,
    container_words,
    line_words,
    plain_words,
    read_image,
)
from stoker.core.diagnosis import classify
from stoker.core.failure import Facts, FailureClass
from stoker.errors import UsageError


def run_with(
    engine: str, folder: Path, work: Path, image: str = "img", **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in an image, with an engine that prints its arguments."""
    program = folder / engine
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    whole = {"PATH": f"{folder}:{os.environ['PATH']}", "STOKER_COOKIE": "o:1.1/q:7.2", **env}
    words = container_words(image, ["true"], whole, ContainerSettings(engine), gpus=0)
    return subprocess.run(words, env=whole, cwd=work, capture_output=True, text=True, check=False)


def test_values_of_variables_are_not_on_the_command_line_and_odd_names_stay_out() -> None:
    env = {"TOKEN": "secret", "BASH_FUNC_f%%": "() { :; }", "A*": "1", "PATH": "/host/bin"}
    words = container_words("img", ["true"], env, ContainerSettings("podman"), gpus=0)

    passed = [words[at + 1] for at, word in enumerate(words) if word == "-e"]
    assert "TOKEN" in passed
    assert not {"BASH_FUNC_f%%", "A*", "PATH"} & {*passed}
    assert not any("secret" in word or "/host/bin" in word for word in words)


def test_the_name_of_a_container_is_made_of_the_cookie_of_its_job_alone(tmp_path: Path) -> None:
    lines = run_with("docker", tmp_path, tmp_path).stdout.splitlines()

    assert lines[lines.index("--name") + 1] == "stoker-q-7.2"


@pytest.mark.parametrize("name", ["a,b", "a:b"])
def test_a_folder_that_no_engine_can_mount_is_refused_in_one_line(
    tmp_path: Path, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    ended = run_with("docker", tmp_path, folder)

    assert ended.returncode == 125
    assert ended.stderr == (
        f"stoker: cannot mount a folder with a comma or colon in its name: {folder}\n"
    )


def test_a_folder_of_any_other_name_is_mounted_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "a b *$x'"
    folder.mkdir()
    lines = run_with("docker", tmp_path, folder).stdout.splitlines()

    assert f"{folder}:{folder}" in lines
    assert lines[lines.index("-w") + 1] == str(folder)


def test_a_shell_line_keeps_its_shell_and_a_plain_one_needs_none(tmp_path: Path) -> None:
    assert plain_words("python a.py --lr 0.1", "/bin/sh") == ["python", "a.py", "--lr", "0.1"]
    assert plain_words("exit 3", "/bin/sh") == ["/bin/sh", "-c", "exit 3"]
    assert plain_words("a=1 b", "/bin/sh") == ["/bin/sh", "-c", "a=1 b"]
    assert plain_words("a b", "/bin/bash") == ["/bin/bash", "-c", "a b"]
    script = str(tmp_path / "script")
    assert line_words("x" * 200_000, "/bin/sh", lambda: script) == (["/bin/sh", script], [script])


def test_a_path_to_an_image_becomes_absolute_and_an_option_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_image("./rootfs") == str(tmp_path / "rootfs")
    assert read_image("env.sif") == str(tmp_path / "env.sif")
    assert read_image("pytorch/pytorch:2.4") == "pytorch/pytorch:2.4"
    for text in ("-v/:/host", " "):
        with pytest.raises(ValueError, match="name an image"):
            read_image(text)


def test_an_unknown_engine_in_the_environment_is_refused() -> None:
    with pytest.raises(UsageError, match="STOKER_CONTAINER_ENGINE is 'lxc'"):
        ContainerSettings.from_environment({"STOKER_CONTAINER_ENGINE": "lxc"})


@pytest.mark.parametrize(
    ("code", "tail", "reason"),
    [
        (125, "Error: initializing source docker://img: denied\n", "initializing source"),
        (
            125,
            "docker: Error response from daemon: no such image.\nSee 'docker run -h'.\n",
            "no such",
        ),
        (125, "Trying…\nError: setting up CDI devices: unresolvable nvidia.com/gpu=GPU-1\n", "CDI"),
        (125, "Error: cannot set up namespace: no subuid ranges found for user\n", "subuid"),
        (255, "FATAL:   Unable to handle docker://img uri\n", "Unable to handle"),
        (1, "bwrap: Can't mount proc on /newroot/proc\n", "Can't mount"),
        (125, "stoker: no podman here, or not in PATH\n", "no podman here"),
    ],
)
def test_an_engine_that_starts_nothing_is_no_failure_of_the_command(
    code: int, tail: str, reason: str
) -> None:
    failure = classify(code << 8, tail, Facts(image=True))

    assert failure.kind is FailureClass.CONTAINER
    assert failure.reason.startswith("no container: ")
    assert reason in failure.reason
    assert classify(code << 8, tail).kind is not FailureClass.CONTAINER


@pytest.mark.parametrize("code", [1, 2, 126, 127])
def test_an_error_of_the_command_itself_is_not_one_of_the_engine(code: int) -> None:
    tail = "Error: the loss is wrong\n"

    assert classify(code << 8, tail, Facts(image=True)).kind is not FailureClass.CONTAINER
