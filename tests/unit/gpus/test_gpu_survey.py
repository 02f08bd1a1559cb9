from __future__ import annotations

import os
import pwd

from stoker.core.usage import Foreigner, GpuUse, Sight
from stoker.gpus.availability import survey, taken_by
from stoker.gpus.driver import Gpu, GpuProcess, Reading
from stoker.gpus.nvml import Nvml

FAR_PID = 1 << 30
ME = pwd.getpwuid(os.getuid()).pw_name
HERE = GpuProcess(os.getpid(), 3 << 29)
ELSEWHERE = GpuProcess(FAR_PID, None)
STRANGERS = (Foreigner(11, "ann", 3 << 29), Foreigner(FAR_PID))


class Scripted(Nvml):
    """An NVML that answers from lists; the last answer of a GPU stands."""

    def __init__(self, *answers: list[Reading]) -> None:
        self._answers = {answer[0].gpu.uuid: list(answer) for answer in answers}
        self._gpus = tuple(answer[0].gpu for answer in answers)

    def read(self, gpu: Gpu) -> Reading:
        answers = self._answers[gpu.uuid]
        return answers.pop(0) if len(answers) > 1 else answers[0]


def reading(index: int, *processes: GpuProcess, lost: bool = False) -> Reading:
    gpu = Gpu(index, f"GPU-{index}", "A100", 8 << 30, is_mig=False)
    return Reading(gpu, processes=processes, lost=lost)


def use(sight: Sight = Sight.PROCESSES, sick: str | None = None) -> GpuUse:
    return GpuUse(key="GPU-0", label="0", sight=sight, foreigners=STRANGERS, sick=sick)


def test_the_living_processes_of_a_gpu_are_listed_with_their_users() -> None:
    (state,) = survey(Scripted([reading(0, HERE, ELSEWHERE)]))

    assert [(user.pid, user.user) for user in state.users] == [(os.getpid(), ME), (FAR_PID, None)]


def test_a_process_that_exits_while_we_look_does_not_count() -> None:
    (state,) = survey(Scripted([reading(0, ELSEWHERE), reading(0)]))

    assert state.users == ()


def test_other_users_of_a_gpu_are_named_with_pid_and_memory() -> None:
    assert taken_by(use(), mind_others=True) == (
        f"in use by ann (pid 11, 1.5 GiB), someone outside this container (pid {FAR_PID}, ? GiB)"
    )


def test_ignored_foreign_processes_do_not_make_a_gpu_busy() -> None:
    assert taken_by(use(), mind_others=False) is None


def test_a_lost_gpu_is_unavailable() -> None:
    assert taken_by(use(Sight.NONE), mind_others=False) == "lost: the driver cannot reach it"


def test_a_sick_gpu_is_unavailable_with_its_fault() -> None:
    assert taken_by(use(sick="XID 79, fell off the bus"), mind_others=False) == (
        "sick: XID 79, fell off the bus"
    )
