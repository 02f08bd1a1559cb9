from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from stoker.testing.state import GIB, FakeGpus
from stoker.testing.train import parse_size

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def box(tmp_path: Path) -> FakeGpus:
    return FakeGpus(tmp_path / "nvml").create(2, 8 * GIB)


def train(
    *args: str, box: FakeGpus | None = None, visible: str = "0"
) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("STOKER_FAKE")}
    env |= {"CUDA_VISIBLE_DEVICES": visible, **(box.env() if box else {})}
    command = [sys.executable, "-m", "stoker.testing.train", "--seconds", "0", *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_without_fake_gpus_the_job_prints_falling_losses() -> None:
    ended = train("--steps", "3", "--mem", "900G")

    losses = [float(line.split()[-1]) for line in ended.stdout.splitlines()]
    assert ended.returncode == 0
    assert len(losses) == 3
    assert losses == sorted(losses, reverse=True)


def test_a_job_that_fits_succeeds_and_leaves_nothing_behind(box: FakeGpus) -> None:
    assert train("--mem", "8G", box=box).returncode == 0
    assert os.listdir(os.path.join(box.folder, "procs")) == []


def test_a_job_without_enough_memory_fails_like_pytorch(box: FakeGpus) -> None:
    box.use(os.getpid(), 0, 5 * GIB)

    ended = train("--mem", "4G", box=box)

    assert ended.returncode == 1
    assert ended.stderr.startswith("Traceback (most recent call last):")
    assert ended.stderr.splitlines()[-1].startswith(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB."
        " GPU 0 has a total capacity of 8.00 GiB of which 3.00 GiB is free."
        f" Process {os.getpid()} has 5.00 GiB memory in use."
        " Including non-PyTorch memory, this process has 0 bytes memory in use."
    )


def test_a_growing_job_fails_in_the_step_that_exceeds_the_memory(box: FakeGpus) -> None:
    ended = train("--mem", "5G", "--grow", "1G", "--steps", "9", box=box)

    assert ended.returncode == 1
    assert len(ended.stdout.splitlines()) == 3
    assert "this process has 8.00 GiB memory in use" in ended.stderr


@pytest.mark.parametrize("by", ["index", "uuid", "uuid prefix"])
def test_the_job_uses_the_visible_gpu(box: FakeGpus, by: str) -> None:
    box.use(os.getpid(), 0, 8 * GIB)
    uuid = box.gpus()[1].uuid
    visible = {"index": "1", "uuid": uuid, "uuid prefix": uuid[:20]}[by]

    assert train("--mem", "8G", box=box, visible=visible).returncode == 0
    assert train("--mem", "8G", box=box, visible="0").returncode == 1


def test_a_missing_gpu_is_an_error_and_no_gpu_means_the_cpu(box: FakeGpus) -> None:
    assert "No CUDA GPUs are available" in train("--mem", "1G", box=box, visible="7").stderr
    assert train("--mem", "900G", box=box, visible="-1").returncode == 0


def test_the_job_fails_on_request() -> None:
    failed = train("--fail-at", "2", "--steps", "5")

    assert failed.returncode == 1
    assert failed.stderr.endswith("RuntimeError: loss is nan at step 2\n")
    assert len(failed.stdout.splitlines()) == 1
    assert train("--exit", "7").returncode == 7


@pytest.mark.parametrize(
    ("text", "count"), [("5G", 5 * GIB), ("1.5G", 3 * GIB // 2), ("200M", 200 << 20), ("7", 7)]
)
def test_sizes_are_parsed(text: str, count: int) -> None:
    assert parse_size(text) == count


def test_a_killed_job_frees_its_memory(box: FakeGpus) -> None:
    command = [sys.executable, "-m", "stoker.testing.train", "--mem", "8G", "--seconds", "600"]
    command += ["--steps", "60000"]
    env = {**os.environ, **box.env(), "CUDA_VISIBLE_DEVICES": "0"}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as job:
        assert job.stdout is not None
        job.stdout.readline()
        assert box.used_bytes(0) == 8 * GIB
        job.kill()

    assert box.used_bytes(0) == 0
