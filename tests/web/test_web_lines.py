"""What a terminal would show, as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from web.modules import Modules

_FEED = """async (pieces) => {
  const {Lines, piecesOf, textOf} = await import('/logic/lines.js');
  const {lookOf} = await import('/logic/styles.js');
  const lines = new Lines();
  for (const piece of pieces) lines.feed(piece);
  const rows = lines.rows.slice(0, lines.length);
  return {
    texts: rows.map(textOf),
    looks: rows.map((row) => piecesOf(row).map(([text, look]) => [text, lookOf(look)])),
    cut: lines.cut, dropped: lines.dropped,
  };
}"""


def feed(modules: Modules, *pieces: str) -> dict[str, Any]:
    found = modules.run(_FEED, list(pieces))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("one\ntwo\n", ["one", "two"]),
        ("one\r\ntwo\r\n", ["one", "two"]),
        ("no end", ["no end"]),
        ("a\n\nb", ["a", "", "b"]),
        (" 0%\r 50%\r100%\n", ["100%"]),
        ("long bar\rshort\x1b[K\n", ["short"]),
        ("abc\bX", ["abX"]),
        ("one\ntwo\nthree\x1b[2A\rONE\n", ["ONE", "two", "three"]),
        ("one\ntwo\x1b[1A\x1b[2K\rnew\x1b[1B\r", ["new", "two"]),
        ("one\ntwo\nthree\x1b[2A\r\x1b[J", []),
        ("a\x1b[5Gb", ["a   b"]),
        ("a\x1b[3Cb\x1b[2Dc", ["a  cb"]),
        ("\x1b]0;a title\x07text", ["text"]),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", ["link"]),
        ("\x1b[2J\x1b[Hstays", ["stays"]),
        ("\x1b[?25lhidden cursor", ["hidden cursor"]),
        ("bell\x07 nul\x00 c1\x9b31m", ["bell nul c131m"]),
        ("\x1b]52;c;never ends\nnext", ["", "next"]),
        ("\x1bP1$rq\x1b\\after", ["after"]),
        ("<script>alert(1)</script>", ["<script>alert(1)</script>"]),
        ("tab\there", ["tab\there"]),
        ("\x1b[999999999A\x1b[999999999Dx", ["x"]),
    ],
)
def test_lines_equal_those_of_a_terminal(modules: Modules, written: str, shown: list[str]) -> None:
    assert feed(modules, written)["texts"] == shown


def test_chunks_may_end_anywhere(modules: Modules) -> None:
    text = "a\x1b[1;31mred\x1b[0m\r\nnext\x1b]0;title\x07 line\x1b[2K\rlast\n"
    assert feed(modules, *text) == feed(modules, text)


def test_colours_and_weights_are_kept_and_end(modules: Modules) -> None:
    [row] = feed(modules, "a\x1b[1;32mb\x1b[38;5;200mc\x1b[48;2;1;2;3md\x1b[me")["looks"]
    assert [text for text, _look in row] == ["a", "b", "c", "d", "e"]
    looks = [look for _text, look in row]
    assert (looks[1]["fg"], looks[1]["bold"]) == (2, True)
    assert looks[2]["fg"] == 200
    assert looks[3]["bg"] == "#010203"
    assert looks[4] == looks[0]


def test_text_over_coloured_text_has_its_own_style(modules: Modules) -> None:
    [row] = feed(modules, "\x1b[31mabcdef\x1b[0m\rXY")["looks"]
    assert [(text, look["fg"]) for text, look in row] == [("XY", None), ("cdef", 1)]


@pytest.mark.parametrize("written", ["x" * 10_000_000, "\x1b[31m" + "x" * 10_000_000])
def test_a_line_of_ten_megabytes_is_cut_and_that_is_counted(modules: Modules, written: str) -> None:
    # Made in the browser: to carry it there would take longer than to read it.
    code = _FEED.replace("lines.feed(piece)", "lines.feed(piece.repeat(1_000_000))")
    found = modules.run(code, [written[:15]])
    kept = len(found["texts"][0])
    assert kept == 10_000
    assert found["cut"] > 9_000_000


def test_the_newest_of_very_many_lines_are_kept(modules: Modules) -> None:
    code = _FEED.replace("lines.feed(piece)", "lines.feed(piece.repeat(300_000) + 'last')")
    code = code.replace("texts: rows.map(textOf)", "texts: rows.slice(-2).map(textOf)")
    found = modules.run(code.replace("looks: rows.map", "looks: rows.slice(-1).map"), ["line\n"])
    assert found["texts"] == ["line", "last"]
    assert found["dropped"] > 0


def test_colours_beyond_the_limit_are_ignored(modules: Modules) -> None:
    written = "".join(f"\x1b[38;2;{n // 256};{n % 256};7mx" for n in range(6000))
    [row] = feed(modules, written)["looks"]
    assert "".join(text for text, _look in row) == "x" * 6000


def test_search_marks_matches_also_in_added_lines(modules: Modules) -> None:
    found = modules.run("""async () => {
      const {Lines} = await import('/logic/lines.js');
      const {Search, markPieces} = await import('/logic/search.js');
      const lines = new Lines();
      const search = new Search(lines);
      search.extend(lines.feed('Loss 1\\nother\\nloss 2\\n'));
      const first = search.begin('LOSS', 1);
      const described = search.describe();
      search.extend(lines.feed('a loss 3\\n'));
      const after = search.describe();
      const steps = [search.step(1), search.step(1), search.step(-1)];
      const marked = markPieces([['a lo', 1], ['ss b', 0]], 'loss');
      const none = search.begin('absent', 0);
      return {first, described, after, steps, marked, none, word: search.describe()};
    }""")
    assert (found["first"], found["described"], found["after"]) == (2, "2 of 2", "2 of 3")
    assert found["steps"] == [3, 0, 3]
    assert found["marked"] == [["a ", 1, False], ["lo", 1, True], ["ss", 0, True], [" b", 0, False]]
    assert (found["none"], found["word"]) == (None, "not found")
