from __future__ import annotations

import io

import pytest
from rich.console import Console

from stoker.cli.tables import Column, draw_table, print_facts, print_line, print_table

COLUMNS = (
    Column("ID", right=True),
    Column("NAME", spare=True),
    Column("STATE"),
    Column("COMMAND", gives=True),
)


def drawn(rows: list[tuple[object, ...]], width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(draw_table(COLUMNS, rows))  # type: ignore[arg-type]
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_piped_table_has_all_columns_aligned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(COLUMNS, [("1", "", ("done", "green"), "true"), ("22", "", "waiting", "ls")])

    assert capsys.readouterr().out.splitlines() == [
        "ID  NAME  STATE    COMMAND",
        "1         done     true",
        "22        waiting  ls",
    ]


def test_on_a_terminal_a_spare_column_without_content_is_left_out() -> None:
    assert drawn([("1", "", "done", "true")], 80)[0].split() == ["ID", "STATE", "COMMAND"]
    assert drawn([("1", "x", "done", "true")], 80)[0].split() == ["ID", "NAME", "STATE", "COMMAND"]


def test_a_wide_table_is_cut_in_the_columns_that_give() -> None:
    lines = drawn([("1", "name", "waiting", "python train.py " * 20)], 40)

    assert max(map(len, lines)) <= 40
    assert len(lines) == 2
    assert lines[1].startswith(" 1  name  waiting  python train")
    assert lines[1].endswith("…")


def test_a_command_keeps_its_beginning_and_its_end() -> None:
    columns = (Column("ID"), Column("COMMAND", gives=True, middle=True))
    console = Console(file=io.StringIO(), width=30, force_terminal=True, color_system=None)

    console.print(draw_table(columns, [("1", "python train.py --lr 0.1 --seed 4"), ("2", "ls")]))

    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert lines[1:] == ["1   python train.…0.1 --seed 4", "2   ls"]


def test_control_characters_are_removed_from_every_cell(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evil = "a\x1b[2Jb\nc\x9b1m"

    print_table(COLUMNS, [(evil, evil, evil, evil)])
    print_facts([("name", evil)])
    print_line(evil, (evil, "red"))

    out = capsys.readouterr().out
    assert not set("\x1b\x9b") & set(out)
    assert len(out.splitlines()) == 4
    assert "\x1b[2J" not in "".join(drawn([(evil, evil, evil, evil)], 200))
