"""The view's figures as PNG: a point a client with whiskers from least to most, never a bar that hides its spread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

from harness import units
from harness.report.view import Chart, Figure, Line, Panel, Point

# Okabe and Ito's palette: told apart with any kind of colour vision. Names stand on the axis too, so colour is no code.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#555555", "#000000")
_MARKERS = "osD^v"
_WIDTH_IN, _HEAD_IN, _PANEL_IN, _CLIENT_IN, _CHART_IN = 11.0, 0.9, 0.95, 0.2, 6.0


def write(figure: Figure | Chart, folder: Path) -> Path:
    """Draw one figure; a picture is made without a display, and alike on every machine."""
    # Imported here: matplotlib's figure machinery takes longer to load than all of the rest.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{figure.name}.png"
    with mpl.rc_context({"font.family": "DejaVu Sans", "font.size": 9, "text.usetex": False, "text.parse_math": False}):
        canvas = Canvas(figsize=(_WIDTH_IN, _height_in(figure)), dpi=130, layout="constrained")
        FigureCanvasAgg(canvas)
        if isinstance(figure, Chart):
            _draw_chart(figure, canvas)
        else:
            _draw(figure, canvas)
        canvas.savefig(path, metadata={"Software": None})
    return path


def _height_in(figure: Figure | Chart) -> float:
    if isinstance(figure, Chart):
        return _CHART_IN
    return _HEAD_IN + len(figure.rows) * (_PANEL_IN + _CLIENT_IN * len(figure.rows[0][1][0].points))


def _head(figure: Figure | Chart, canvas: Any) -> None:
    canvas.suptitle(f"{figure.title}\n", fontsize=13, fontweight="bold", x=0.01, ha="left")
    canvas.text(0.01, 0.995 - 0.36 / canvas.get_figheight(), figure.caption, fontsize=9, color="#444444", va="top")


def _draw_chart(chart: Chart, canvas: Any) -> None:
    _head(chart, canvas)
    axes = canvas.subplots()
    for index, line in enumerate(chart.lines):
        _line(axes, index, line)
    places = sorted({place for line in chart.lines for place, _ in line.points})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _place: units.number(value))
    axes.set_xticks(places, [str(place) for place in places])
    axes.set_xlabel(chart.across)
    axes.set_ylabel(chart.up)
    axes.legend(frameon=False, loc="upper left")
    axes.grid(color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _line(axes: Any, index: int, line: Line) -> None:
    colour = _COLOURS[index % len(_COLOURS)]
    medians = [spread.median for _, spread in line.points]
    reach = [[s.median - s.low for _, s in line.points], [s.high - s.median for _, s in line.points]]
    counts = sorted({spread.n for _, spread in line.points})
    axes.errorbar(
        [place for place, _ in line.points],
        medians,
        yerr=reach,
        color=colour,
        marker=_MARKERS[index % len(_MARKERS)],
        markersize=5.5,
        capsize=3.5,
        label=f"{line.client}, n={counts[0]}" + (f" to {counts[-1]}" if len(counts) > 1 else ""),
    )
    knee = dict(line.points)[line.knee]
    axes.plot(line.knee, knee.median, "o", markersize=14, markerfacecolor="none", markeredgecolor=colour)


def _draw(figure: Figure, canvas: Any) -> None:
    _head(figure, canvas)
    grid = canvas.subplots(len(figure.rows), len(figure.rows[0][1]), squeeze=False, sharey=True)
    for axes_row, (label, panels) in zip(grid, figure.rows, strict=True):
        for axes, panel in zip(axes_row, panels, strict=True):
            _panel(axes, panel)
        axes_row[0].set_title(f"{label}\n{panels[0].title}", loc="left", fontsize=9.5)


def _panel(axes: Any, panel: Panel) -> None:
    for index, point in enumerate(panel.points):
        _point(axes, index, point, panel)
    axes.set_yticks(range(len(panel.points)), [point.client for point in panel.points])
    axes.set_ylim(len(panel.points) - 0.4, -0.6)
    # From zero, so that distances are as large as they look.
    axes.set_xlim(0, _right_end(panel))
    axes.set_title(panel.title, loc="left", fontsize=9.5)
    axes.grid(axis="both", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _right_end(panel: Panel) -> float:
    highest = max((point.spread.high for point in panel.points if point.spread), default=0.0)
    return highest / panel.scale.divisor * 1.22 or 1.0


def _point(axes: Any, index: int, point: Point, panel: Panel) -> None:
    if point.spread is None:
        axes.text(0, index, f" {point.remark}", color="#777777", va="center", fontsize=8, style="italic")
        return
    middle, low, high = (v / panel.scale.divisor for v in (point.spread.median, point.spread.low, point.spread.high))
    axes.errorbar(
        middle,
        index,
        xerr=[[middle - low], [high - middle]],
        fmt=_MARKERS[index // len(_COLOURS) % len(_MARKERS)],
        color=_COLOURS[index % len(_COLOURS)],
        markersize=5.5,
        capsize=3.5,
        elinewidth=1.6,
    )
    axes.annotate(
        f"n={point.spread.n}",
        (high, index),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
        color="#777777",
    )
