from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.core.job import Attempt, Outcome, Request
from stoker.core.lifecycle import Event
from stoker.core.waste import Mark, Waste
from stoker.engine import hooks
from stoker.engine.config import Config
from stoker.engine.hooks import Hooks
from stoker.engine.queue import QueueEntry
from stoker.engine.running_attempt import RunningAttempt
from stoker.store.database import Database

DONE = Outcome(event=Event.SUCCEED, status=0)
FAILED = Outcome(event=Event.FAIL, status=256, reason="exit 1")


def running(job: int = 7) -> RunningAttempt:
    attempt = Attempt(job, 2)
    entry = QueueEntry(b"x", Request())
    return RunningAttempt(
        key=attempt.key, attempt=attempt, entry=entry, slots=(), log="/logs/7.log"
    )


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., list[str]]:
    """Return a function that lets jobs end with these settings, and returns what was told."""

    def play(settings: dict[str, str], *outcomes: Outcome) -> list[str]:
        told: list[str] = []

        async def story() -> None:
            database = Database(str(tmp_path / "stoker.db"))
            config = Config(database)
            for name, value in settings.items():
                config.change(name, value)
            keeper = Hooks(config, told.append)
            for outcome in outcomes:
                keeper.on_end(running(), outcome)
                while keeper._tasks:
                    await asyncio.sleep(0.01)
            database.close()

        asyncio.run(story())
        return told

    return play


def test_each_end_runs_its_commands_with_the_facts(
    play: Callable[..., list[str]], tmp_path: Path
) -> None:
    line = 'echo "{} $STOKER_JOB_ID $STOKER_ATTEMPT $STOKER_STATE [$STOKER_REASON] $STOKER_LOG"'
    finish, fail = (f"{line.format(word)} >> {tmp_path}/out" for word in ("finish", "fail"))

    assert play({"on-finish": finish, "on-fail": fail}, DONE, FAILED) == []

    lines = sorted((tmp_path / "out").read_text().splitlines())
    assert lines == [
        "fail 7 2 failed [exit 1] /logs/7.log",
        "finish 7 2 done [] /logs/7.log",
        "finish 7 2 failed [exit 1] /logs/7.log",
    ]


def test_one_that_fails_is_told_once_with_its_last_word(play: Callable[..., list[str]]) -> None:
    told = play({"on-finish": "echo first; echo 'no such host' >&2; exit 3"}, DONE, DONE, DONE)

    assert told == ["on-finish failed with exit 3: no such host"]


def test_one_that_hangs_is_killed_with_all_it_has_started(
    play: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "_TIMEOUT_S", 0.2)

    assert play({"on-finish": "sleep 1000 & sleep 1000"}, DONE) == [
        "on-finish took longer than 0.2s and was killed"
    ]


def test_very_many_at_once_wait_for_each_other_and_the_surplus_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "_MAX_WAITING", 8)
    told: list[str] = []

    async def story() -> None:
        database = Database(str(tmp_path / "stoker.db"))
        config = Config(database)
        config.change("on-finish", f"echo x >> {tmp_path}/out")
        keeper = Hooks(config, told.append)
        for number in range(12):
            keeper.on_end(running(number), DONE)
        while keeper._tasks:
            await asyncio.sleep(0.01)
        database.close()

    asyncio.run(story())
    assert len((tmp_path / "out").read_text().splitlines()) == 8
    assert told == ["on-finish is too slow: for some jobs it was not run"]


def test_a_notification_goes_through_a_process_of_its_own_and_its_address_is_no_argument(
    play: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\ncat > {tmp_path}/message\necho "$@" > {tmp_path}/words\n')
    fake.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(fake))

    assert play({"notify": "tgram://token/chat"}, FAILED) == []

    message = json.loads((tmp_path / "message").read_text())
    assert message == {
        "url": "tgram://token/chat",
        "title": "Stoker: job 7 is failed",
        "body": "exit 1",
    }
    words = (tmp_path / "words").read_text()
    assert words.startswith("-I -c ")
    assert words.endswith(" stoker.notify\n")


def test_an_address_for_notifications_is_never_shown(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "stoker.db"))
    config = Config(database)
    config.change("notify", "tgram://token/chat")

    assert config.setting("notify").value == "(set)"
    database.close()


def test_a_mark_runs_its_hook_and_sends_a_message_only_if_the_job_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\ncat >> {tmp_path}/messages\n")
    fake.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(fake))
    facts = "$STOKER_JOB_ID $STOKER_STATE $STOKER_MARK [$STOKER_REASON]"
    told: list[str] = []

    async def story() -> None:
        database = Database(str(tmp_path / "stoker.db"))
        config = Config(database)
        config.change("on-mark", f'echo "{facts}" >> {tmp_path}/out')
        config.change("notify", "tgram://token/chat")
        keeper = Hooks(config, told.append)
        keeper.on_mark(running(7), Mark(Waste.IDLE, 0.0, "15m without computing"), notifies=False)
        keeper.on_mark(running(8), Mark(Waste.DIVERGED, 0.0, "loss is nan"), notifies=True)
        while keeper._tasks:
            await asyncio.sleep(0.01)
        database.close()

    asyncio.run(story())

    assert told == []
    assert sorted((tmp_path / "out").read_text().splitlines()) == [
        "7 running idle [15m without computing]",
        "8 running diverged [loss is nan]",
    ]
    assert json.loads((tmp_path / "messages").read_text()) == {
        "url": "tgram://token/chat",
        "title": "Stoker: job 8 is diverged",
        "body": "loss is nan",
    }
