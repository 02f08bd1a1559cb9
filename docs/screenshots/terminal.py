"""Makes the picture of `stoker run` on a terminal in this folder, from `stoker demo` in tmux.

    python docs/screenshots/terminal.py

Needs tmux.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from html import escape

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))
COLUMNS, LINES = 108, 24
CELL_WIDTH, LINE_HEIGHT, MARGIN = 8.4, 19, 14
PATIENCE_S = 60.0
BACKGROUND, FOREGROUND = "#15181d", "#d5d9e0"
COLOURS = {
    30: "#5c6370",
    31: "#f2777a",
    32: "#8bc98b",
    33: "#e6c06a",
    34: "#7aa9f0",
    35: "#c792dd",
    36: "#66c2c7",
    37: FOREGROUND,
    90: "#7d8590",
}
OF_PALETTE = {"197": "35", "237": "90"}  # a progress bar's two parts
Style = frozenset[int]


class Tmux:
    """A terminal of its own, on a tmux server of its own."""

    def __init__(self, folder: str, command: str) -> None:
        self._socket = os.path.join(folder, "tmux.sock")
        size = ["-x", str(COLUMNS), "-y", str(LINES)]
        self._call("-f", "/dev/null", "new-session", "-d", "-s", "picture", *size, command)

    def screen(self) -> str:
        """What is shown now, with its colours."""
        return self._call("capture-pane", "-e", "-p", "-t", "picture")

    def close(self) -> None:
        """End the terminal and what runs there."""
        self._call("kill-server")

    def _call(self, *words: str) -> str:
        command = ["tmux", "-S", self._socket, *words]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def busy_screen(terminal: Tmux) -> str:
    """The screen when half of the runs have ended, one of them failed, and others run."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        screen = terminal.screen()
        plain = re.sub(r"\x1b\[[0-9;]*m", "", screen)
        if "✗ 6" in plain and re.search(r"\b[89] done", plain):
            return screen
        time.sleep(0.1)
    raise SystemExit("the demo never showed a failed run beside running ones")


def spans(line: str) -> Iterator[tuple[int, str, Style]]:
    """The parts of a line that look alike: first column, text, codes of their style."""
    column, codes = 0, set[int]()
    for text, code in re.findall(r"([^\x1b]+)|\x1b\[([0-9;]*)m", line):
        if palette := re.fullmatch(r"38;5;(\d+)", code):
            code = OF_PALETTE.get(palette[1], "37")
        if text:
            yield column, text, frozenset(codes)
            column += len(text)
            continue
        for number in map(int, (code or "0").split(";")):
            codes -= replaced_by(number)
            codes.add(number)


def replaced_by(code: int) -> set[int]:
    """The codes of a style that end where this one starts."""
    if code == 0:
        return set(range(128))
    if code == 22:
        return {1, 2}
    return {*COLOURS, 39} if code in COLOURS or code == 39 else set()


def svg(screen: str) -> str:
    """A picture of a screen."""
    lines = screen.rstrip().splitlines()
    width, height = COLUMNS * CELL_WIDTH + 2 * MARGIN, len(lines) * LINE_HEIGHT + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" role="img">',
        "<title>stoker run on a terminal: running, waiting and failed commands</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
        f'<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" fill="{FOREGROUND}">',
    ]
    for row, line in enumerate(lines):
        y = MARGIN + (row + 0.75) * LINE_HEIGHT
        parts += [
            f'<text x="{MARGIN + (column + words.start()) * CELL_WIDTH:.1f}" y="{y:g}"'
            f' textLength="{len(words[0]) * CELL_WIDTH:.1f}"{attributes(style)}>{escape(words[0])}</text>'
            for column, text, style in spans(line)
            for words in re.finditer(r"\S+(?: \S+)*", text)
        ]
    return "\n".join([*parts, "</g>", "</svg>", ""])


def attributes(style: Style) -> str:
    """The attributes of a style: bold, dim and the foreground colours."""
    colour = next((COLOURS[code] for code in sorted(style) if code in COLOURS), None)
    return "".join(
        [
            f' fill="{colour}"' if colour else "",
            ' font-weight="bold"' if 1 in style else "",
            ' opacity="0.6"' if 2 in style else "",
        ]
    )


def main() -> None:
    """Make the picture."""
    stoker = os.path.join(os.path.dirname(sys.executable), "stoker")
    with tempfile.TemporaryDirectory() as folder:
        command = f"cd {folder} && TMPDIR={folder} {stoker} demo"
        terminal = Tmux(folder, command)
        try:
            screen = busy_screen(terminal)
        finally:
            terminal.close()
    target = os.path.join(HERE, "run.svg")
    picture = svg(screen.replace(REPOSITORY, "~/stoker"))
    with open(target, "w", encoding="utf-8") as file:
        file.write(picture)
    print(os.path.relpath(target), len(picture) // 1024, "kB")


if __name__ == "__main__":
    main()
