"""Quantiles of the beta distribution: the standard library has none."""

from __future__ import annotations

import math

LARGEST = 1e6
"""The largest parameter: the continued fraction needs about the root of it in steps."""
_STEPS = 5000
_TINY = 1e-300


def beta_quantile(u: float, a: float, b: float) -> float:
    """Return the x between 0 and 1 below which a Beta(a, b) is with the probability `u`."""
    low, high = 0.0, 1.0
    while True:
        middle = (low + high) / 2
        if not low < middle < high:
            return middle
        if _cumulative(middle, a, b) < u:
            low = middle
        else:
            high = middle


def _cumulative(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function."""
    logs = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(logs + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):  # the fraction converges fast on this side
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function by Lentz's method."""
    value = upper = 1.0
    lower = 0.0
    for step in range(_STEPS):
        half = step // 2
        if step == 0:
            term = 1.0
        elif step % 2:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        lower = 1 / (1 + term * lower or _TINY)
        upper = 1 + term / (upper or _TINY)
        value *= lower * upper
        if abs(lower * upper - 1) < 1e-15:
            break
    return value - 1
