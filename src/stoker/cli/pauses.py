"""What is paused: the queue, and projects."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.wire import Status


def describe_pauses(status: Status, project: str | None = None) -> list[str]:
    """Describe what is paused, why, and how to resume it; of all projects, or of one."""
    lines = []
    if status.queue_paused is not None:
        lines.append(f"the queue is paused ({status.queue_paused}): stoker resume --queue")
    if status.no_project_paused is not None and project is None:
        reason = status.no_project_paused
        lines.append(f"jobs without a project are paused ({reason}): stoker resume --queue")
    for name, reason in sorted(status.projects_paused.items()):
        if project in (None, name):
            lines.append(f"project {name} is paused ({reason}): stoker resume --queue -P {name}")
    return lines


def paused_projects(status: Status) -> dict[str | None, str]:
    """Return the reason of each paused project; None stands for the jobs without a project."""
    paused: dict[str | None, str] = dict(status.projects_paused.items())
    if status.no_project_paused is not None:
        paused[None] = status.no_project_paused
    return paused
