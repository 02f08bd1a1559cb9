"""Selection of jobs for `ls` in a long queue: all that run, the next to start, the last that ended."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.cli.state_colours import ORDER
from stoker.client.light_client import Selection
from stoker.core.lifecycle import State, is_final, is_live, is_pending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.client.client import Client
    from stoker.client.light_client import LightClient
    from stoker.wire import Job

LINES = 40
_LIVE_SHOWN = 1000
_FEWEST = 6  # jobs that do not run, however many run
_ENDED_SHARE = 3


class JobOverview:
    """The jobs to show, and a description of those left out."""

    def __init__(self, jobs: list[Job], left_out: list[str]) -> None:
        self.jobs = jobs
        self.left_out = left_out


def fetch_overview(
    client: Client | LightClient, selection: Selection, lines: int = LINES
) -> JobOverview:
    """Fetch all running jobs, and others for the lines that are left."""
    asked = selection.states or list(State)
    project = selection.project
    live = _first(client, [state for state in asked if is_live(state)], project, _LIVE_SHOWN)
    room = max(_FEWEST, lines - len(live))
    waiting = _first(client, [state for state in asked if is_pending(state)], project, room)
    ended = _first(client, [state for state in asked if is_final(state)], project, room)
    # Ended jobs get the lines that waiting jobs leave, and at least a third.
    shown_ended = ended[: max(room // _ENDED_SHARE, room - len(waiting))]
    jobs = [*live, *waiting[: room - len(shown_ended)], *shown_ended]
    is_whole = (
        len(jobs) == len(live) + len(waiting) + len(ended) and max(len(waiting), len(ended)) < room
    )
    return JobOverview(jobs, [] if is_whole else _left_out(client, asked, project, jobs))


def _first(
    client: Client | LightClient, states: list[State], project: str | None, limit: int
) -> list[Job]:
    return client.ls(Selection(states=states, project=project), limit=limit).jobs if states else []


def _left_out(
    client: Client | LightClient, asked: Sequence[State], project: str | None, jobs: list[Job]
) -> list[str]:
    if project is not None:  # the daemon counts only the whole queue
        return ["more of this project"]
    counts = client.status().counts
    left = {
        state: counts.get(state, 0) - sum(job.state is state for job in jobs) for state in asked
    }
    return [f"{left[state]:,} more {state.value}" for state in ORDER if left.get(state, 0) > 0]
