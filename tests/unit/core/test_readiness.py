from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.core.lifecycle import State, is_final
from stoker.core.readiness import Need, find_cycle, pending_state

states = st.none() | st.sampled_from(State)
needs = st.lists(st.builds(Need, st.integers(1, 9), states, st.booleans()), max_size=5)


@given(
    held=st.booleans(), needs=needs, begin=st.none() | st.integers(0, 20), now=st.integers(0, 20)
)
def test_a_job_waits_exactly_when_nothing_keeps_it(
    held: bool, needs: list[Need], begin: int | None, now: int
) -> None:
    state = pending_state(held=held, needs=needs, begin_at_us=begin, now_us=now)

    free = not held and all(need.is_met for need in needs) and (begin is None or begin <= now)
    assert (state is State.WAITING) is free
    assert (state is State.SKIPPED) is any(need.is_hopeless for need in needs)
    if state is State.BLOCKED:
        assert any(not need.is_met for need in needs)


@given(state=states, any_end=st.booleans())
def test_a_need_is_open_only_while_its_job_may_still_end(
    state: State | None, any_end: bool
) -> None:
    need = Need(1, state, any_end)

    assert not (need.is_met and need.is_hopeless)
    is_open = not need.is_met and not need.is_hopeless
    assert is_open is (state is not None and not is_final(state))
    if any_end:
        assert not need.is_hopeless


graphs = st.dictionaries(
    st.integers(0, 7), st.lists(st.integers(0, 7), max_size=4, unique=True), max_size=8
)


@given(graph=graphs, job=st.integers(0, 7))
def test_a_circle_is_found_if_and_only_if_there_is_one(
    graph: dict[int, list[int]], job: int
) -> None:
    reachable: set[int] = set()
    queue = list(graph.get(job, ()))
    while queue:
        current = queue.pop()
        if current not in reachable:
            reachable.add(current)
            queue += graph.get(current, ())

    circle = find_cycle(job, graph)

    assert (circle is not None) is (job in reachable)
    if circle is not None:
        assert circle[0] == circle[-1] == job
        assert all(b in graph[a] for a, b in pairwise(circle))
        assert len({*circle}) == len(circle) - 1


@pytest.mark.parametrize("length", [1, 100_000])
def test_a_circle_may_be_of_any_length(length: int) -> None:
    graph = {number: [(number + 1) % length] for number in range(length)}

    assert len(find_cycle(0, graph) or []) == length + 1
