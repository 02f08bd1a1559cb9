"""`stoker top` on a real terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

HOLD = "echo begun; while ! test -e go; do sleep 0.05; done"


def test_top_shows_the_queue_and_its_keys_steer_jobs(queue: Queue) -> None:
    first = queue.add("-N", "first", HOLD)
    held = queue.add("--hold", "-N", "waits", "true")
    with queue.terminal("top", columns=120, lines=40) as terminal:
        terminal.read_until(lambda text: "1 running" in text and "begun" in text)
        assert "first" in terminal.text
        assert "GiB" in terminal.plain()
        terminal.press("/waits\r")
        terminal.read_until(lambda text: f"stoker release {held}" in text)
        terminal.press("h")
        terminal.read_until(lambda text: f"job {held}: released" in text)
        terminal.press("\x1b")
        queue.until(lambda: queue.show(held)["state"] == "done", "the released job is done")
        terminal.read_until(lambda text: "1 done" in text)
        queue.ok(
            "daemon", "stop"
        )  # top starts a daemon again that was killed, and not one that was stopped
        terminal.read_until(lambda text: "trying again every second" in text)
        queue.ok("daemon", "start")
        another = queue.add("-N", "another", "true")
        terminal.read_until(lambda text: "2 done" in text)
        terminal.press("/first\r")
        terminal.read_until(lambda text: "filter: first (Esc: all)" in text)
        terminal.press("k")
        terminal.read_until(lambda text: f"kill job {first}? y = yes" in text)
        terminal.press("y")
        terminal.read_until(lambda text: f"job {first}: killed" in text)
        terminal.press("q")
        assert terminal.read_all() == 0
        assert "\x1b[?1049l" in terminal.text
    assert queue.show(first)["state"] == "killed"
    assert queue.show(another)["state"] == "done"


def test_top_without_its_extra_shows_the_list_and_names_the_extra(queue: Queue) -> None:
    (queue.work / "textual").mkdir()
    (queue.work / "textual" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'textual'\", name='textual')"
    )
    queue.env["PYTHONPATH"] = str(queue.work)
    queue.add("-N", "listed", "true")
    with queue.terminal("top") as terminal:
        terminal.read_until(lambda text: "listed" in text and "pip install 'stoker[top]'" in text)
        terminal.interrupt()
        assert terminal.read_all() == 0


def test_top_needs_a_terminal(queue: Queue) -> None:
    ended = queue("top")
    assert ended.code == 2
    assert "stoker ls" in ended.err
