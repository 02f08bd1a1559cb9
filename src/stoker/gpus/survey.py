"""Which GPUs are free, and who has the others."""

from collections.abc import Callable, Sequence

import msgspec

from stoker.core.slot import Slot
from stoker.errors import StokerError
from stoker.gpus.nvml import Gpu, Nvml, Reading
from stoker.gpus.slots import no_gpu_error, slots_on, visible_gpus
from stoker.gpus.users import GpuUser, look_up


class GpuState(msgspec.Struct, frozen=True):
    """A GPU as it is now, and the living processes on it."""

    reading: Reading
    users: tuple[GpuUser, ...]

    @property
    def gpu(self) -> Gpu:
        """Which GPU it is."""
        return self.reading.gpu


def survey(nvml: Nvml) -> tuple[GpuState, ...]:
    """Look at every GPU once."""
    return tuple(_look(nvml, gpu) for gpu in nvml.gpus())


def free_gpus(states: Sequence[GpuState], ours: Callable[[int], bool]) -> tuple[Gpu, ...]:
    """Return the working GPUs that no foreign process uses; `ours` knows our own pids.

    A process that our /proc does not show is foreign: the driver lists it, so it lives somewhere.
    """
    return tuple(
        state.gpu
        for state in states
        if not state.reading.lost and all(ours(user.pid) for user in state.users)
    )


def default_slots(
    nvml: Nvml | None, visible: str | None, ours: Callable[[int], bool], jobs_per_gpu: int = 1
) -> tuple[Slot, ...]:
    """Return slots on every free GPU that the inherited CUDA_VISIBLE_DEVICES leaves.

    Raises an error that says why there is none: no GPU at all, all hidden, or who has them.
    """
    known = None if nvml is None else nvml.gpus()
    allowed = visible_gpus(known or (), visible)
    if nvml is None or not allowed:
        raise no_gpu_error(known, visible)
    states = [_look(nvml, gpu) for gpu in allowed]
    free = free_gpus(states, ours)
    if not free:
        taken = "; ".join(_describe(state, ours) for state in states)
        raise StokerError(f"every GPU is taken: {taken}; to share one, name it: --gpus 0")
    return slots_on(free, jobs_per_gpu)


def format_bytes(count: int | None) -> str:
    """Write an amount of GPU memory for people."""
    return "? GiB" if count is None else f"{count / 2**30:.1f} GiB"


def _look(nvml: Nvml, gpu: Gpu) -> GpuState:
    state = _look_once(nvml, gpu)
    if all(user.is_visible for user in state.users):
        return state
    # One that exited between the driver's answer and our look is gone from a second answer.
    return _look_once(nvml, gpu)


def _look_once(nvml: Nvml, gpu: Gpu) -> GpuState:
    reading = nvml.read(gpu)
    users = (look_up(process) for process in reading.processes)
    return GpuState(reading, tuple(user for user in users if user is not None))


def _describe(state: GpuState, ours: Callable[[int], bool]) -> str:
    if state.reading.lost:
        return f"{state.gpu.label} is lost"
    foreign = (user for user in state.users if not ours(user.pid))
    names = (
        f"{user.user or 'someone outside this container'}"
        f" (pid {user.pid}, {format_bytes(user.mem_bytes)})"
        for user in foreign
    )
    return f"{state.gpu.label} by {', '.join(names)}"
