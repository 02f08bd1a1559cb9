"""Curves on a terminal and in files; what draws them comes with the extra [plot]."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.errors import StokerError
from stoker.outcomes.curves import Curve

_MOST_LABELS = 12


def draw(curves: Sequence[Curve], x: str, y: str, *, width: int, height: int) -> str:
    """Curves as text, for a terminal of this size."""
    try:
        import plotext
    except ImportError:
        raise _missing("plotext") from None
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(width, height)
    for curve in curves:
        plotext.plot(curve.xs, curve.ys, label=curve.label if len(curves) <= _MOST_LABELS else None)
    plotext.xlabel(x)
    plotext.ylabel(y)
    return str(plotext.build())


def save(curves: Sequence[Curve], x: str, y: str, path: str) -> None:
    """Curves as a picture; the ending of the name says which kind."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise _missing("matplotlib") from None
    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for curve in curves:
        axes.plot(curve.xs, curve.ys, label=curve.label)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if len(curves) <= _MOST_LABELS:
        axes.legend(fontsize="small")
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise StokerError(f"cannot save {path}: {error}") from error


def _missing(package: str) -> StokerError:
    return StokerError(f"plots need {package}: pip install 'stoker[plot]'")
