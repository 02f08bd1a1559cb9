"""Jobs in containers: podman and bwrap for real, docker and apptainer by what they are called with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.container_box import IMAGE, ContainerBox, read_calls
from integration.daemon_fixture import state_of
from patience import until
from stoker.client.client import Client

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

STAY = "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done"


@pytest.fixture(scope="module")
def podman_box() -> Iterator[ContainerBox]:
    """Return folders with a podman that has an image. No container is left when the tests are over."""
    with tempfile.TemporaryDirectory(prefix="pod") as folder:  # podman takes only short paths
        box = ContainerBox(Path(folder))
        box.add_podman()
        yield box
        until(lambda: not box.containers(), "all containers are removed")


@pytest.fixture
def in_podman(idle_queue: Queue, podman_box: ContainerBox) -> Queue:
    """Return a queue whose jobs find podman first."""
    idle_queue.env["PATH"] = podman_box.path
    idle_queue.start()
    return idle_queue


@pytest.fixture
def recording(idle_queue: Queue, tmp_path: Path) -> tuple[Queue, ContainerBox]:
    """Return a queue and folders for engines that record their arguments."""
    folder = tmp_path / "engines"
    folder.mkdir()
    box = ContainerBox(folder)
    idle_queue.env["PATH"] = box.path
    idle_queue.start()
    return idle_queue, box


def add(queue: Queue, *words: str) -> int:
    return queue.add("-g", "0", "--image", IMAGE, *words)


def inside(queue: Queue, job: int) -> set[int]:
    """The processes in the container of a job: all that have its cookie, except the engine's client."""
    found = set()
    mark = f"STOKER_JOB_ID={job}".encode()
    home = f"STOKER_HOME={queue.home}".encode()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            environ = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in environ and home in environ and b"container=podman" in environ:
            found.add(int(name))
    return found


def test_a_job_in_an_image_has_its_folder_its_environment_and_its_exit_code(
    in_podman: Queue,
) -> None:
    with_variable = {**in_podman.env, "ODD": "a  b\nc", "VIRTUAL_ENV": "/host"}
    line = 'echo "$container $ODD"; echo "${VIRTUAL_ENV-none} $PWD"; touch made; exit 4'
    added = in_podman("add", "-q", "-g", "0", "--image", IMAGE, line, env=with_variable)
    assert in_podman("wait").code == 1

    assert in_podman.ok("log", added.out.strip()) == f"podman a  b\nc\nnone {in_podman.work}\n"
    assert (in_podman.work / "made").exists()
    shown = in_podman.show(int(added.out))
    assert (shown["exit_code"], shown["reason"]) == (4, "exit 4")
    assert IMAGE in in_podman.ok("show", added.out.strip())


def test_words_and_scripts_run_in_an_image_without_a_look_at_this_machine(in_podman: Queue) -> None:
    words = add(in_podman, "echo", "a  b", "$c")
    (in_podman.work / "job.sh").write_text('#!/bin/sh\necho "script in $container"\n')
    script = add(in_podman, "--script", "job.sh")
    missing = add(in_podman, "make", "all")  # it is on this machine, and not in the image
    assert in_podman("wait").code == 1

    assert in_podman.ok("log", str(words)) == "a  b $c\n"
    assert in_podman.ok("log", str(script)) == "script in podman\n"
    assert in_podman.show(missing)["exit_code"] == 127
    assert "command not found" in in_podman.show(missing)["reason"]


def test_a_killed_job_leaves_neither_processes_nor_its_container(
    in_podman: Queue, podman_box: ContainerBox
) -> None:
    job = add(in_podman, "--grace", "0s", STAY)
    in_podman.until(lambda: in_podman.ok("log", str(job)) == "ready\n")
    pids = inside(in_podman, job)
    (name,) = podman_box.containers()
    assert pids
    assert name.startswith("stoker-")
    assert name.endswith(f"-{job}.1")
    in_podman.ok("kill", str(job))
    in_podman("wait")

    assert not any(map(in_podman.stoker.is_alive, pids))
    in_podman.until(lambda: not podman_box.containers(), "the container is removed")
    assert in_podman.show(job)["state"] == "killed"


def test_a_container_outlives_the_daemon_and_the_supervisor_and_can_be_killed_then(
    in_podman: Queue, podman_box: ContainerBox
) -> None:
    job = add(in_podman, "--grace", "0s", "echo ready; exec sleep 600")
    in_podman.until(lambda: in_podman.ok("log", str(job)) == "ready\n")
    pids = inside(in_podman, job)
    with Client(str(in_podman.home)) as client:
        supervisor = client.show(job).attempts[-1].pid
    assert supervisor is not None
    parent = int(Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[1])
    in_podman.kill_daemon()
    os.kill(parent, signal.SIGKILL)

    assert in_podman.show(job)["state"] == "running"
    assert inside(in_podman, job) == pids
    in_podman.ok("kill", str(job))
    in_podman("wait")
    in_podman.until(lambda: not any(map(in_podman.stoker.is_alive, pids)))
    in_podman.until(lambda: not podman_box.containers(), "the container is removed")


def test_a_pause_stops_the_processes_in_the_container(in_podman: Queue) -> None:
    job = add(in_podman, "echo ready; exec sleep 600")
    in_podman.until(lambda: in_podman.ok("log", str(job)) == "ready\n")
    in_podman.ok("pause", str(job))
    in_podman.until(lambda: {state_of(pid) for pid in inside(in_podman, job)} == {"T"})

    in_podman.ok("resume", str(job))
    in_podman.until(lambda: {state_of(pid) for pid in inside(in_podman, job)} == {"S"})


def test_the_end_of_another_job_leaves_a_container_alone(
    in_podman: Queue, podman_box: ContainerBox
) -> None:
    """Also one that a job has started by itself, as a user does by hand."""
    line = f"{podman_box.bin}/podman run --name own --rm --network=host {IMAGE} sh -c '%s'"
    job = in_podman.add("-g", "0", line % "echo ready; sleep 600")
    in_podman.until(lambda: in_podman.ok("log", str(job)) == "ready\n")
    other = in_podman.add("-g", "0", "true")
    in_podman.ok("wait", str(other))

    assert in_podman.show(other)["reason"] is None
    assert podman_box.containers() == ["own"]
    podman_box.podman("kill", "own")
    assert in_podman("wait", str(job)).code == 1
    assert in_podman.show(job)["exit_code"] == 137


def test_runs_of_a_sweep_are_containers(in_podman: Queue) -> None:
    command = 'echo lr={lr} in $container; echo "{lr}" > $STOKER_RUN_DIR/seen'
    sweep = ("sweep", "-g", "0", "--image", IMAGE, "--name", "s", command, "lr=1,2")
    assert "2 runs added" in in_podman.ok(*sweep)
    in_podman.ok("wait")

    assert sorted(in_podman.ok("log", str(job)) for job in (1, 2)) == [
        "lr=1 in podman\n",
        "lr=2 in podman\n",
    ]
    assert len(list(in_podman.work.rglob("seen"))) == 2


def test_stoker_run_and_python_start_their_commands_in_containers(in_podman: Queue) -> None:
    line = "echo in $container; exit 5"
    ended = in_podman.stoker.run("--gpus", "NoDevFiles", "--image", IMAGE, "--", line)
    assert (ended.code, ended.out) == (5, "in podman\n")
    refused = in_podman.stoker.run("--image", IMAGE, "--warm", "torch", "--", "python a.py")
    assert refused.code == 2

    program = f"import stoker; stoker.run([['echo', 'a  b']], gpus_per_job=0, image={IMAGE!r})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=in_podman.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "a  b\n"


def test_a_folder_with_a_whole_system_runs_in_bwrap(recording: tuple[Queue, ContainerBox]) -> None:
    queue, box = recording
    job = queue.add("-g", "0", "--image", str(box.rootfs), "ls /; touch made; echo $HOME; exit 6")
    killed = queue.add("-g", "0", "--image", str(box.rootfs), "--grace", "0s", STAY)
    missing = queue.add("-g", "0", "--image", str(box.rootfs), "nope")
    queue.until(lambda: queue.ok("log", str(killed)) == "ready\n")
    queue.ok("kill", str(killed))
    queue("wait")

    assert queue.show(job)["exit_code"] == 6
    assert "bin\n" in queue.ok("log", str(job))
    assert (queue.work / "made").exists()
    assert queue.show(killed)["state"] == "killed"
    assert queue.show(missing)["exit_code"] == 127


def test_docker_gets_the_gpus_by_uuid_and_its_container_is_removed_by_name(
    recording: tuple[Queue, ContainerBox],
) -> None:
    queue, box = recording
    record = box.add_recorder("docker", "echo ready; exec sleep 600")
    queue.ok("config", "container.engine", "docker")
    queue.ok("config", "container.args", "--", "-v '/data dir:/data'")
    job = queue.add(
        "-g", "2", "--mem", "64M", "--grace", "0s", "--image", "img:1", "python a.py --lr 1"
    )
    pid = queue.until_running(job)
    queue.until(lambda: queue.ok("log", str(job)) == "ready\n")
    queue.ok("pause", str(job))
    queue.until(lambda: len(read_calls(record)) == 2)
    queue.ok("resume", str(job))
    queue.until(lambda: len(read_calls(record)) == 3)
    queue.ok("kill", str(job))
    queue.until(lambda: len(read_calls(record)) == 4)

    run, pause, unpause, remove = read_calls(record)
    name = run[run.index("--name") + 1]
    assert [pause, unpause, remove] == [["pause", name], ["unpause", name], ["rm", "--force", name]]
    assert run[run.index("img:1") :] == ["img:1", "python", "a.py", "--lr", "1"]
    devices = [run[at + 1] for at, word in enumerate(run) if word == "--device"]
    uuids = [gpu["uuid"] for gpu in gpus_of(queue)[:2]]
    assert sorted(devices) == sorted(f"nvidia.com/gpu={uuid}" for uuid in uuids)
    assert run[run.index("-w") + 1] == str(queue.work)
    assert f"{queue.work}:{queue.work}" in run
    assert "/data dir:/data" in run
    assert run[run.index("--memory") + 1] == str(64 << 20)
    assert not any(word.startswith("STOKER_COOKIE=") for word in run)
    assert not queue.stoker.is_alive(pid)


def test_apptainer_gets_the_image_the_folders_and_nv(recording: tuple[Queue, ContainerBox]) -> None:
    queue, box = recording
    record = box.add_recorder("apptainer")
    queue.ok("config", "container.engine", "apptainer")
    queue.add("-g", "1", "--image", "org/img:1", "python a.py")
    (queue.work / "env.sif").touch()
    queue.add("-g", "0", "--image", "./env.sif", "a | b")
    queue.ok("wait")

    first, second = sorted(read_calls(record), key=len, reverse=True)
    run_in_shell = ["/bin/sh", "-c", 'exec "$@"', "sh"]
    assert first[:3] == ["exec", "--bind", first[2]]
    assert str(queue.work) in first[2].split(",")
    assert first[3:7] == ["--pwd", str(queue.work), "--nv", "--no-home"]
    assert first[7:] == ["docker://org/img:1", *run_in_shell, "python", "a.py"]
    image = str(queue.work / "env.sif")
    assert second[5:] == ["--no-home", image, *run_in_shell, "/bin/sh", "-c", "a | b"]


def test_a_job_whose_container_cannot_start_waits_with_the_reason(in_podman: Queue) -> None:
    in_podman.ok("config", "container.args", "--", "--pull=never")
    no_image = in_podman.add("-g", "0", "--image", "localhost/none:1", "true")
    in_podman.until(lambda: in_podman.show(no_image)["state"] == "delayed")
    in_podman.ok("config", "container.engine", "apptainer")
    no_engine = in_podman.add("-g", "0", "--image", "img", "true")
    in_podman.until(lambda: in_podman.show(no_engine)["state"] == "delayed")

    assert "no container: localhost/none:1" in in_podman.ok("why", str(no_image))
    told = in_podman.ok("why", str(no_engine))
    assert "when it is tried again; attempt 1 failed: no container: no apptainer here" in told
    in_podman.ok("config", "container.engine", "--reset")
    in_podman.ok("config", "container.args", "--reset")
    in_podman.ok("kill", "@")


def test_a_job_that_waited_for_its_engine_runs_when_it_is_started_by_hand(
    recording: tuple[Queue, ContainerBox],
) -> None:
    queue, box = recording
    queue.ok("config", "container.engine", "apptainer")
    job = queue.add("-g", "0", "--image", "img", "true")
    queue.until(lambda: queue.show(job)["state"] == "delayed")
    box.add_recorder("apptainer")
    queue.ok("start", str(job))

    queue.ok("wait")
    assert queue.show(job)["state"] == "done"


def test_an_image_and_a_warm_start_exclude_each_other(queue: Queue) -> None:
    refused = queue("add", "--image", "img", "--warm", "torch", "python a.py")
    assert refused.code == 2
    assert "--warm" in refused.err
    assert "--image" in refused.err
    assert queue("add", "--image", "-v/:/host", "true").code == 2


def gpus_of(queue: Queue) -> list[dict[str, str]]:
    found = json.loads(queue.ok("gpus", "--json"))
    gpus = found["gpus"] if isinstance(found, dict) else found
    assert isinstance(gpus, list)
    return gpus
