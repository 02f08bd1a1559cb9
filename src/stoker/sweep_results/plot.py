"""Plots of curves on a terminal and in image files; the libraries come with the extra [plot]."""

from __future__ import annotations

from collections.abc import Sequence

from stoker.errors import StokerError
from stoker.sweep_results.curves import Curve

_MOST_LABELS = 12
_LEAST_HEIGHT = 10
_MARKS = "•x+o*#%@=~^&"
_COLOURS = ("blue+", "orange+", "green+", "red+", "magenta+", "cyan+", "gray", "yellow")


def draw(
    curves: Sequence[Curve], x: str, y: str, *, width: int, height: int, coloured: bool = False
) -> str:
    """Draw curves as text for a terminal of this size, distinguished by colours or by marks.

    The legend is below, where it hides no curve; with too many curves there is none.
    """
    try:
        import plotext
    except ImportError:
        raise _missing("plotext") from None
    legend = [] if len(curves) > _MOST_LABELS else curves
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(width, max(_LEAST_HEIGHT, height - len(legend)))
    lines = []
    for number, curve in enumerate(curves):
        mark, colour = _MARKS[number % len(_MARKS)], _COLOURS[number % len(_COLOURS)]
        if coloured:
            plotext.plot(curve.xs, curve.ys, marker="hd", color=colour)
        else:
            plotext.plot(curve.xs, curve.ys, marker=mark)
        for bound in _bounds(curve):
            plotext.scatter(curve.xs, bound, marker="·", color=colour if coloured else None)
        name = plotext.colorize("▞▞", colour) if coloured else mark
        lines.append(f"{name} {curve.label}")
    plotext.xlabel(x)
    plotext.ylabel(y)
    drawing = str(plotext.build())
    if not coloured:
        plain = plotext.uncolorize(drawing)
        drawing = "\n".join(line.rstrip() for line in plain.splitlines())
    return "\n".join([drawing.rstrip("\n"), *(lines if legend else [])])


def _bounds(curve: Curve) -> list[list[float]]:
    """Return the lower and the upper bound of a curve of means; none for a curve of one run."""
    if curve.deviations is None:
        return []
    pairs = list(zip(curve.ys, curve.deviations, strict=True))
    return [[y - deviation for y, deviation in pairs], [y + deviation for y, deviation in pairs]]


def save(curves: Sequence[Curve], x: str, y: str, path: str, title: str = "") -> None:
    """Save curves as an image; the suffix of the path gives the format. Deviations are bands."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        raise _missing("matplotlib") from None
    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for curve in curves:
        (line,) = axes.plot(curve.xs, curve.ys, label=curve.label)
        if bounds := _bounds(curve):
            lower, upper = bounds
            axes.fill_between(
                curve.xs, lower, upper, color=line.get_color(), alpha=0.2, linewidth=0
            )
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title)
    if all(across.is_integer() for curve in curves for across in curve.xs):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # steps are integers
    if len(curves) <= _MOST_LABELS:
        axes.legend(fontsize="small")
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise StokerError(f"cannot save {path}: {error}") from error


def _missing(package: str) -> StokerError:
    return StokerError(f"plots need {package}: pip install 'stoker[plot]'")
