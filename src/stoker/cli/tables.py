"""Tables and lists of facts: fitted and coloured on a terminal, plain aligned text in a pipe.

Control characters are removed from every cell: names, commands and reasons come from outside.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

from stoker.cli.messages import harmless

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

Cell = str | tuple[str, str]  # a text, or a text and its style
Row = Sequence[Cell]
Titles = Mapping[int, Cell]  # lines of their own, each before the row of this number


_NONE: Titles = {}


class Column:
    """A column of a table.

    On a terminal `fold` breaks long cells into lines and `middle` cuts them in the middle; other
    long cells end in `…`. Columns with `gives` are narrowed first. A `spare` column is left out if
    all its cells are empty.
    """

    __slots__ = ("fold", "gives", "header", "middle", "right", "spare")

    def __init__(
        self,
        header: str,
        *,
        right: bool = False,
        fold: bool = False,
        middle: bool = False,
        gives: bool = False,
        spare: bool = False,
    ) -> None:
        self.header = header
        self.right = right
        self.fold = fold
        self.middle = middle
        self.gives = gives
        self.spare = spare


def print_table(columns: Sequence[Column], rows: Sequence[Row], titles: Titles = _NONE) -> None:
    """Print rows below their headers; with titles no column may be folded."""
    if sys.stdout.isatty():
        _print(draw_titled(columns, rows, titles))
    else:
        _print_plain([[column.header for column in columns], *map(_texts, rows)], titles)


def print_facts(facts: Sequence[tuple[str, Cell]]) -> None:
    """Print names and values, one per line."""
    if sys.stdout.isatty():
        _print(draw_facts(facts))
    else:
        _print_plain([[name, *_texts([cell])] for name, cell in facts])


def print_line(*pieces: Cell) -> None:
    """Print one line of coloured pieces."""
    if sys.stdout.isatty():
        _print(join(pieces), soft_wrap=True)
    else:
        print("".join(_texts(pieces)))


def _print(drawn: RenderableType, *, soft_wrap: bool = False) -> None:
    from rich.console import Console

    Console(highlight=False, soft_wrap=soft_wrap).print(drawn)


def draw_table(columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    """Build the table for a terminal, without empty spare columns."""
    from rich.table import Table

    shown = [
        index
        for index, column in enumerate(columns)
        if not column.spare or any(_texts([row[index]])[0] for row in rows)
    ]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for index in shown:
        column = columns[index]
        table.add_column(
            column.header,
            justify="right" if column.right else "left",
            overflow="fold" if column.fold else "ellipsis",
            no_wrap=not (column.fold or column.gives),  # what may wrap is narrowed first
        )
    for row in rows:
        table.add_row(*(_draw_cell(row[index], columns[index]) for index in shown))
    return table


def draw_titled(columns: Sequence[Column], rows: Sequence[Row], titles: Titles) -> RenderableType:
    """Build the table for a terminal, with titles between its rows."""
    table = draw_table(columns, rows)
    return _Titled(table, {number: draw(title) for number, title in titles.items()})


def draw_facts(facts: Sequence[tuple[str, Cell]]) -> RenderableType:
    """Build the list of facts for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, cell in facts:
        table.add_row(Text(name, "dim"), draw(cell))
    return table


def draw_progress(counts: Text, total: int, completed: int, text: str | Text) -> Table:
    """Build a line with counts, a bar and a text."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    line = Table.grid(padding=(0, 2), expand=True)
    line.add_column(no_wrap=True)
    line.add_column(ratio=1)
    line.add_column(no_wrap=True)
    line.add_row(counts, ProgressBar(total=max(1, total), completed=completed), text)
    return line


def draw(cell: Cell) -> Text:
    """Build the text of a cell."""
    from rich.text import Text

    text, style = (cell, "") if isinstance(cell, str) else cell
    return Text(harmless(text), style, overflow="fold")


def join(pieces: Sequence[Cell]) -> Text:
    """Build a text of several cells."""
    from rich.text import Text

    return Text.assemble(*map(draw, pieces))


def _draw_cell(cell: Cell, column: Column) -> RenderableType:
    text = draw(cell)
    if not column.fold:
        text.no_wrap, text.overflow = True, "ellipsis"
    return CutInTheMiddle(text) if column.middle else text


class CutInTheMiddle:
    """Text that is cut in the middle: commands of a sweep differ at their ends."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_measure__(self, _console: Console, _options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement

        return Measurement(1, max(1, self._text.cell_len))

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[Text]:
        text, room = self._text, options.max_width
        if text.cell_len > room > 1:
            end = (room - 1) // 2
            text = text[: room - 1 - end] + "…" + text[len(text) - end :]
            text.no_wrap, text.overflow = True, "ellipsis"
        yield text


class _Titled:
    """A table with titles between its rows."""

    def __init__(self, table: Table, titles: Mapping[int, Text]) -> None:
        self._table = table
        self._titles = titles

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        from rich.segment import Segment, Segments

        if not self._titles:
            yield self._table
            return
        for number, line in enumerate(console.render_lines(self._table, options), -1):
            if number in self._titles:
                yield self._titles[number]
            yield Segments([*line, Segment.line()])


def cut_middle(text: str, width: int) -> str:
    """Cut a text in the middle to a width: names and commands of a sweep differ at their ends."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return text[: width - 1 - end] + "…" + text[len(text) - end :]


def _texts(cells: Row) -> list[str]:
    return [harmless(cell if isinstance(cell, str) else cell[0]) for cell in cells]


def _print_plain(lines: Sequence[Sequence[str]], titles: Titles = _NONE) -> None:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for number, line in enumerate(lines, -1):
        if number in titles:
            print(*_texts([titles[number]]))
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


def format_size(count: int) -> str:
    """Format a number of bytes."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
