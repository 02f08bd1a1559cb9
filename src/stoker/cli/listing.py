"""The jobs worth a look, out of very many: all that run, those that wait next, those that ended last."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from stoker.cli.states import ORDER
from stoker.core.lifecycle import State, is_final, is_live
from stoker.wire import Selection

if TYPE_CHECKING:
    from stoker.client.client import Client
    from stoker.wire import Job

_LIVE_SHOWN = 1000
_SHOWN = 30
_ENDED_SHOWN = 10  # where others are shown too


class Listing(NamedTuple):
    """Jobs, and in words what was left out."""

    jobs: list[Job]
    left_out: list[str]


def take_listing(client: Client, selection: Selection, room: int = _SHOWN) -> Listing:
    """Ask for what a screen can hold; `room` is for those that do not run."""
    asked = selection.states or list(State)
    live = [state for state in asked if is_live(state)]
    ended = [state for state in asked if is_final(state)]
    is_mixed = bool(ended) and (bool(live) or State.WAITING in asked)
    ended_room = max(1, min(_ENDED_SHOWN, room // 2)) if is_mixed else room
    jobs: list[Job] = []
    cut_off: list[State] = []
    for states, limit in (
        (live, _LIVE_SHOWN),
        ([State.WAITING] if State.WAITING in asked else [], room - ended_room * is_mixed),
        (ended, ended_room),
    ):
        if states:
            part = Selection(states=states, project=selection.project)
            page = client.ls(part, limit=max(1, limit))
            jobs += page.jobs
            cut_off += states if page.next else []
    return Listing(jobs, _left_out(client, selection, jobs, cut_off) if cut_off else [])


def _left_out(
    client: Client, selection: Selection, jobs: list[Job], cut_off: list[State]
) -> list[str]:
    if selection.project is not None:  # only the whole queue is counted
        return ["more of this project"]
    counts = client.status().counts
    shown = {state: sum(job.state is state for job in jobs) for state in cut_off}
    return [
        f"{counts.get(state, 0) - shown[state]:,} more {state.value}"
        for state in ORDER
        if state in cut_off and counts.get(state, 0) > shown[state]
    ]
