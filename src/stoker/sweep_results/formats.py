"""Output of tables as CSV, Markdown, JSON and LaTeX."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

from stoker.sweep_results.table import Stat, Table

_LATEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\n": " ",
    }
)


_MOST_DECIMALS = 6


def to_text(value: Any) -> str:
    """Write a cell for people, with five digits."""
    if value is None:
        return ""
    if isinstance(value, Stat):
        mean, std = _round(value)
        spread = "" if std is None else f" ± {std}"
        return f"{mean}{spread} ({value.n})"
    if isinstance(value, float):
        return f"{value:.5g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _round(value: Stat) -> tuple[str, str | None]:
    """Write a mean with the digits that its deviation leaves certain: 0.3795 ± 0.0049."""
    if value.std is None:
        return to_text(value.mean), None
    rounded = float(f"{value.std:.2g}")
    decimals = max(0, 1 - math.floor(math.log10(rounded))) if rounded else _MOST_DECIMALS + 1
    if decimals > _MOST_DECIMALS or abs(value.mean) >= 1e9 or rounded >= 1e9:
        return to_text(value.mean), f"{value.std:.2g}"
    return f"{value.mean:.{decimals}f}", f"{rounded:.{decimals}f}"


def to_csv(table: Table) -> str:
    """Write CSV with full precision; a mean takes three columns."""
    stats = [any(isinstance(row[n], Stat) for row in table.rows) for n in range(len(table.columns))]
    header: list[str] = []
    for name, is_stat in zip(table.columns, stats, strict=True):
        header += [f"{name}_mean", f"{name}_std", f"{name}_n"] if is_stat else [name]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    for row in table.rows:
        cells: list[Any] = []
        for value, is_stat in zip(row, stats, strict=True):
            cells += _csv_stat(value) if is_stat else [_csv_value(value)]
        writer.writerow(cells)
    return file.getvalue()


def _csv_stat(value: Stat | None) -> list[Any]:
    return ["", "", 0] if value is None else [value.mean, value.std, value.n]


def _csv_value(value: Any) -> Any:
    is_nested = isinstance(value, (list, dict, bool))
    return json.dumps(value, ensure_ascii=False) if is_nested else value


def to_markdown(table: Table) -> str:
    """Write a Markdown table with aligned columns."""
    rows = [[_markdown(to_text(value)) for value in row] for row in table.rows]
    header = [_markdown(name) for name in table.columns]
    widths = [max(3, *map(len, column)) for column in zip(header, *rows, strict=True)]
    right = [is_number_column(table, place) for place in range(len(header))]

    def line(cells: list[str]) -> str:
        parts = zip(cells, widths, right, strict=True)
        return f"| {' | '.join(c.rjust(w) if r else c.ljust(w) for c, w, r in parts)} |"

    rule = [f"{'-' * (w - 1)}:" if r else "-" * w for w, r in zip(widths, right, strict=True)]
    return "\n".join([line(header), line(rule), *map(line, rows), ""])


def _markdown(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def to_latex(table: Table) -> str:
    """Write a LaTeX tabular with booktabs rules."""
    columns = "".join(
        "r" if is_number_column(table, place) else "l" for place in range(len(table.columns))
    )
    rows = [" & ".join(_latex(value) for value in row) + r" \\" for row in table.rows]
    header = " & ".join(name.translate(_LATEX) for name in table.columns) + r" \\"
    return "\n".join(
        [
            f"\\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            header,
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _latex(value: Any) -> str:
    if isinstance(value, Stat) and value.std is not None:
        mean, std = _round(value)
        return f"${mean} \\pm {std}$ ({value.n})"
    return to_text(value).translate(_LATEX)


def to_json(table: Table) -> str:
    """Write a list of objects; a mean is an object too."""
    rows = [dict(zip(table.columns, map(_plain, row), strict=True)) for row in table.rows]
    return json.dumps(rows, ensure_ascii=False, indent=1) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Stat):
        return {"mean": value.mean, "std": value.std, "n": value.n}
    if isinstance(value, float) and value - value != 0:
        return str(value)  # JSON has no nan
    return value


def is_number_column(table: Table, place: int) -> bool:
    """Whether a column contains only numbers."""
    values = [row[place] for row in table.rows if row[place] is not None]
    numbers = (int, float, Stat)
    return bool(values) and all(isinstance(v, numbers) and not isinstance(v, bool) for v in values)
