"""Suspends and restores the processes of a job through the driver. Every step can be repeated.

A helper that follows a killed one waits until that has ended, and goes on from the states that the driver
reports: it locks what runs, checkpoints what is locked, and leaves alone what is checkpointed.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from stoker.core.size import format_bytes
from stoker.core.suspension import ram_needed_bytes
from stoker.engine.suspend_helper import HelperAnswer, HelperOrder
from stoker.errors import ConflictError
from stoker.failpoints import reach
from stoker.gpus.cuda_checkpoint import CheckpointDriver, CheckpointError, ProcessState
from stoker.gpus.driver import Reading
from stoker.gpus.drivers import open_driver
from stoker.machine import read_memory
from stoker.supervisor import process_tree

_LOCK_FILE = "suspension.lock"
_LOCK_TIMEOUT_MS = 10_000
_AT_ONCE = 8

States = dict[int, ProcessState]


def carry_out(name: str, home: str, order: HelperOrder) -> HelperAnswer:
    """Carry out one order: `states` or one of `_STEPS`. A driver that refuses is a ConflictError."""
    try:
        driver = CheckpointDriver()
        if name == "states":
            return HelperAnswer(refusal=_describe(order, _states(driver, _tree(order))))
        with _job_lock(home, order.job):
            return _STEPS[name](driver, order)
    except CheckpointError as error:
        raise ConflictError(str(error)) from error


def suspend(driver: CheckpointDriver, order: HelperOrder) -> HelperAnswer:
    """Move the memory of all processes of a job to host RAM, or of none of them."""
    states = _continue_and_look(driver, order)
    if not states:
        raise ConflictError(
            f"job {order.job} uses no GPU yet that could be suspended: stoker pause {order.job} stops it"
        )
    try:
        return _move_out(driver, order, states)
    except (CheckpointError, ConflictError) as error:
        _undo(driver, states)  # also what an earlier helper began
        if isinstance(error, ConflictError):
            raise
        raise ConflictError(f"{error}; job {order.job} runs on") from error


def check(driver: CheckpointDriver, order: HelperOrder) -> HelperAnswer:
    """Make sure that a suspended job is in host RAM. Others may have its GPUs: nothing is restored."""
    states = _continue_and_look(driver, order)
    try:
        return _move_out(driver, order, states)
    except CheckpointError as error:
        raise ConflictError(f"{error}; its memory is still on the GPU") from error


def _move_out(driver: CheckpointDriver, order: HelperOrder, states: States) -> HelperAnswer:
    """Lock the processes that run, and checkpoint what is locked. Checks first whether host RAM suffices."""
    _raise_if_lost(order.job, states)
    if not _in_state(states, ProcessState.RUNNING, ProcessState.LOCKED):
        return HelperAnswer()
    held = _held_bytes(order, states)
    _check_ram(order, held)
    for pid in _in_state(states, ProcessState.RUNNING):
        driver.lock(pid, _LOCK_TIMEOUT_MS)
    reach("suspension-locked")
    _at_once(driver.checkpoint, _in_state(_states(driver, states), ProcessState.LOCKED))
    reach("suspension-checkpointed")
    return HelperAnswer(held_bytes=held)


def restore(driver: CheckpointDriver, order: HelperOrder) -> HelperAnswer:
    """Move the memory of a job's processes back to their GPUs, if there is room, and unlock them."""
    states = _continue_and_look(driver, order)
    _raise_if_lost(order.job, states)
    waiting = _in_state(states, ProcessState.CHECKPOINTED)
    if waiting and (lack := _find_lack(order.held_bytes)) is not None:
        return HelperAnswer(refusal=lack, try_again=True)
    _at_once(driver.restore, waiting)
    reach("resumption-restored")
    _unlock(driver, states)
    return HelperAnswer()


def _continue_and_look(driver: CheckpointDriver, order: HelperOrder) -> States:
    """Let the processes of a job answer the driver, and return the states of those that use CUDA."""
    pids = _tree(order)
    process_tree.send(pids, signal.SIGCONT)
    return _states(driver, pids)


def _undo(driver: CheckpointDriver, states: States) -> None:
    """Bring back what was checkpointed a moment ago: its memory is still free."""
    for pid in _in_state(_states(driver, states), ProcessState.CHECKPOINTED):
        driver.restore(pid)
    _unlock(driver, states)


def _unlock(driver: CheckpointDriver, states: States) -> None:
    for pid in _in_state(_states(driver, states), ProcessState.LOCKED):
        driver.unlock(pid)


def _tree(order: HelperOrder) -> set[int]:
    """Return the living processes of a job: the descendants of its first one, and those with its cookie.

    A process that a warm worker forked shows the environment of the worker, without the cookie of its job.
    """
    table = process_tree.processes()
    found = {order.root_pid} & table.keys()
    while more := {each.pid for each in table.values() if each.parent in found} - found:
        found |= more
    marked = process_tree.Snapshot().by_cookie(order.cookie).get(order.cookie, set())
    return found | marked


def _states(driver: CheckpointDriver, pids: Iterable[int]) -> States:
    found = {pid: driver.state(pid) for pid in sorted(pids)}
    return {pid: state for pid, state in found.items() if state is not None}


def _in_state(states: States, *wanted: ProcessState) -> list[int]:
    return [pid for pid, state in states.items() if state in wanted]


def _raise_if_lost(job: int, states: States) -> None:
    if failed := _in_state(states, ProcessState.FAILED):
        raise ConflictError(
            f"the driver lost the GPU memory of process {failed[0]}: stoker kill {job} ends the job,"
            f" stoker retry {job} runs it again"
        )


def _at_once(call: Callable[[int], None], pids: list[int]) -> None:
    """Call the driver for several processes at the same time: each waits for the copy of its memory."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(call, pids))


def _held_bytes(order: HelperOrder, states: States) -> dict[str, int]:
    """Return the memory that the job holds on each GPU; what was measured before if NVML does not tell."""
    held: dict[str, int] = {}
    for reading in _readings():
        mine = [each.mem_bytes or 0 for each in reading.processes or () if each.pid in states]
        if sum(mine):
            held[reading.gpu.uuid] = sum(mine)
    return held or dict(order.held_bytes)


def _find_lack(needed: Mapping[str, int]) -> str | None:
    """Return which GPU has too little free memory; None if all have enough."""
    for reading in _readings():
        need = needed.get(reading.gpu.uuid, 0)
        free = reading.mem_free_bytes
        if need > free:
            return (
                f"GPU {reading.gpu.label} has {format_bytes(free)} free, and it needs"
                f" {format_bytes(need)}"
            )
    return None


def _readings() -> list[Reading]:
    nvml = open_driver()
    if nvml is None:
        return []
    try:
        return [nvml.read(gpu) for gpu in nvml.gpus()]
    finally:
        nvml.close()


def _check_ram(order: HelperOrder, held: Mapping[str, int]) -> None:
    """Raise ConflictError if the job does not fit into the RAM that is available, also to its cgroups."""
    needed, memory = ram_needed_bytes(held), read_memory()
    free = max(0, memory.available_bytes - order.others_bytes)
    if memory.total_bytes and needed > free:
        beside = " beside the jobs that are being suspended" if order.others_bytes else ""
        raise ConflictError(
            f"job {order.job} needs {format_bytes(needed)} of host RAM to be suspended, and"
            f" {format_bytes(free)} are available{beside}: free some RAM, or use stoker preempt {order.job}"
        )


def _describe(order: HelperOrder, states: States) -> str:
    if not states:
        return f"no process of job {order.job} uses CUDA"
    told = ", ".join(f"process {pid} is {state.name.lower()}" for pid, state in states.items())
    return f"{told}: if it does not go on, stoker kill {order.job} ends the job"


_STEPS = {"suspend": suspend, "check": check, "restore": restore}


@contextmanager
def _job_lock(home: str, job: int) -> Iterator[None]:
    """Wait until no other helper works on a job. The kernel gives the lock back when a helper dies."""
    fd = os.open(os.path.join(home, _LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX, 1, job)
        yield
    finally:
        os.close(fd)
