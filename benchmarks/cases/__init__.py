"""One module per benchmark, in the order they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.cases import (
    add,
    bulk_add,
    cluster,
    cluster_add,
    cluster_cost,
    cluster_planner,
    door_lines,
    door_tasks,
    executor,
    followers,
    gap,
    idle,
    metric_files,
    million,
    planner,
    queue_direct,
    queue_million,
    queue_shell,
    request,
    results,
    sampler,
    sharing_sim,
    shell,
    slurm,
    startup,
    steering,
    sweep,
    throughput_direct,
    throughput_shell,
    tune_idle,
    tune_search,
    turns,
    turns_cost,
    turns_sim,
    verbs,
    warm,
    web,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.arena import Arena
    from benchmarks.report import Result

CASES: dict[str, Callable[[Arena], Result]] = {
    "startup": startup.run,
    "planner": planner.run,
    "cluster_planner": cluster_planner.run,
    "throughput_shell": throughput_shell.run,
    "throughput_direct": throughput_direct.run,
    "gap": gap.run,
    "million": million.run,
    "add": add.run,
    "verbs": verbs.run,
    "shell": shell.run,
    "turns": turns.run,
    "turns_cost": turns_cost.run,
    "turns_sim": turns_sim.run,
    "queue_shell": queue_shell.run,
    "queue_direct": queue_direct.run,
    "bulk_add": bulk_add.run,
    "queue_million": queue_million.run,
    "steering": steering.run,
    "request": request.run,
    "followers": followers.run,
    "idle": idle.run,
    "sampler": sampler.run,
    "sweep": sweep.run,
    "results": results.run,
    "metric_files": metric_files.run,
    "tune_ask": tune_search.run_ask,
    "tune_asha": tune_search.run_asha,
    "tune_best": tune_search.run_best,
    "tune_idle": tune_idle.run,
    "sharing_sim": sharing_sim.run,
    "sharing_sizes": sharing_sim.run_sizes,
    "door_lines": door_lines.run,
    "door_tasks": door_tasks.run,
    "door_cold": door_tasks.run_cold,
    "door_imports": door_tasks.run_imports,
    "executor": executor.run,
    "warm": warm.run,
    "web": web.run,
    "cluster": cluster.run,
    "cluster_add": cluster_add.run,
    "cluster_cost": cluster_cost.run,
    "slurm": slurm.run,
}

LONG = frozenset(
    {
        "cluster",
        "cluster_add",
        "metric_files",
        "million",
        "sharing_sim",
        "slurm",
        "sweep",
        "tune_asha",
        "tune_best",
        "tune_idle",
        "turns_sim",
        "warm",
    }
)
