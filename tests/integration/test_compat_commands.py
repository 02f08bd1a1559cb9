"""How jobs that came through the older tools' doors share GPUs (never) and brake (only GPUPeasy's do)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from integration.programs import run, shell
from stoker.client.transport import Connection

if TYPE_CHECKING:
    from conftest import Stoker
    from integration.daemon_fixture import Queue

MANY = 6  # the brake pauses a project after three failures of a kind
# Tells of another on the same GPU; all fail alike.
ALONE = (
    "mkdir lock.$CUDA_VISIBLE_DEVICES || echo shared >> shared;"
    " sleep 0.05; rmdir lock.$CUDA_VISIBLE_DEVICES; exit 3"
)


def test_simple_gpu_scheduler_runs_all_that_fail_one_on_a_gpu(stoker: Stoker) -> None:
    stoker.file("gpu_commands.txt", f"{ALONE}\n" * MANY)

    ended = shell(stoker, "simple_gpu_scheduler --gpus 0 < gpu_commands.txt")

    assert f"0 done, {MANY} failed" in ended.err
    assert stoker.read("shared") == []


def test_gpu_task_scheduler_runs_all_that_fail_one_on_a_gpu(stoker: Stoker) -> None:
    stoker.file(
        "main.py",
        f"""\
import os
from gpu_task_scheduler.gpu_task import GPUTask
from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
class Failing(GPUTask):
    def main(self):
        raise SystemExit(os.system({ALONE!r}) >> 8)
config = {{"scheduler_config": {{"gpu": ["0"]}}, "test_config": [{{"number": range({MANY})}}]}}
print(GPUTaskScheduler(config=config, gpu_task_class=Failing).start().summary)
""",
    )

    ended = shell(stoker, f"{sys.executable} main.py")

    assert ended.out == f"0 done, 0 skipped, {MANY} failed\n"
    assert stoker.read("shared") == []


def test_gpulimit_runs_all_that_fail(queue: Queue) -> None:
    for _ in range(MANY):
        assert run(queue.stoker, "gpulimit", "add", "exit 3").code == 0

    assert queue("wait", "--all").code == 1
    assert [job["state"] for job in queue.ls("-a").values()] == ["failed"] * MANY


def test_gpupeasy_pauses_when_all_fail_alike_and_runs_all_after_a_resume(queue: Queue) -> None:
    with Connection(str(queue.home)) as connection:
        for number in range(MANY):
            job = {"jobName": "same", "outFile": f"{number}.txt", "jobCommand": ALONE}
            body = msgspec.json.encode({"job": {**job, "cwd": str(queue.work)}})
            answer = connection.request("POST", "/gpupeasy/addnewjob", body).body
            assert b"successful" in answer

    queue.until(lambda: "jobs without a project are paused" in queue.ok("status"))
    queue.ok("config", "brake", "0")
    queue.ok("resume", "--queue")
    assert queue("wait", "--all").code == 1
    assert [job["state"] for job in queue.ls("-a").values()] == ["failed"] * MANY
    assert queue.stoker.read("shared") == []
