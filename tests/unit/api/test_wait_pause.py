import pytest

from stoker.api.routes.wait import pause_s


@pytest.mark.parametrize(
    ("left", "look_s", "wanted_s"),
    [
        (1_000_000, 0.0, 0.1),
        (100, 0.0, 0.05),
        (1, 0.0, 0.005),
        (1, 0.001, 0.02),
        (1, 1.0, 0.1),
    ],
)
def test_the_less_is_left_the_sooner_it_is_told_unless_to_look_takes_long(
    left: int, look_s: float, wanted_s: float
) -> None:
    assert pause_s(left, look_s) == pytest.approx(wanted_s)
