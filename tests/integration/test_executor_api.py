"""`stoker.Executor`: concurrent.futures over fresh processes with GPUs of their own."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import TYPE_CHECKING

import pytest

import stoker
from integration.api import Scripts
from integration.calls import fail, fail_awkwardly, return_lock, visible, wait_for
from patience import until
from stoker.errors import StokerError, UsageError
from stoker.task.call_files import JobError, RemoteError, RemoteTraceback
from stoker.task.executor import Executor

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Stoker


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("executor")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STOKER_HOME", str(folder / "home"))
        patch.setenv("STOKER_LEASE_DIR", str(folder / "leases"))
        yield folder


@pytest.fixture(scope="module")
def executor(home: Path) -> Iterator[Executor]:
    """Return an executor that the tests share: each of them leaves it idle."""
    with stoker.Executor(gpus="a,b") as executor:
        yield executor


def test_a_call_is_made_on_a_gpu_and_its_job_is_told(executor: Executor) -> None:
    future = executor.submit(visible, 3, power=2)

    assert future.result() == (9, future.job.gpus[0])
    assert future.job.gpus[0] in executor.slots == ["a", "b"]
    assert (future.job.state, future.job.exit_code) == ("done", 0)
    assert future.job.pid != os.getpid()


def test_map_keeps_the_order(executor: Executor) -> None:
    assert [value for value, _gpu in executor.map(visible, range(5))] == [0, 1, 2, 3, 4]


def test_functions_that_no_module_has_are_sent_along(executor: Executor) -> None:
    by = 3
    assert executor.submit(lambda x: x * by, 2).result() == 6
    assert executor.submit(functools.partial(pow, 2), 3).result() == 8


def test_an_exception_comes_back_with_its_traceback(executor: Executor) -> None:
    future = executor.submit(fail, "gone")

    with pytest.raises(LookupError, match="gone") as caught:
        future.result()
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteTraceback)
    assert "in fail\n" in str(cause)
    assert "worker.py" not in str(cause)
    assert (future.job.state, future.job.exit_code) == ("failed", 1)


def test_an_exception_that_cannot_be_brought_over_is_told_by_its_text(executor: Executor) -> None:
    with pytest.raises(RemoteError, match="raised Awkward: 1 and 2") as caught:
        executor.submit(fail_awkwardly).result()
    assert "in fail_awkwardly" in str(caught.value.__cause__)


def test_a_value_that_cannot_be_brought_over_is_named(executor: Executor) -> None:
    with pytest.raises(RemoteError, match=r"the lock it returned cannot be sent back .*; return"):
        executor.submit(return_lock).result()


def test_a_call_that_cannot_be_sent_is_refused_where_it_is_made(executor: Executor) -> None:
    with pytest.raises(TypeError, match=r"visible or its arguments cannot be sent .*lock"):
        executor.submit(visible, threading.Lock())  # type: ignore[arg-type]


def test_a_process_that_dies_is_told_with_its_job(executor: Executor) -> None:
    future = executor.submit(os._exit, 3)
    with pytest.raises(JobError, match=r"posix\._exit: exit 3") as caught:
        future.result()
    assert caught.value.job is future.job

    killed = executor.submit(os.kill, 0, 9)
    with pytest.raises(JobError, match="killed by SIGKILL"):
        killed.result()


def test_a_call_that_waits_can_be_cancelled(executor: Executor, tmp_path: Path) -> None:
    admission = tmp_path / "gate"
    busy = [executor.submit(wait_for, str(admission)) for _ in "ab"]
    waits = executor.submit(visible, 1)

    assert waits.cancel()
    admission.touch()

    assert [future.result() for future in busy] == [None, None]
    with pytest.raises(futures.CancelledError):
        waits.result()
    assert not busy[0].cancel()
    assert waits.job.pid is None


def test_threads_may_submit_at_once(executor: Executor) -> None:
    found: list[int] = []

    def submit(number: int) -> None:
        found.append(executor.submit(visible, number).result()[0])

    threads = [threading.Thread(target=submit, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 1, 2, 3]


def test_it_works_inside_a_running_event_loop(executor: Executor) -> None:
    async def both() -> list[int]:
        loop = asyncio.get_running_loop()
        calls = [loop.run_in_executor(executor, pow, 2, n) for n in (2, 3)]
        return list(await asyncio.gather(*calls))

    assert asyncio.run(both()) == [4, 8]


def test_shutdown_can_cancel_what_has_not_begun(home: Path, tmp_path: Path) -> None:
    admission = tmp_path / "gate"
    executor = Executor(2, gpus_per_job=0)
    begun = executor.submit(wait_for, str(admission))
    until(begun.running, "the first one has begun")
    rest = [executor.submit(wait_for, str(admission)) for _ in range(3)]
    stoker_sees = [future for future in rest if not future.running()]

    executor.shutdown(wait=False, cancel_futures=True)
    admission.touch()
    executor.shutdown()

    assert begun.result() is None
    assert all(future.done() for future in stoker_sees)
    assert rest[-1].cancelled()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(pow, 1, 1)


def test_calls_have_logs_retries_and_an_environment(home: Path, tmp_path: Path) -> None:
    logs, mark = tmp_path / "logs", tmp_path / "mark"

    def fail_once() -> str:
        print("trying")
        if not mark.exists():
            mark.touch()
            raise ValueError("not yet")
        return os.environ["FLAVOUR"]

    with Executor(1, gpus_per_job=0, logs=str(logs), retries=1, env={"FLAVOUR": "sweet"}) as own:
        future = own.submit(fail_once)
        assert future.result() == "sweet"
    assert future.job.attempt == 2
    first, second = (logs / "1.log").read_text(), (logs / "1.2.log").read_text()
    assert first.startswith("trying\n")
    assert "ValueError: not yet" in first
    assert second == "trying\n"


def test_bad_settings_are_refused(home: Path) -> None:
    with pytest.raises(UsageError, match="gpus_per_job=0"):
        Executor(4, gpus="a")
    with pytest.raises(UsageError, match="at least 1"):
        Executor(0, gpus_per_job=0)
    with Executor(gpus="a", gpus_per_job=2) as own, pytest.raises(UsageError, match="never start"):
        own.submit(pow, 1, 1)


def test_functions_and_classes_of_a_script_work_without_a_guard(stoker: Stoker) -> None:
    out = Scripts(stoker).ok(
        """
        import os, sys
        assert "torch_like" not in sys.modules
        import stoker

        class Point:
            def __init__(self, x):
                self.x = x

        def double(point):
            import torch_like
            return Point(point.x * 2), torch_like.DEVICES, __name__

        open("torch_like.py", "w").write("import os; DEVICES = os.environ['CUDA_VISIBLE_DEVICES']")
        executor = stoker.Executor(gpus="1")
        point, devices, name = executor.submit(double, Point(2)).result()
        print(type(point) is Point, point.x, devices)
        late = executor.submit(print, "printed by the call", flush=True)
        """
    )
    assert out == "True 4 1\nprinted by the call\n"


def test_a_fork_of_the_process_has_no_part_in_it(stoker: Stoker) -> None:
    out = Scripts(stoker).ok(
        """
        import os, sys
        import stoker
        executor = stoker.Executor(gpus="0")
        future = executor.submit(pow, 2, 5)
        if os.fork() == 0:
            try:
                executor.submit(pow, 2, 2)
            except stoker.StokerError as error:
                print(error, flush=True)
            sys.exit()  # and its end leaves the executor of the other alone
        os.wait()
        print(future.result())
        """
    )
    assert out.splitlines()[1:] == ["32"]
    assert "make its own" in out


def test_all_calls_end_with_a_process_that_is_killed(stoker: Stoker) -> None:
    scripts = Scripts(stoker)
    script = scripts.start(
        """
        import os, time
        import stoker

        def work():
            os.system("setsid sleep 1000 & echo $! > tree.new; mv tree.new tree; sleep 1000")

        with stoker.Executor(gpus="0") as executor:
            executor.submit(work)
        """
    )
    tree = scripts.work / "tree"
    stoker.until(tree.exists, "the call is made")
    script.kill()
    stoker.until(lambda: not stoker.is_alive(int(tree.read_text())), "its tree is gone")


def test_every_error_of_ours_is_a_stoker_error() -> None:
    assert issubclass(RemoteError, JobError)
    assert issubclass(JobError, StokerError)
