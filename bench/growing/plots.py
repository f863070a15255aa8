"""Curves as SVG, with identical text for identical figures."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt

COLUMNS = 3
COLOURS = ("#8a8a8a", "#d08a2e", "#2468b4", "#3a9a5b")
_NEEDLESS = re.compile(r"(?<=\.\d)\d+|^ +| *<!--.*?-->\n", re.MULTILINE)
"""Text that takes half of a file: fractions of a tenth of a point, spaces, comments."""

STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.fontsize": 8,
    "svg.fonttype": "none",
    "svg.hashsalt": "everloop",
}


@dataclass(frozen=True)
class Curve:
    """A named series of values by number of tasks."""

    name: str
    points: Mapping[int, float]


@dataclass(frozen=True)
class Panel:
    """Curves with common axes."""

    title: str
    across: str
    curves: Sequence[Curve]


def plot(panels: Sequence[Panel], file: Path) -> None:
    """Draw panels side by side, each from zero on, over a logarithmic axis."""
    rows = -(-len(panels) // COLUMNS)
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(rows, COLUMNS, figsize=(10, 2.9 * rows), squeeze=False)
        for place, panel in zip(grid.flat, panels, strict=False):
            for curve, colour in zip(panel.curves, COLOURS, strict=False):
                place.plot(
                    list(curve.points),
                    list(curve.points.values()),
                    marker="o",
                    markersize=3,
                    label=curve.name,
                    color=colour,
                )
            place.set_xscale("log")
            place.minorticks_off()
            numbers = list(panel.curves[0].points)
            place.set_xticks(numbers, [f"{number:,}" for number in numbers])
            place.tick_params(length=0)
            place.set_ylim(bottom=0)
            place.set_title(panel.title)
            place.set_xlabel(panel.across)
            place.legend(frameon=False)
        for empty in list(grid.flat)[len(panels) :]:
            empty.remove()
        figure.tight_layout()
        figure.savefig(file, metadata={"Date": None, "Creator": None})
        plt.close(figure)
    file.write_text(_NEEDLESS.sub("", file.read_text(encoding="utf-8")), encoding="utf-8")
