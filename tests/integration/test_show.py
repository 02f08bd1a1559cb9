from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_everything_about_a_job_is_shown(queue: Queue) -> None:
    env = {"API_TOKEN": "hush", "FLAVOUR": "vanilla"}
    queue(
        "add", "-N", "train", "--project", "vision", "--retries", "1", "echo last; exit 7", env=env
    )
    queue("wait")

    text = queue.ok("show", "vision/train")

    facts = dict(re.findall(r"(?m)^(\w[\w ]*?)  +(.*)$", text))
    assert facts["job"] == "1"
    assert facts["name"] == "vision/train"
    assert facts["state"] == "failed (attempt 2)"
    assert facts["reason"] == "exit 7"
    assert facts["command"] == "echo last; exit 7"
    assert facts["folder"] == str(queue.work)
    assert facts["last line"] == "last"
    assert facts["log"] == f"{queue.home}/logs/0/1.2.log"
    assert re.search(r"(?m)^1 +failed +[01] +\d+ .*exit 7$", text)
    assert re.search(r"(?m)^2 +failed +[01] +\d+ .*exit 7$", text)
    assert "hush" not in text
    assert "FLAVOUR" not in text


def test_the_environment_is_shown_on_request_without_its_secrets(queue: Queue) -> None:
    queue("add", "-g", "0", "true", env={"API_TOKEN": "hush", "FLAVOUR": "vanilla"})

    text = queue.ok("show", "@", "--env")

    assert re.search(r"(?m)^FLAVOUR +vanilla$", text)
    assert re.search(r"(?m)^API_TOKEN +\*+$", text)
    assert "hush" not in text + queue.ok("show", "@", "--json", "--env")
    assert "FLAVOUR" not in queue.ok("show", "@", "--json")


def test_measured_usage_is_shown(queue: Queue) -> None:
    queue.add("-g", "0", "python3", "-c", "x = bytearray(50_000_000)")
    queue.ok("wait")

    attempt = queue.show()["attempts"][0]

    assert attempt["max_rss_bytes"] > 50_000_000
    assert attempt["cpu_s"] > 0
    assert attempt["exit_code"] == 0
    assert re.search(r"\d+\.\d MiB", queue.ok("show", "@"))


def test_a_name_of_several_jobs_means_the_newest_once_they_have_ended(queue: Queue) -> None:
    queue.add("-N", "same", "--hold", "true")
    queue.add("-N", "same", "--hold", "true")

    ended = queue("show", "same")
    assert ended.code == 2
    assert re.fullmatch(r"stoker: 'same' names 2 jobs that have not ended \(1, 2\).*\n", ended.err)
    queue.ok("kill", "2")
    queue.ok("kill", "same")
    assert queue.states() == {1: "killed", 2: "killed"}
    assert queue.show("same")["id"] == 2
    ended = queue("rm", "same")
    assert ended.err.startswith("stoker: 'same' names 2 jobs (1, 2)")
    assert queue("show", "nobody").code == 1


def test_show_fits_a_terminal(queue: Queue) -> None:
    queue.add("-g", "0", "true " + "x" * 200)
    queue.ok("wait")

    lines = queue.shown("show", "@", columns=60).splitlines()

    assert max(map(len, lines)) <= 60
