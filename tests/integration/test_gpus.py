"""`gpus add|drain|remove` with a daemon; the table without one has tests of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from stoker.client.client import Client

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue


def test_a_gpu_is_drained_and_used_again_with_jobs_elsewhere_untouched(queue: Queue) -> None:
    pids = [queue.until_running(queue.add("sleep 60")) for _ in range(2)]
    place = {queue.show(job)["slots"]: job for job in (1, 2)}
    queue.add("echo third")

    assert queue.ok("gpus", "drain", "1") == f"GPU 1 is drained; job {place['1']} still on it\n"
    assert "GPU 1 drained" in queue.ok("why", "3")
    queue.ok("kill", "--grace", "0", str(place["1"]))
    queue.ok("daemon", "restart")
    assert queue.show(3)["state"] == "waiting"

    assert queue.ok("gpus", "add", "1") == "GPU 1 is in use\n"
    queue.ok("wait", "3")
    assert queue.show(place["0"])["state"] == "running"
    assert queue.stoker.is_alive(pids[place["0"] - 1])


def test_an_added_gpu_is_used_at_once_and_a_removed_one_not_again(queue: Queue) -> None:
    for _ in range(3):
        queue.add("sleep 60")
    queue.until(lambda: sorted(queue.states().values()) == ["running", "running", "waiting"])

    assert queue.ok("gpus", "add", "3") == "GPU 3 is in use\n"
    queue.until(lambda: queue.show(3)["slots"] == "3")
    queue.ok("gpus", "remove", "0")
    queue.ok("daemon", "restart")

    assert [slot["label"] for slot in json.loads(queue.ok("status", "--json"))["slots"]] == [
        "1",
        "3",
    ]
    assert set(queue.states().values()) == {"running"}
    assert queue.ok("config", "gpus") == "1,3\n"


def test_draining_the_last_gpu_warns(queue: Queue) -> None:
    queue.ok("gpus", "drain", "0")
    ended = queue("gpus", "drain", "1")

    assert (ended.code, ended.out) == (0, "GPU 1 is drained\n")
    assert ended.err.startswith("stoker: no GPU is left in use: only jobs without GPU start")
    queue.add("-g", "0", "true")
    queue.ok("wait")


def test_the_table_shows_what_the_queue_does(queue: Queue) -> None:
    queue.until_running(queue.add("sleep 60"))
    queue.ok("gpus", "drain", "1")

    header, first, second, third, _fourth = queue.ok("gpus").splitlines()
    assert header.endswith("QUEUE")
    assert first.endswith("job 1")
    assert second.endswith("drained")
    assert third.endswith("-")
    rows = json.loads(queue.ok("gpus", "--json"))
    assert [[slot["drained"] for slot in row["queue"]] for row in rows] == [
        [None],
        ["drained"],
        [],
        [],
    ]


def test_without_a_daemon_the_table_is_shown_and_none_is_started(idle_queue: Queue) -> None:
    assert "QUEUE" not in idle_queue.ok("gpus")
    assert not (idle_queue.home / "stoker.db").exists()


def test_wrong_words_are_one_clear_line(queue: Queue) -> None:
    for words, code, complaint in (
        (["drain"], 2, "which GPU?"),
        (["drain", "9"], 1, "there is no GPU 9 in this queue; there are: 0, 1"),
        (["add", "0"], 1, "GPU 0 is in use already"),
        (["add", "9"], 2, "GPU 9 does not exist: this machine has 0-3"),
        (["paint", "0"], 2, "invalid choice"),
    ):
        ended = queue("gpus", *words)
        assert ended.code == code, ended
        assert complaint in ended.err
        assert ended.err.count("\n") == 1


def test_a_gpu_that_is_plugged_in_is_noticed_and_by_default_used(idle_queue: Queue) -> None:
    idle_queue.ok("daemon", "start")
    idle_queue.stoker.box.plug()
    for _ in range(5):
        idle_queue.add("sleep 60")
    idle_queue.until(lambda: idle_queue.show(5)["slots"] == "4")

    assert "GPU 4 has appeared: it is used from now on" in idle_queue.ok("status")


def test_a_new_gpu_beside_named_ones_is_reported_with_what_to_do(queue: Queue) -> None:
    queue.stoker.box.plug()
    queue.add("true")
    queue.ok("wait")
    queue.until(lambda: "GPU 4 has appeared: stoker gpus add 4" in queue.ok("status"))

    assert queue.ok("gpus", "add", "4") == "GPU 4 is in use\n"


def test_a_lost_gpu_gets_no_jobs_until_it_is_back(queue: Queue) -> None:
    queue.until_running(queue.add("sleep 60"))
    queue.stoker.box.lose(1)
    queue.until(lambda: "lost: the driver cannot reach it" in queue.ok("status"))
    queue.add("true")
    assert "GPU 1 lost" in queue.ok("why", "2")

    queue.stoker.box.find(1)
    queue.ok("wait", "2")


def test_the_table_and_status_say_the_same_of_a_free_gpu(queue: Queue) -> None:
    assert queue.ok("gpus").splitlines()[1].endswith(" free")
    assert "free" in queue.ok("status")


def test_named_gpus_are_listed_for_scripts_too(idle_queue: Queue) -> None:
    idle_queue.ok("daemon", "start", "--gpus", "red,blue")

    rows = json.loads(idle_queue.ok("gpus", "--json"))
    assert [row["label"] for row in rows if row["label"] in ("red", "blue")] == ["red", "blue"]
    assert [row["queue"][0]["label"] for row in rows if row["queue"]] == ["red", "blue"]
    assert "red" in idle_queue.ok("gpus")


def test_a_job_on_a_removed_gpu_keeps_its_row(queue: Queue) -> None:
    for _ in range(2):
        queue.until_running(queue.add("sleep 60"))
    queue.ok("gpus", "remove", "1")

    with Client(str(queue.home)) as client:
        rows = {row.slot: row.jobs for row in client.read_gpus() if row.slot is not None}
    assert sorted(rows) == ["0", "1"]
    assert all(rows.values())
