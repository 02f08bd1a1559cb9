"""The door of GPU Task Scheduler: the example of its README, what its users know, and what was mended."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Ended, Stoker

# As its README has it, word for word.
CONFIG = """\
config = {
    "scheduler_config": {
        "gpu": ["0", "1", "2"]
    },

    "global_config": {
        "num_run": 5,
        "num_epoch": 200,
    },

    "test_config": [
        {
            "method": ["GAN", "ALI"],
            "num_packing": [1],
            "num_zmode": [1]
        }, 
        {
            "method": ["WGAN"],
            "num_packing": [3],
            "num_zmode": [1, 2]
        }
    ]
}
"""  # noqa: W291
MAIN = """\
from config import config
from my_gpu_task import MyGPUTask
from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
scheduler = GPUTaskScheduler(config = config, gpu_task_class = MyGPUTask)
scheduler.start()
"""
TASK = """\
import os
from gpu_task_scheduler.gpu_task import GPUTask

class MyGPUTask(GPUTask):
    def main(self):
        print(sorted(self._config.items()), os.environ["CUDA_VISIBLE_DEVICES"])
"""


def python(
    stoker: Stoker, script: str = "main.py", env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    return stoker.adopt(
        subprocess.Popen(
            [sys.executable, script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**stoker.env, **(env or {})},
            cwd=stoker.work,
        )
    )


def run(
    stoker: Stoker,
    script: str = "main.py",
    env: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
) -> Ended:
    ended = stoker.end(python(stoker, script, env), timeout_s=timeout_s)
    assert ended.code == 0, ended.err
    return ended


def write(stoker: Stoker, *, task: str, config: str, main: str = MAIN) -> None:
    stoker.file("my_gpu_task.py", task)
    stoker.file("config.py", f"config = {config}\n")
    stoker.file("main.py", main)


def verbs(stoker: Stoker, log: str = "scheduler.log") -> list[str]:
    """What the log says was done, without times, GPUs and the names of tasks."""
    words = [line.split(" INFO ")[1].split() for line in stoker.read(log) if " INFO gpu" in line]
    return sorted(word[1] for word in words)


def results(stoker: Stoker, root: str = "results") -> list[str]:
    return sorted(os.listdir(stoker.work / root))


def test_the_sample_configuration_and_the_lines_that_run_it(stoker: Stoker) -> None:
    stoker.file("config.py", CONFIG)
    stoker.file("my_gpu_task.py", TASK)
    stoker.file("main.py", MAIN)

    run(stoker)

    assert results(stoker) == [
        "method-ALI,num_packing-1,num_zmode-1,",
        "method-GAN,num_packing-1,num_zmode-1,",
        "method-WGAN,num_packing-3,num_zmode-1,",
        "method-WGAN,num_packing-3,num_zmode-2,",
    ]
    for name in results(stoker):
        assert os.listdir(stoker.work / "results" / name) == ["worker.log"]
        [line] = stoker.read(f"results/{name}/worker.log")
        method, packing, zmode = (pair.partition("-")[2] for pair in name.split(",")[:3])
        config = {"num_run": 5, "num_epoch": 200, "method": method}
        config |= {"num_packing": int(packing), "num_zmode": int(zmode)}
        assert line[:-2] == str(sorted(config.items()))
        assert line[-1] in "012"
    log = stoker.read("scheduler.log")
    assert log[0].endswith("INFO gpu0 receives task method-GAN,num_packing-1,num_zmode-1,")
    assert "gpu_task_scheduler.py[line:" in log[0]
    assert verbs(stoker) == ["finished"] * 3 + ["finishes"] * 4 + ["receives"] * 4

    run(stoker)
    assert verbs(stoker).count("skips") == 4
    assert verbs(stoker).count("finishes") == 4


def test_lists_of_gpu_ids_give_each_test_two_gpus(stoker: Stoker) -> None:
    write(
        stoker,
        task=TASK,
        config='{"scheduler_config": {"gpu": [["0", "1"], ["2", "3"]]}, "test_config": [{"a": [1]}]}',
    )
    run(stoker)
    assert stoker.read("results/a-1,/worker.log") == ["[('a', 1)] 0,1"]
    assert " INFO gpu0,1 receives task a-1," in stoker.read("scheduler.log")[0]


ODD_TASK = """\
import os
from gpu_task_scheduler.gpu_task import GPUTask
from gpu_task_scheduler.config_manager import ConfigManager
from .helper import describe

class Odd(GPUTask):
    def required_env(self):
        with open(os.path.join(self._work_dir, "asked"), "a") as file:
            file.write(f"{os.getpid()}\\n")
        self.asked = os.getpid()
        return {"FLAG": self._config["number"] % 2}

    def main(self):
        assert os.environ["FLAG"] == str(self._config["number"] % 2)
        assert self.asked == os.getppid() or self.asked != os.getpid()
        if self._config["number"] == 0:
            import config
            assert [ConfigManager(config.config).get_num_left_config() for _ in range(3)] == [480] * 3
        with open(os.path.join(self._work_dir, "ran"), "a") as file:
            file.write(describe(self._config) + "\\n")
"""
ODD_CONFIG = """\
from collections import OrderedDict
import numpy
config = {
    "scheduler_config": {"gpu": ["0", "1", "2", "3", "3"], "force_return": True},
    "global_config": {"kind": OrderedDict, "array": numpy.arange(5)},
    "test_config": [{"number": range(450)}, {"number": range(420, 450)}],
}
"""


@pytest.mark.timeout(400)
def test_an_odd_task_480_instances_30_of_them_twice(stoker: Stoker) -> None:
    (stoker.work / "lab" / "tasks").mkdir(parents=True)
    for package in ("lab", "lab/tasks"):
        stoker.file(f"{package}/__init__.py", "")
    stoker.file("lab/tasks/odd.py", ODD_TASK)
    stoker.file(
        "lab/tasks/helper.py",
        "def describe(config):\n"
        "    return f\"{config['kind'].__name__} {config['array'].sum()} {config['number']}\"\n",
    )
    stoker.file("config.py", ODD_CONFIG)
    stoker.file("main.py", MAIN.replace("my_gpu_task", "lab.tasks.odd").replace("MyGPUTask", "Odd"))

    ended = run(stoker, timeout_s=380.0)

    assert "scheduler_config has no force_return: it is ignored" in ended.err
    assert sorted(results(stoker)) == sorted(f"number-{number}," for number in range(450))
    for number in range(450):
        folder = f"results/number-{number},"
        assert stoker.read(f"{folder}/ran") == [f"OrderedDict 10 {number}"]
        assert len(stoker.read(f"{folder}/asked")) == 1
        assert not number or stoker.read(f"{folder}/worker.log") == []
    assert verbs(stoker) == ["finished"] * 5 + ["finishes"] * 450 + ["receives"] * 450


def test_values_may_be_arrays_and_functions_of_the_main_script(stoker: Stoker) -> None:
    write(
        stoker,
        task="""\
from gpu_task_scheduler.gpu_task import GPUTask

class MyGPUTask(GPUTask):
    def main(self):
        print(self._config["array"].sum(), self._config["double"](21))
""",
        config="{}",
        main="""\
import numpy
def double(x): return 2 * x
config = {
    "scheduler_config": {"gpu": ["0"]},
    "global_config": {"double": double},
    "test_config": [{"array": [numpy.arange(3), numpy.arange(2000)]}],
}
"""
        + MAIN.replace("from config import config\n", ""),
    )

    run(stoker)

    small, large = sorted(results(stoker), key=len)
    assert stoker.read(f"results/{small}/worker.log") == ["3 42"]
    assert stoker.read(f"results/{large}/worker.log") == ["1999000 42"]


FAILING = """\
import os, sys
from gpu_task_scheduler.gpu_task import GPUTask

class MyGPUTask(GPUTask):
    def required_env(self):
        if self._config["a"] == "asks":
            raise RuntimeError("no environment")
        return {}

    def main(self):
        print("runs", flush=False)
        with open("ran", "a") as file:
            file.write(f"{self._config['a']}\\n")
        if self._config["a"] == "raises":
            raise ValueError("boom")
        if self._config["a"] == "exits":
            sys.exit(3)
"""


def test_a_failure_is_told_and_runs_again(stoker: Stoker) -> None:
    write(
        stoker,
        task=FAILING,
        config="""{
            "scheduler_config": {"gpu": ["0"]},
            "test_config": [{"a": ["asks", "raises", "exits", "works", "was there"]}],
        }""",
        main=MAIN.replace("scheduler.start()", "result = scheduler.start()\n")
        + "for task in result.failed: print(task.name, task.state, task.reason)\n"
        + "print(result.ok, result.summary)\n"
        + "from gpu_task_scheduler.results import TasksFailedError\n"
        + "try: scheduler.start(check=True)\n"
        + "except TasksFailedError as error: print(error)\n",
    )
    (stoker.work / "results" / "a-wasthere,").mkdir(parents=True)

    ended = run(stoker)

    assert ended.out.splitlines() == [
        "a-asks, failed could not start: RuntimeError: no environment",
        "a-raises, failed exit 1: ValueError: boom",
        "a-exits, failed exit 3",
        "False 1 done, 1 skipped, 3 failed",
        "3 of 5 tasks failed, the first: a-asks,: could not start: RuntimeError: no environment",
    ]
    assert stoker.read("ran") == ["raises", "exits", "works", "raises", "exits"]
    log = "\n".join(stoker.read("scheduler.log"))
    assert "gpu0 finishes task a-raises,\n" in log
    assert "gpu0 task a-raises, did not succeed: exit 1: ValueError: boom" in log
    assert log.count("RuntimeError: no environment") > 1


def test_an_interrupted_run_goes_on_where_it_was(stoker: Stoker) -> None:
    write(
        stoker,
        task="""\
import os, time
from gpu_task_scheduler.gpu_task import GPUTask

class MyGPUTask(GPUTask):
    def main(self):
        with open("ran", "a") as file:
            file.write(f"{self._config['a']}\\n")
        print("unbuffered", end="")
        while self._config["a"] == 1 and not os.path.exists("go"):
            time.sleep(0.01)
""",
        config='{"scheduler_config": {"gpu": ["0"]}, "test_config": [{"a": [0, 1, 2]}]}',
    )
    process = python(stoker)
    stoker.until(lambda: stoker.read("results/a-1,/worker.log") == ["unbuffered"], "it runs", 30)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stoker.until(lambda: not stoker.processes(), "nothing is left of it")
    (stoker.work / "go").touch()

    run(stoker)

    assert stoker.read("ran") == ["0", "1", "1", "2"]
    assert verbs(stoker).count("skips") == 1


def test_force_rerun_and_a_second_script_in_the_same_folders(stoker: Stoker) -> None:
    write(
        stoker,
        task=TASK,
        config='{"scheduler_config": {"gpu": ["0"]}, "test_config": [{"a": [1, 2]}]}',
    )
    stoker.file(
        "again.py",
        MAIN.replace(
            "scheduler =",
            'config["scheduler_config"].update(force_rerun=True, log_file="again.log",'
            ' scheduler_log_file_path="logs/again.log")\nscheduler =',
        ),
    )
    run(stoker)
    run(stoker, "again.py")

    for number in (1, 2):
        assert sorted(os.listdir(stoker.work / f"results/a-{number},")) == [
            "again.log",
            "worker.log",
        ]
    assert verbs(stoker, "logs/again.log") == ["finished"] + ["finishes"] * 2 + ["receives"] * 2


def test_a_task_named_by_a_string_is_never_imported_by_the_scheduling_process(
    stoker: Stoker,
) -> None:
    write(
        stoker,
        task="""\
import os
from stoker.testing.state import FakeGpus
FakeGpus(os.environ["STOKER_FAKE_NVML"]).use(os.getpid(), 0, 1 << 30)
with open("imported", "a") as file:
    file.write(f"{os.getpid()}\\n")
from gpu_task_scheduler.gpu_task import GPUTask

class MyGPUTask(GPUTask):
    def required_env(self):
        self.asked = True
        return {"FLAG": 1}

    def main(self):
        print(self.asked, os.environ["FLAG"], os.environ["CUDA_VISIBLE_DEVICES"])
""",
        config='{"scheduler_config": {"gpu": ["0"]}, "test_config": [{"a": [1]}]}',
        main="import os\nprint(os.getpid())\n"
        + MAIN.replace("from my_gpu_task import MyGPUTask\n", "").replace(
            "= MyGPUTask", '= "my_gpu_task.MyGPUTask"'
        ),
    )

    ended = run(stoker)

    assert stoker.read("results/a-1,/worker.log") == ["True 1 0"]
    assert stoker.read("imported")
    assert ended.out.strip() not in stoker.read("imported")
    assert ended.out.strip() not in os.listdir(f"{stoker.box.folder}/procs")


def test_a_class_in_the_main_script_without_a_guard_or_a_path_as_in_a_notebook(
    stoker: Stoker,
) -> None:
    stoker.file(
        "main.py",
        """\
from gpu_task_scheduler.gpu_task import GPUTask
from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
import asyncio, os
class Value:
    def __str__(self): return "v"
class Mine(GPUTask):
    def required_env(self):
        return {"MPLBACKEND": "svg"} if self._config["own"] else {}
    def main(self):
        print(self._config["value"], os.environ["MPLBACKEND"])
        if not self._config["own"]:
            import matplotlib.pyplot
            print(matplotlib.get_backend().lower())
            matplotlib.pyplot.switch_backend("pdf")
            print(matplotlib.get_backend())
config = {
    "scheduler_config": {"gpu": ["0"], "temp_folder": "a/temp", "log_file": "out"},
    "global_config": {"value": Value()},
    "test_config": [{"own": [False, True]}],
}
async def cell():  # a notebook's cells run in an event loop
    return GPUTaskScheduler(config=config, gpu_task_class=Mine).start(check=True)
asyncio.run(cell())
""",
    )

    run(stoker, env={"PATH": "/nowhere"})

    assert stoker.read("results/own-False,/out") == ["v Agg", "agg", "pdf"]
    assert stoker.read("results/own-True,/out") == ["v svg"]
    assert os.listdir(stoker.work / "a" / "temp") == ["stoker-finished.jsonl"]


def test_two_schedulers_in_one_process_with_no_log_file_and_no_output_kept(stoker: Stoker) -> None:
    write(
        stoker,
        task=TASK,
        config="""{
            "scheduler_config": {
                "gpu": ["0"], "log_file": None, "scheduler_log_file_path": None,
            },
            "test_config": [{"a": [1]}],
        }""",
        main=f"{MAIN}config['test_config'] = [{{'a': [2]}}]\n{MAIN}",
    )
    ended = run(stoker)
    assert ended.err.count("gpu0 finishes task") == 2
    assert [os.listdir(stoker.work / "results" / name) for name in results(stoker)] == [[], []]
    assert not (stoker.work / "scheduler.log").exists()
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)  # root could have removed it as an old log


def test_a_task_that_changes_its_folder_finds_its_results_folder(stoker: Stoker) -> None:
    stoker.file(
        "main.py",
        """\
import os
from gpu_task_scheduler.gpu_task import GPUTask
from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler
class Moving(GPUTask):
    def main(self):
        os.chdir("/")
        with open(os.path.join(self._work_dir, "out"), "w") as file:
            file.write(self._work_dir)
config = {"scheduler_config": {"gpu": ["0"]}, "test_config": [{"a": [1]}]}
print(GPUTaskScheduler(config=config, gpu_task_class=Moving).start().summary)
""",
    )

    ended = run(stoker)

    assert ended.out == "1 done, 0 skipped, 0 failed\n", ended.err
    assert stoker.read("results/a-1,/out") == [f"{stoker.work}/results/a-1,"]
