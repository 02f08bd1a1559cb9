"""Estimates of a figure (peak memory, run time) for parameters, from runs with other parameters.

The estimate uses as few parameters as explain the figures. A parameter matters only if runs that differ in
it have different figures. Along the parameters that matter, the figure is taken to rise or to fall, never
both. Along a size it falls only if two runs show that. Outside what the runs cover there is no estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations, permutations

import msgspec

from stoker.core.sharing.parameters import Params, is_size

_ALIKE = 1.06  # figures within this factor are equal
_MOST_NAMES = 6
_MOST_JOINT = 3
_MOST_POINTS = 32
_FIT_POINTS = 3
_FIT_ERROR = 0.06  # a line with a larger error is not used
_REACH = 2.5  # how far above the runs a fit is believed, as a factor
_INSIDE = 1.05
_CLOSE = 0.04
_MOST_HIDDEN = 0.08  # effect that a parameter may have unnoticed, as a part of the figure
_NOISE = 0.005

Points = tuple[tuple[Params, float], ...]
Feature = Callable[[tuple[float, ...]], float]


class Estimate(msgspec.Struct, frozen=True):
    """A figure, the error to allow for, how many runs it comes from, and the parameters that matter."""

    value: float
    error: float
    runs: int
    names: tuple[str, ...] = ()
    exact: bool = True  # runs with equal parameters were seen

    @property
    def upper(self) -> float:
        """The figure with its error."""
        return self.value * (1.0 + self.error)


@lru_cache(maxsize=4096)
def estimate(points: Points, query: Params) -> Estimate | None:
    """Return the figure for parameters; None if the runs do not cover them."""
    points = points[-_MOST_POINTS:]
    if not points:
        return None
    asked = dict(query)
    if any(_is_untested(name, value, points) for name, value in query):
        same = [figure for params, figure in points if params == query]
        return Estimate(max(same), 0.0, len(same)) if same else None
    found = [_estimate_by(points, names, asked) for names in relevant(points)]
    known = [each for each in found if each is not None]
    # Several sets of parameters may explain the figures equally well: all of them must know.
    if not known or len(known) < len(found):
        return None
    return max(known, key=lambda each: each.upper)


def _is_untested(name: str, value: float, points: Points) -> bool:
    """Whether all runs had one value of a parameter, and another one is asked for."""
    seen = {dict(params).get(name) for params, _figure in points}
    return len(seen) == 1 and value not in seen


@lru_cache(maxsize=256)
def relevant(points: Points) -> tuple[tuple[str, ...], ...]:
    """Return the smallest sets of parameters that explain the figures; several if they do equally well."""
    names = _varying(points)
    for size in range(min(_MOST_JOINT, len(names)) + 1):
        found = tuple(chosen for chosen in combinations(names, size) if _explains(points, chosen))
        if found:
            return found if all(_is_enough(points, names, chosen) for chosen in found) else (names,)
    return (names,)


def _is_enough(points: Points, names: tuple[str, ...], chosen: tuple[str, ...]) -> bool:
    """Whether the runs show that no other parameter matters: few runs may look so by chance.

    Either a line over sizes fits all runs closely, or for each other parameter there are two runs that differ
    in it and not in the chosen ones. No other size may fall from one to the other, for that may make up for
    the rise.
    """
    signs = _signs(points, chosen) or ()
    placed = [(_place(dict(params), chosen, signs), figure) for params, figure in points]
    others = tuple(name for name in names if name not in chosen)
    sizes = _sizes(points, others)
    fit = _best_fit(placed, _features(points, chosen)) if chosen else None
    is_close = fit is not None and fit.error <= _CLOSE and len(dict(placed)) > _FIT_POINTS
    if is_close and (_sizes(points, chosen) or not sizes):
        return True
    pairs = [
        (dict(a), dict(b))
        for ((one, _), (a, _f)), ((two, _), (b, _g)) in permutations(
            zip(placed, points, strict=True), 2
        )
        if one == two
    ]
    return all(
        any(
            a[name] < b[name] and (name not in sizes or all(a[size] <= b[size] for size in sizes))
            for a, b in pairs
        )
        for name in others
    )


@lru_cache(maxsize=256)
def _varying(points: Points) -> tuple[str, ...]:
    """Return the names of parameters that differ between runs, those that follow the figure best first."""
    values: dict[str, list[float]] = {}
    for params, _figure in points:
        for name, value in params:
            values.setdefault(name, []).append(value)
    varying = [
        name for name, each in values.items() if len(each) == len(points) and len(set(each)) > 1
    ]
    varying.sort(key=lambda name: -abs(_concordance(points, name)))
    return tuple(varying[:_MOST_NAMES])


def _concordance(points: Points, name: str) -> float:
    """Return how well a parameter and the figure rise together: 1 always, -1 never."""
    pairs = [(dict(params)[name], figure) for params, figure in points]
    agreeing = total = 0
    for (x, a), (y, b) in combinations(pairs, 2):
        if x != y and not _are_alike(a, b):
            total += 1
            agreeing += 1 if (x < y) == (a < b) else -1
    return agreeing / total if total else 0.0


def _explains(points: Points, names: tuple[str, ...]) -> bool:
    """Whether the figure depends on these parameters alone, and rises or falls along each of them."""
    return _signs(points, names) is not None


@lru_cache(maxsize=1024)
def _signs(points: Points, names: tuple[str, ...]) -> tuple[float, ...] | None:
    """Return for each parameter whether the figure rises (1) or falls (-1) with it; None for neither.

    Rising comes first: most sizes cost memory.
    """
    rising = (1.0,) * len(names)
    sizes = _sizes(points, names)
    falling = [
        (*rising[:at], -1.0, *rising[at + 1 :])
        for at, name in enumerate(names)
        if name not in sizes or _falls(points, name)
    ]
    for signs in (rising, *falling):
        if _is_monotone([(_place(dict(params), names, signs), y) for params, y in points]):
            return signs
    return None


def _falls(points: Points, name: str) -> bool:
    """Whether two runs show that the figure falls with a size: no other size is smaller in the second one."""
    sizes = _sizes(points, _varying(points))
    return any(
        a[name] < b[name] and f > g * _ALIKE and all(a[size] <= b[size] for size in sizes)
        for (a, f), (b, g) in permutations([(dict(params), f) for params, f in points], 2)
    )


@lru_cache(maxsize=1024)
def _sizes(points: Points, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the parameters that may be sizes: a larger one is expected to cost memory."""
    values = [dict(params) for params, _figure in points]
    return tuple(name for name in names if all(is_size(name, each[name]) for each in values))


def _is_monotone(placed: Sequence[tuple[tuple[float, ...], float]]) -> bool:
    """Whether equal places have equal figures, and higher places no lower ones."""
    return not any(
        (_is_below(low, high) and a > b * _ALIKE) or (_is_below(high, low) and b > a * _ALIKE)
        for (low, a), (high, b) in combinations(placed, 2)
    )


def _estimate_by(
    points: Points, names: tuple[str, ...], asked: dict[str, float]
) -> Estimate | None:
    if any(name not in asked for name in names):
        return None
    signs = _signs(points, names)
    if signs is None:
        return None
    wanted = _place(asked, names, signs)
    placed = [(_place(dict(params), names, signs), figure) for params, figure in points]
    fit = _best_fit(placed, _features(points, names)) if names else None
    if fit is not None and fit.error > _FIT_ERROR:
        fit = None
    others = tuple(name for name in _varying(points) if name not in names)
    if _hidden_effect(points, others, placed, fit, asked) > _MOST_HIDDEN:
        return None
    same = [figure for place, figure in placed if place == wanted]
    if same:
        return Estimate(max(same), 0.0, len(same), names)
    above = [figure for place, figure in placed if _is_below(wanted, place)]
    guess = None if fit is None else fit.at(wanted)
    if above:
        bound = min(above) * _INSIDE
        if fit is not None and guess is not None and guess * (1.0 + fit.margin) < bound:
            return Estimate(guess, fit.margin, len(points), names, exact=False)
        return Estimate(min(above), _INSIDE - 1.0, len(points), names, exact=False)
    if fit is None or guess is None or not _is_near(wanted, placed):
        return None
    return Estimate(guess, fit.margin + 0.1, len(points), names, exact=False)


def _hidden_effect(
    points: Points,
    others: tuple[str, ...],
    placed: Sequence[tuple[tuple[float, ...], float]],
    fit: _Fit | None,
    asked: dict[str, float],
) -> float:
    """Return what sizes far above the runs may add to the figure, though the runs show no effect of them.

    The runs differ a little. At worst that is an effect of the size, and grows in a line.
    """
    spread = _NOISE if fit is None else max(_NOISE, fit.error)
    for (one, a), (two, b) in combinations(placed, 2):
        if one == two:
            spread = max(spread, abs(a - b) / min(a, b))
    effect = 0.0
    for name in _sizes(points, others):
        seen = [dict(params)[name] for params, _figure in points]
        excess = asked.get(name, 0.0) - max(seen)
        effect += spread * max(0.0, excess) / (max(seen) - min(seen))
    return effect


def _is_near(wanted: tuple[float, ...], placed: Sequence[tuple[tuple[float, ...], float]]) -> bool:
    """Whether parameters are not far above those of the runs."""
    reach = 1.0
    for index, value in enumerate(wanted):
        most = max(place[index] for place, _figure in placed)
        if value > most:
            reach *= value / most if most > 0 else float("inf")
    return reach <= _REACH


class _Fit(msgspec.Struct, frozen=True):
    """A straight line over one feature of the parameters. `error` is that of runs left out of the fit."""

    feature: Feature
    base: float
    slope: float
    error: float

    @property
    def margin(self) -> float:
        """The part to add so that an estimate is hardly ever too small."""
        return max(0.08, 2.5 * self.error)

    def at(self, place: tuple[float, ...]) -> float:
        """Return the figure at a place."""
        return self.base + self.slope * self.feature(place)


def _best_fit(
    placed: Sequence[tuple[tuple[float, ...], float]], features: Sequence[Feature]
) -> _Fit | None:
    """Return the line with the least error on runs that it was not made from; None for too few runs."""
    worst: dict[tuple[float, ...], float] = {}
    for place, figure in placed:
        worst[place] = max(figure, worst.get(place, 0.0))
    items = sorted(worst.items())
    if len(items) < _FIT_POINTS + len(items[0][0]) - 1:
        return None
    fits = [fit for feature in features if (fit := _fit(items, feature))]
    return min(fits, key=lambda fit: fit.error, default=None)


def _features(points: Points, names: tuple[str, ...]) -> list[Feature]:
    """Return what memory may be proportional to: a size, its square, the product or the sum of several.

    A rate beside sizes is in none of them: few runs fit such a product by chance.
    """
    sizes = _sizes(points, names)
    chosen = [at for at, name in enumerate(names) if name in sizes] or list(range(len(names)))

    def power(exponents: Sequence[tuple[int, float]]) -> Feature:
        def feature(place: tuple[float, ...]) -> float:
            product = 1.0
            for at, exponent in exponents:
                product *= place[at] ** exponent if place[at] > 0 else place[at]
            return product

        return feature

    found = [power([(at, 1.0) for at in chosen])]
    found += [power([(at, 2.0 if at == twice else 1.0) for at in chosen]) for twice in chosen]
    if len(chosen) > 1:
        found.append(lambda place: sum(place[at] for at in chosen))
    return found


def _fit(
    items: Sequence[tuple[tuple[float, ...], float]],
    feature: Feature,
) -> _Fit | None:
    pairs = [(feature(place), figure) for place, figure in items]
    line = _line(pairs)
    if line is None:
        return None
    error = 0.0
    for index, (x, figure) in enumerate(pairs):
        rest = _line(pairs[:index] + pairs[index + 1 :])
        if rest is None:
            return None
        error = max(error, abs(rest[0] + rest[1] * x - figure) / figure)
    return _Fit(feature, *line, error)


def _line(pairs: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Return base and slope of the line with the least relative error; None if it does not rise."""
    weights = [1.0 / (figure * figure) for _x, figure in pairs]
    total = sum(weights)
    mean_x = sum(w * x for w, (x, _y) in zip(weights, pairs, strict=True)) / total
    mean_y = sum(w * y for w, (_x, y) in zip(weights, pairs, strict=True)) / total
    spread = sum(w * (x - mean_x) ** 2 for w, (x, _y) in zip(weights, pairs, strict=True))
    if spread <= 0.0:
        return None
    slope = (
        sum(w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, pairs, strict=True))
        / spread
    )
    return (mean_y - slope * mean_x, slope) if slope > 0.0 else None


def _place(
    params: dict[str, float], names: Sequence[str], signs: Sequence[float]
) -> tuple[float, ...]:
    """Return the values of the parameters, turned so that the figure rises with each of them."""
    return tuple(sign * params[name] for name, sign in zip(names, signs, strict=True))


def _is_below(low: tuple[float, ...], high: tuple[float, ...]) -> bool:
    return all(a <= b for a, b in zip(low, high, strict=True))


def _are_alike(a: float, b: float) -> bool:
    return max(a, b) <= min(a, b) * _ALIKE
