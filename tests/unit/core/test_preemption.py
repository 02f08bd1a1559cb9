from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.core.preemption import Victim, choose

victims = st.lists(
    st.builds(
        Victim,
        st.integers(),
        st.lists(st.integers(0, 99), max_size=3, unique=True).map(tuple),
        st.integers(0, 3),
        st.floats(0, 9),
    ),
    max_size=8,
    unique_by=lambda victim: victim.job,
)


@given(victims=victims, missing=st.integers(1, 6), priority=st.integers(0, 3))
def test_just_enough_jobs_are_preempted_or_none(
    victims: list[Victim], missing: int, priority: int
) -> None:
    chosen = choose(victims, missing, priority)

    freed = sum(len(victim.slots) for victim in chosen)
    could = sum(len(victim.slots) for victim in victims if victim.priority <= priority)
    assert all(victim.priority <= priority for victim in chosen)
    if could < missing:
        assert chosen == []
    else:
        assert freed >= missing
        assert all(freed - len(victim.slots) < missing for victim in chosen)


def test_the_lowest_priority_goes_first_then_the_youngest() -> None:
    old_low, young_low, high = (
        Victim(1, (0,), 0, 10.0),
        Victim(2, (1,), 0, 20.0),
        Victim(3, (2,), 1, 30.0),
    )

    assert choose([high, old_low, young_low], 1, 5) == [young_low]
    assert choose([high, old_low, young_low], 2, 5) == [young_low, old_low]
    assert choose([high, old_low, young_low], 3, 0) == []
