from __future__ import annotations

import os
import pwd

import pytest

from stoker.errors import StokerError
from stoker.gpus import slots
from stoker.gpus.nvml import Gpu, GpuProcess, Nvml, Reading
from stoker.gpus.survey import default_slots, free_gpus, survey

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


def nobody(_pid: int) -> bool:
    return False


def free(*answers: list[Reading]) -> list[int]:
    return [gpu.index for gpu in free_gpus(survey(Scripted(*answers)), nobody)]


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

    assert [gpu.index for gpu in free_gpus(states, lambda pid: pid == os.getpid())] == [0]


def test_the_default_is_every_free_gpu_as_often_as_jobs_may_share_it() -> None:
    nvml = Scripted([reading(0)], [reading(1, ELSEWHERE)], [reading(2)])

    assert [slot.label for slot in default_slots(nvml, None, nobody, 2)] == ["0", "2", "0", "2"]


def test_the_default_stays_within_the_inherited_visibility() -> None:
    nvml = Scripted([reading(0)], [reading(1)], [reading(2)])

    assert [slot.label for slot in default_slots(nvml, "2,1", nobody)] == ["2", "1"]


def test_where_all_are_taken_the_error_names_who_has_each() -> None:
    nvml = Scripted([reading(0, HERE)], [reading(1, ELSEWHERE)], [reading(2, lost=True)])

    with pytest.raises(StokerError) as caught:
        default_slots(nvml, None, nobody)

    assert str(caught.value) == (
        f"every GPU is taken: 0 by {ME} (pid {os.getpid()}, 1.5 GiB);"
        f" 1 by someone outside this container (pid {FAR_PID}, ? GiB); 2 is lost;"
        " to share one, name it: --gpus 0"
    )


def test_without_any_gpu_the_error_says_why_and_what_to_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slots, "why_unavailable", lambda: "Driver Not Loaded")

    with pytest.raises(StokerError) as caught:
        default_slots(None, None, nobody)

    assert str(caught.value) == (
        "no GPU found (NVML: Driver Not Loaded); name them: --gpus 0,1"
        " (any names; each becomes CUDA_VISIBLE_DEVICES)"
    )


def test_hidden_gpus_are_not_taken() -> None:
    with pytest.raises(StokerError, match="CUDA_VISIBLE_DEVICES='' hides every GPU"):
        default_slots(Scripted([reading(0)]), "", nobody)
