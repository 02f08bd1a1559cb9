"""GPU Task Scheduler's door beside a minimal loop of the same steps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from benchmarks.arena import command_line
from benchmarks.measure import Contestant, interleave
from benchmarks.race import pace_figure, standings
from benchmarks.report import Bound, Result, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena

TASKS = 480
QUICK_TASKS = 48
_FILES = {
    "config.py": """\
config = {{
    "scheduler_config": {{"gpu": ["0", "1", "2", "3"], "force_rerun": True}},
    "test_config": [{{"number": range({tasks})}}],
}}
""",
    "my_gpu_task.py": """\
from gpu_task_scheduler.gpu_task import GPUTask


class MyGPUTask(GPUTask):
    def main(self):
        print(self._config["number"])
""",
    "main.py": """\
from config import config
from my_gpu_task import MyGPUTask
from gpu_task_scheduler.gpu_task_scheduler import GPUTaskScheduler

GPUTaskScheduler(config=config, gpu_task_class=MyGPUTask).start(check=True)
""",
}


def run(arena: Arena) -> Result:
    """Run the same trivial tasks both ways."""
    tasks = QUICK_TASKS if arena.quick else TASKS
    loop = os.path.join(os.path.dirname(os.path.dirname(__file__)), "minimal_loop.py")
    theirs, ours = (_folder(arena, name, tasks) for name in ("minimal_loop", "gpu_task_scheduler"))
    with arena.home() as env:
        contestants = [
            Contestant(
                name=name,
                argv=[os.path.relpath(arena.peers.python.path, folder), script],
                stdin=os.devnull,
                jobs=tasks,
                env=env,
                cwd=folder,
            )
            for name, folder, script in (
                ("minimal loop", theirs, os.path.relpath(loop, theirs)),
                ("GPUTaskScheduler", ours, "main.py"),
            )
        ]
        for contestant in contestants:
            arena.run(contestant)
        samples = interleave(contestants, arena.rounds, arena.run, arena.progress)
    with open(loop, encoding="utf-8") as file:
        source = file.read()
    return Result(
        name="door_tasks",
        what=f"{tasks} trivial tasks on 4 GPUs, {arena.rounds} interleaved rounds.",
        details=standings(samples, "minimal loop"),
        figures=[
            pace_figure(samples, "GPUTaskScheduler", "minimal loop", Target(Bound.AT_LEAST, 1.0))
        ],
        commands=[command_line(contestant) for contestant in contestants],
        notes=[
            f"The original is not on PyPI; this loop has its steps:\n\n```python\n{source}```",
        ],
    )


def _folder(arena: Arena, name: str, tasks: int) -> str:
    """A user's folder for one contestant."""
    folder = os.path.join(arena.folder, "inputs", name)
    os.makedirs(folder, exist_ok=True)
    for file_name, text in _FILES.items():
        with open(os.path.join(folder, file_name), "w", encoding="utf-8") as file:
            file.write(text.format(tasks=tasks) if "{{" in text else text)
    return folder
