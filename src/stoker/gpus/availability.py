"""State of GPUs as users see it: free, in use by others, sick or lost."""

import msgspec

from stoker.core.size import format_bytes
from stoker.core.usage import GpuUse, Sight
from stoker.gpus.driver import Gpu, GpuDriver, Reading
from stoker.gpus.process_users import GpuUser, look_up


class GpuState(msgspec.Struct, frozen=True):
    """A GPU as it is now, and the living processes on it."""

    reading: Reading
    users: tuple[GpuUser, ...]

    @property
    def gpu(self) -> Gpu:
        """The GPU itself."""
        return self.reading.gpu


def survey(nvml: GpuDriver) -> tuple[GpuState, ...]:
    """Read every GPU once."""
    return tuple(look(nvml, gpu) for gpu in nvml.gpus())


def taken_by(use: GpuUse, *, mind_others: bool) -> str | None:
    """Return why a GPU cannot be used: sick, lost, or used by others; None if it can."""
    if use.sick is not None:
        return f"sick: {use.sick}"
    if use.sight is Sight.NONE:
        return "lost: the driver cannot reach it"
    if not (mind_others and use.foreigners):
        return None
    return "in use by " + ", ".join(
        f"{each.user or 'someone outside this container'}"
        f" (pid {each.pid}, {format_bytes(each.mem_bytes)})"
        for each in use.foreigners
    )


def look(nvml: GpuDriver, gpu: Gpu) -> GpuState:
    """Read one GPU."""
    state = _look_once(nvml, gpu)
    if all(user.is_visible for user in state.users):
        return state
    # A process that exited between the driver's answer and ours is missing from a second answer.
    return _look_once(nvml, gpu)


def _look_once(nvml: GpuDriver, gpu: Gpu) -> GpuState:
    reading = nvml.read(gpu)
    users = (look_up(process) for process in reading.processes or ())
    return GpuState(reading, tuple(user for user in users if user is not None))
