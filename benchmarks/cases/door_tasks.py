"""The compatible GPU Task Scheduler compared with a minimal loop of the same steps."""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.arena import command_line
from benchmarks.measure import Contestant, interleave
from benchmarks.peers import make_environment
from benchmarks.race import pace_figure, standings
from benchmarks.report import Bound, Result, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena

_LOOP = os.path.join(os.path.dirname(os.path.dirname(__file__)), "minimal_loop.py")
_QUICK = 10
_FILES = {
    "config.py": """\
config = {{
    "scheduler_config": {{"gpu": ["0", "1", "2", "3"], "force_rerun": True}},
    "test_config": [{{"number": range({tasks})}}],
}}
""",
    "my_gpu_task.py": """\
{imports}from gpu_task_scheduler.gpu_task import GPUTask


class MyGPUTask(GPUTask):
    def main(self):
        print(self._config["number"])
""",
    "main.py": """\
from config import config
from my_gpu_task import MyGPUTask
from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler

GPUTaskScheduler(config=config, gpu_task_class=MyGPUTask, warm={warm}).start(check=True)
""",
}


class Race(NamedTuple):
    """How many tasks there are, what their module imports, how the door starts them, and its bound."""

    name: str
    tasks: int
    at_least: float
    warm: bool = True
    imports: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether it is the race as its users know it."""
        return self.warm and not self.imports

    @property
    def what(self) -> str:
        """What is run, in words."""
        tasks = f"tasks whose module imports {self.imports}" if self.imports else "trivial tasks"
        return f"{self.tasks} {tasks}{'' if self.warm else ', with `warm=False`'}"


def run(arena: Arena) -> Result:
    """Run trivial tasks both ways."""
    return _race(arena, Race("door_tasks", tasks=480, at_least=3.0))


def run_cold(arena: Arena) -> Result:
    """The same with a fresh interpreter for each task, also behind the door."""
    return _race(arena, Race("door_cold", tasks=240, at_least=1.0, warm=False))


def run_imports(arena: Arena) -> Result:
    """Run tasks of a module that has something to import."""
    return _race(arena, Race("door_imports", tasks=200, at_least=5.0, imports="numpy"))


def _race(arena: Arena, race: Race) -> Result:
    if arena.quick:
        race = race._replace(tasks=race.tasks // _QUICK)
    python = arena.peers.python.path
    theirs, ours = (_folder(arena, f"{race.name}-{side}", race) for side in ("loop", "door"))
    with arena.home() as env:
        contestants = [
            Contestant(
                name=name,
                argv=[os.path.relpath(python, folder), script],
                stdin=os.devnull,
                jobs=race.tasks,
                env={**env, **_path_to(arena, race.imports)},
                cwd=folder,
            )
            for name, folder, script in (
                ("minimal loop", theirs, os.path.relpath(_LOOP, theirs)),
                ("GPUTaskScheduler", ours, "main.py"),
            )
        ]
        for contestant in contestants:
            arena.run(contestant)
        samples = interleave(contestants, arena.rounds, arena.run, arena.progress)
    target = Target(Bound.AT_LEAST, race.at_least)
    return Result(
        name=race.name,
        what=f"{race.what} on 4 GPUs, {arena.rounds} interleaved rounds.",
        details=standings(samples, "minimal loop"),
        figures=[pace_figure(samples, "GPUTaskScheduler", "minimal loop", target)],
        commands=[command_line(contestant) for contestant in contestants],
        notes=[_show_loop() if race.is_plain else "The minimal loop is shown with `door_tasks`."],
    )


def _path_to(arena: Arena, package: str) -> dict[str, str]:
    """An environment in which a package is found that is not Stoker's own."""
    if not package:
        return {}
    python = make_environment(os.path.join(arena.folder, package), (package,))
    [packages] = glob.glob(f"{os.path.dirname(python)}/../lib/python*/site-packages")
    return {"PYTHONPATH": os.path.normpath(packages)}


def _show_loop() -> str:
    with open(_LOOP, encoding="utf-8") as file:
        return (
            f"The original is not on PyPI; this loop has its steps:\n\n```python\n{file.read()}```"
        )


def _folder(arena: Arena, name: str, race: Race) -> str:
    """A user's folder for one contestant."""
    folder = os.path.join(arena.folder, "inputs", name)
    os.makedirs(folder, exist_ok=True)
    imports = f"import {race.imports}\n" if race.imports else ""
    for file_name, text in _FILES.items():
        with open(os.path.join(folder, file_name), "w", encoding="utf-8") as file:
            file.write(text.format(tasks=race.tasks, imports=imports, warm=race.warm))
    return folder
