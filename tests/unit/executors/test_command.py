from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import UsageError
from stoker.executors.command import DEFAULT_SHELL, CommandLine, resolve_shell

PLAIN = "abcXYZ019_@%+=:,./ \t-"
OWN_WORDS = (
    "cd",
    "echo",
    "exit",
    "export",
    "if",
    "for",
    "test",
    "[",
    ":",
    ".",
    "set",
    "ulimit",
    "kill",
)
steady = settings(deadline=None, derandomize=True, max_examples=80)


def program(folder: Path, name: str, mode: int = 0o755) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return str(path)


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    return tmp_path / "bin"


def split_by_sh(line: str) -> list[str]:
    """The words that a shell makes of a line."""
    script = f'set -- {line}\nfor word in "$@"; do printf \'%s\\0\' "$word"; done'
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def test_a_plain_line_is_executed_without_a_shell(bin_folder: Path) -> None:
    train = program(bin_folder, "train")
    line = CommandLine(DEFAULT_SHELL, str(bin_folder))

    assert line.words(b"train --lr=0.1  data/a,b\t@x +y 50% a:b") == [
        train,
        "--lr=0.1",
        "data/a,b",
        "@x",
        "+y",
        "50%",
        "a:b",
    ]


@steady
@given(st.text(PLAIN, max_size=40))
def test_any_plain_line_has_the_words_that_a_shell_would_make(rest: str) -> None:
    command = f"env {rest}"

    words = CommandLine(DEFAULT_SHELL, os.environ["PATH"]).words(command.encode())

    assert os.path.basename(words[0]) == "env"
    assert words[1:] == split_by_sh(command)[1:]


@steady
@given(st.binary(min_size=1, max_size=60).filter(bytes.strip))
def test_any_other_line_goes_to_the_shell_as_it_is(command: bytes) -> None:
    words = CommandLine(DEFAULT_SHELL, "").words(command)

    assert words[:2] == [DEFAULT_SHELL, "-c"]
    assert os.fsencode(words[2]) == command


@pytest.mark.parametrize(
    "command",
    [
        b"train && train",
        b"train; train",
        b"train | cat",
        b"train > out",
        b"train &",
        b"train $X",
        b"train `x`",
        b"train 'a b'",
        b'train "a"',
        b"train a\\ b",
        b"train *",
        b"train a?",
        b"train [a]",
        b"train ~",
        b"train {a,b}",
        b"train # comment",
        b"train !x",
        b"(train)",
        b"train\ntrain",
        b"train \xff",
        "train ü".encode(),
    ],
)
def test_shell_syntax_needs_a_shell(bin_folder: Path, command: bytes) -> None:
    program(bin_folder, "train")
    line = CommandLine(DEFAULT_SHELL, str(bin_folder))

    assert line.words(command) == [DEFAULT_SHELL, "-c", os.fsdecode(command)]


@pytest.mark.parametrize("word", OWN_WORDS)
def test_the_shells_own_words_need_a_shell_also_where_a_program_has_that_name(
    bin_folder: Path, word: str
) -> None:
    if word not in ".:[":
        program(bin_folder, word)
    command = f"{word} x".encode()

    assert CommandLine(DEFAULT_SHELL, str(bin_folder)).words(command)[0] == DEFAULT_SHELL


def test_an_assignment_before_the_program_needs_a_shell(bin_folder: Path) -> None:
    program(bin_folder, "train")
    program(bin_folder, "LR=1")
    line = CommandLine(DEFAULT_SHELL, str(bin_folder))

    assert line.words(b"LR=1 train")[0] == DEFAULT_SHELL
    assert line.words(b"train LR=1")[0] != DEFAULT_SHELL


def test_what_no_folder_has_is_left_to_the_shell_to_complain_about(bin_folder: Path) -> None:
    program(bin_folder, "data", mode=0o644)
    (bin_folder / "folder").mkdir()
    line = CommandLine(DEFAULT_SHELL, str(bin_folder))

    for command in (b"missing x", b"data x", b"folder x", b"/missing/x", b"./missing"):
        assert line.words(command)[0] == DEFAULT_SHELL


def test_the_first_folder_on_the_path_wins(tmp_path: Path) -> None:
    first = program(tmp_path / "a", "train")
    program(tmp_path / "b", "train")

    assert CommandLine(DEFAULT_SHELL, f"{tmp_path}/a:{tmp_path}/b").words(b"train") == [first]


def test_a_path_with_a_slash_is_taken_as_it_is(bin_folder: Path) -> None:
    train = program(bin_folder, "train")

    assert CommandLine(DEFAULT_SHELL, "").words(f"{train} x".encode()) == [train, "x"]


def test_what_was_found_is_remembered_and_what_was_not_is_looked_for_again(
    bin_folder: Path,
) -> None:
    line = CommandLine(DEFAULT_SHELL, str(bin_folder))
    assert line.words(b"train")[0] == DEFAULT_SHELL

    train = program(bin_folder, "train")
    assert line.words(b"train") == [train]

    os.unlink(train)
    assert line.words(b"train") == [train]


@pytest.mark.parametrize("blank", [b" ", b"\t \t"])
def test_a_blank_line_is_no_accident(blank: bytes) -> None:
    assert CommandLine(DEFAULT_SHELL, "").words(blank)[0] == DEFAULT_SHELL


def test_another_shell_gets_every_line(bin_folder: Path) -> None:
    program(bin_folder, "train")

    words = CommandLine("/bin/other", str(bin_folder)).words(b"train x")

    assert words == ["/bin/other", "-c", "train x"]


def test_the_default_shell_is_sh() -> None:
    assert resolve_shell(None) == "/bin/sh"


def test_a_shell_is_found_by_name_or_path(
    bin_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fish = program(bin_folder, "fish")
    monkeypatch.setenv("PATH", str(bin_folder))

    assert resolve_shell("fish") == fish
    assert resolve_shell(fish) == fish


def test_a_relative_path_to_a_shell_is_made_absolute(
    bin_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fish = program(bin_folder, "fish")
    monkeypatch.chdir(bin_folder)

    assert resolve_shell("./fish") == fish


def test_login_is_the_users_own_shell() -> None:
    assert resolve_shell("login") == (pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh")


def test_a_shell_that_does_not_exist_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match="no shell 'no-such-shell'"):
        resolve_shell("no-such-shell")
