from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from integration.daemon_fixture import Queue


@pytest.fixture
def program(queue: Queue) -> Path:
    """Return a folder with a program named stoker in it."""
    path = queue.work / "bin" / "stoker"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m stoker "$@"\n')
    path.chmod(0o755)
    return path.parent


def shell(queue: Queue, program: Path, *words: str) -> list[str]:
    env = {**queue.env, "PATH": f"{program}:{queue.env['PATH']}"}
    ended = subprocess.run(
        words, env=env, capture_output=True, text=True, cwd=queue.work, check=False
    )
    assert ended.stderr == ""
    return ended.stdout.splitlines()


def bash(queue: Queue, program: Path, line: str) -> list[str]:
    """What bash offers when Tab is pressed at the end of a line."""
    script = """
        source <(stoker completion bash)
        compopt() { :; }
        read -r -a COMP_WORDS <<< "$1"
        [[ $1 == *' ' ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _stoker
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    return [word for word in shell(queue, program, "bash", "-c", script, "bash", line) if word]


def test_bash_completes_verbs_options_states_and_settings(queue: Queue, program: Path) -> None:
    assert bash(queue, program, "stoker rel") == ["release"]
    assert {"retry", "resume"} < {*bash(queue, program, "stoker re")}
    assert bash(queue, program, "stoker kill --g") == ["--grace"]
    assert bash(queue, program, "stoker ls -s fa") == ["failed"]
    assert bash(queue, program, "stoker ls -s failed,lo") == ["failed,lost"]
    assert bash(queue, program, "stoker set 1 pri") == ["priority="]
    assert bash(queue, program, "stoker gpus drain ") == ["0", "1"]
    assert "keep.days" in bash(queue, program, "stoker config keep")
    assert bash(queue, program, "stoker help dep") == ["dependencies"]
    assert bash(queue, program, "stoker completion f") == ["fish"]
    assert bash(queue, program, "stoker add python tr") == []


def test_bash_completes_jobs_in_the_states_that_a_verb_takes(queue: Queue, program: Path) -> None:
    queue.add("--hold", "-N", "held-one", "-P", "vision", "true")
    queue.add("--hold", "-N", "held-two", "true")
    queue.add("-g", "0", "-N", "over", "true")
    queue.ok("wait", "3")

    assert bash(queue, program, "stoker release ") == [
        "held-one",
        "vision/held-one",
        "held-two",
        "1",
        "2",
    ]
    assert bash(queue, program, "stoker show ov") == ["over"]
    assert bash(queue, program, "stoker release 1,held-t") == ["1,held-two"]
    assert bash(queue, program, "stoker retry ") == ["over", "3"]
    assert bash(queue, program, "stoker ls -P v") == ["vision"]
    assert bash(queue, program, "stoker add --after ov") == ["over"]


def test_completion_without_a_daemon_is_silent_and_starts_none(idle_queue: Queue) -> None:
    ended = idle_queue("complete", "--", "kill", "")

    assert (ended.code, ended.out, ended.err) == (0, "", "")
    assert not (idle_queue.home / "stoker.db").exists()


def test_a_real_bash_completes_a_line(queue: Queue, program: Path) -> None:
    import os
    import pty

    ours, theirs = pty.openpty()
    env = {**queue.env, "PATH": f"{program}:{queue.env['PATH']}", "TERM": "dumb", "PS1": "$ "}
    with subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        os.write(ours, b"source <(stoker completion bash)\nstoker stat\t; exit\n")
        text = b""
        try:
            while chunk := os.read(ours, 4096):
                text += chunk
        except OSError:
            pass
        process.wait(20)
    os.close(ours)

    assert b"CPU jobs" in text


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_accepts_its_script(queue: Queue, program: Path) -> None:
    script = "autoload -U compinit; compinit -D; source <(stoker completion zsh); whence -w _stoker"

    assert shell(queue, program, "zsh", "-f", "-c", script) == ["_stoker: function"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_verbs(queue: Queue, program: Path) -> None:
    script = "stoker completion fish | source; complete -C 'stoker rele'"

    found = shell(queue, program, "fish", "--no-config", "-c", script)
    assert [line.split("\t")[0] for line in found] == ["release"]
