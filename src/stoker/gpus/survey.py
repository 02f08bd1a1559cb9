"""Which GPUs are free, and who has the others."""

from collections.abc import Callable

import msgspec

from stoker.gpus.nvml import Gpu, Nvml, Reading
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
    return tuple(look(nvml, gpu) for gpu in nvml.gpus())


def taken_by(state: GpuState, ours: Callable[[GpuUser], bool]) -> str | None:
    """Say who else uses a GPU, or that it is lost; None if it is free to use."""
    if state.reading.lost:
        return "lost: the driver cannot reach it"
    foreign = [user for user in state.users if not ours(user)]
    if not foreign:
        return None
    return "in use by " + ", ".join(
        f"{user.user or 'someone outside this container'}"
        f" (pid {user.pid}, {format_bytes(user.mem_bytes)})"
        for user in foreign
    )


def format_bytes(count: int | None) -> str:
    """Write an amount of GPU memory for people."""
    return "? GiB" if count is None else f"{count / 2**30:.1f} GiB"


def look(nvml: Nvml, gpu: Gpu) -> GpuState:
    """Look at one GPU."""
    state = _look_once(nvml, gpu)
    if all(user.is_visible for user in state.users):
        return state
    # One that exited between the driver's answer and our look is gone from a second answer.
    return _look_once(nvml, gpu)


def _look_once(nvml: Nvml, gpu: Gpu) -> GpuState:
    return state_of(nvml.read(gpu))


def state_of(reading: Reading) -> GpuState:
    """Find out who is behind a reading's processes."""
    users = (look_up(process) for process in reading.processes)
    return GpuState(reading, tuple(user for user in users if user is not None))
