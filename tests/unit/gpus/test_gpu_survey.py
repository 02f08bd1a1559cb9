from __future__ import annotations

import os
import pwd

from stoker.gpus.nvml import Gpu, GpuProcess, Nvml, Reading
from stoker.gpus.survey import survey, taken_by
from stoker.gpus.users import GpuUser

FAR_PID = 1 << 30
ME = pwd.getpwuid(os.getuid()).pw_name
HERE = GpuProcess(os.getpid(), 3 << 29)
ELSEWHERE = GpuProcess(FAR_PID, None)


class Scripted(Nvml):
    """An NVML that answers from lists; the last answer of a GPU stands."""

    def __init__(self, *answers: list[Reading]) -> None:
        self._answers = {answer[0].gpu.uuid: list(answer) for answer in answers}
        self._gpus = tuple(answer[0].gpu for answer in answers)

    def read(self, gpu: Gpu, processes: bool = True) -> Reading:
        answers = self._answers[gpu.uuid]
        return answers.pop(0) if len(answers) > 1 else answers[0]


def reading(index: int, *processes: GpuProcess, lost: bool = False) -> Reading:
    gpu = Gpu(index, f"GPU-{index}", "A100", 8 << 30, is_mig=False)
    return Reading(gpu, processes=processes, lost=lost)


def nobody(_user: GpuUser) -> bool:
    return False


def free(*answers: list[Reading]) -> list[int]:
    states = survey(Scripted(*answers))
    return [state.gpu.index for state in states if taken_by(state, nobody) is None]


def test_a_gpu_that_a_foreign_process_uses_is_not_free() -> None:
    assert free([reading(0, HERE)], [reading(1)]) == [1]


def test_a_gpu_that_an_unseen_process_uses_is_not_free() -> None:
    assert free([reading(0, ELSEWHERE)], [reading(1)]) == [1]


def test_a_lost_gpu_is_not_free() -> None:
    assert free([reading(0, lost=True)], [reading(1)]) == [1]


def test_a_process_that_exits_while_we_look_does_not_count() -> None:
    assert free([reading(0, ELSEWHERE), reading(0)]) == [0]


def test_our_own_processes_do_not_count() -> None:
    states = survey(Scripted([reading(0, HERE)], [reading(1, HERE, ELSEWHERE)]))

    def ours(user: GpuUser) -> bool:
        return user.pid == os.getpid()

    assert taken_by(states[0], ours) is None
    assert taken_by(states[1], ours) == (
        f"in use by someone outside this container (pid {FAR_PID}, ? GiB)"
    )


def test_a_lost_gpu_is_lost_to_its_own_processes_too() -> None:
    (state,) = survey(Scripted([reading(0, HERE, lost=True)]))

    assert taken_by(state, lambda _user: True) == "lost: the driver cannot reach it"


def test_who_uses_a_gpu_is_told_by_name_with_pid_and_memory() -> None:
    (state,) = survey(Scripted([reading(0, HERE, ELSEWHERE)]))

    assert taken_by(state, nobody) == (
        f"in use by {ME} (pid {os.getpid()}, 1.5 GiB),"
        f" someone outside this container (pid {FAR_PID}, ? GiB)"
    )
