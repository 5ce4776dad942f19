# SPDX-License-Identifier: Apache-2.0
"""Charts of rows and of what a stream forgot, without any other package: notebooks show them, save() writes SVG, and
figure() makes a figure of matplotlib where that is there.

    weir.plots.curve(rows, x="distance")                     # rows of weir.eval
    weir.plots.forgotten({"weir": trace, "h2o": other})      # traces of Session.trace()
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import numpy.typing as npt

from .trace import Trace

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 64, 16, 32, 48  # of a chart, in pixels


@dataclass
class Line:
    """x, y: [n] numbers, x ascending; error: [n], half the length of an error bar, or nothing."""

    name: str
    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    error: npt.NDArray[np.float64] | None = None


@dataclass
class Chart:
    """Lines in one pair of axes. log_x: a logarithmic axis, for numbers above 0."""

    title: str
    x_label: str
    y_label: str
    lines: list[Line] = field(default_factory=list)
    log_x: bool = False

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the chart as SVG."""
        Path(path).write_text(self.svg(), encoding="utf-8")

    def figure(self) -> Any:
        """A matplotlib.figure.Figure. ImportError without matplotlib."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), layout="constrained")
        axes = figure.subplots()
        for line in self.lines:
            if line.error is None:
                axes.plot(line.x, line.y, label=line.name)
            else:
                axes.errorbar(line.x, line.y, yerr=line.error, marker="o", markersize=3.5, capsize=2, label=line.name)
        if self.log_x:
            axes.set_xscale("log")
        axes.set(title=self.title, xlabel=self.x_label, ylabel=self.y_label)
        axes.legend(frameon=False)
        return figure

    def _repr_svg_(self) -> str:
        return self.svg()

    def svg(self) -> str:
        """The chart as the text of an SVG file."""
        x_axis = _Axis([line.x for line in self.lines], LEFT, WIDTH - RIGHT, log=self.log_x)
        y_axis = _Axis(
            [y for line in self.lines for y in (line.y, *([] if line.error is None else [line.y + line.error]))],
            HEIGHT - BOTTOM,
            TOP,
            zero=True,
        )
        out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            _text(WIDTH / 2, 18, self.title, size=13),
            _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, self.x_label),
            _text(14, HEIGHT / 2, self.y_label, turn=True),
        ]
        for at, label in x_axis.ticks():
            out.append(_stroke([(at, TOP), (at, HEIGHT - BOTTOM)], "#ddd", 1))
            out.append(_text(at, HEIGHT - BOTTOM + 14, label))
        for at, label in y_axis.ticks():
            out.append(_stroke([(LEFT, at), (WIDTH - RIGHT, at)], "#ddd", 1))
            out.append(_text(LEFT - 6, at + 4, label, anchor="end"))
        for i, line in enumerate(self.lines):
            colour = COLOURS[i % len(COLOURS)]
            xs, ys = x_axis.places(line.x), y_axis.places(line.y)
            out.append(_stroke(list(zip(xs, ys)), colour, 1.8))
            if line.error is not None:
                low, high = y_axis.places(line.y - line.error), y_axis.places(line.y + line.error)
                out += [_stroke([(x, a), (x, b)], colour, 1) for x, a, b in zip(xs, low, high)]
            y = TOP + 14 + 16 * i
            out.append(_stroke([(WIDTH - 150, y - 4), (WIDTH - 132, y - 4)], colour, 2.5))
            out.append(_text(WIDTH - 126, y, line.name, anchor="start"))
        return "\n".join([*out, "</svg>", ""])


class _Axis:
    """From numbers to pixels."""

    def __init__(self, values: Sequence[Any], begin: float, end: float, *, log: bool = False, zero: bool = False):
        numbers = np.concatenate([np.asarray(v, np.float64).reshape(-1) for v in values]) if values else np.zeros(0)
        numbers = numbers[np.isfinite(numbers)]
        if numbers.size == 0:
            raise ValueError("there is nothing to draw: no row has numbers for both axes")
        self.log = log
        if log and numbers.min() <= 0:
            raise ValueError("a logarithmic axis needs numbers above 0")
        self.low = float(min(0.0, numbers.min()) if zero else numbers.min())
        self.high = float(numbers.max())
        if self.high <= self.low:
            self.high = self.low + 1
        self.begin, self.end = begin, end

    def places(self, values: Any) -> list[float]:
        low, high, at = self.low, self.high, np.asarray(values, np.float64)
        if self.log:
            low, high, at = np.log(low), np.log(high), np.log(at)
        places: list[float] = (self.begin + (at - low) / (high - low) * (self.end - self.begin)).tolist()
        return places

    def ticks(self) -> list[tuple[float, str]]:
        if self.log:
            first = int(np.ceil(np.log2(self.low) - 1e-9))
            exponents = np.arange(first, int(np.floor(np.log2(self.high) + 1e-9)) + 1)
            numbers = 2.0 ** exponents[:: max(1, len(exponents) // 7)]
        else:
            step = 10.0 ** np.floor(np.log10((self.high - self.low) / 4))
            step *= next(m for m in (1, 2, 2.5, 5, 10) if (self.high - self.low) / (step * m) <= 6)
            numbers = np.arange(np.ceil(self.low / step), np.floor(self.high / step) + 1) * step
        return list(zip(self.places(numbers), [f"{round(x, 9):g}" if abs(x) < 1e5 else f"{x:,.0f}" for x in numbers]))


def _text(x: float, y: float, text: str, *, size: int = 11, anchor: str = "middle", turn: bool = False) -> str:
    turned = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turn else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{turned}>{escape(text)}</text>'


def _stroke(points: Sequence[tuple[float, float]], colour: str, width: float) -> str:
    # A number that is none ends a line, and the next one begins another.
    path, open_line = [], False
    for x, y in points:
        if not (np.isfinite(x) and np.isfinite(y)):
            open_line = False
            continue
        path.append(f"{'L' if open_line else 'M'}{x:.1f} {y:.1f}")
        open_line = True
    return f'<path d="{" ".join(path)}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def curve(
    rows: Any,
    *,
    x: str,
    y: str = "value",
    by: str | Sequence[str] = ("policy",),
    title: str = "",
    log_x: bool = False,
) -> Chart:
    """Rows of weir.eval, a frame or dicts, as one line for each value of `by`, with their standard errors."""
    dicts: Iterable[Mapping[str, Any]] = rows.to_dict("records") if hasattr(rows, "to_dict") else list(rows)
    keys = [by] if isinstance(by, str) else list(by)
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in dicts:
        if _is_number(row.get(x)) and _is_number(row.get(y)):
            groups.setdefault(", ".join(str(row.get(key)) for key in keys), []).append(row)
    chart = Chart(title, x, y, log_x=log_x)
    for name, group in groups.items():
        group.sort(key=lambda row: row[x])
        error = np.array([row["stderr"] for row in group]) if all(_is_number(r.get("stderr")) for r in group) else None
        of = [np.array([row[key] for row in group], np.float64) for key in (x, y)]
        chart.lines.append(Line(name, of[0], of[1], error))
    return chart


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and bool(np.isfinite(value))


def forgotten(traces: Mapping[str, Trace] | Trace, *, title: str = "What is still held", parts: int = 100) -> Chart:
    """Which parts of a stream are held at its end, oldest on the left: the share of the tokens of each of `parts` equal
    parts that some layer and head still holds."""
    chart = Chart(title, "place in the stream, tokens", "share held")
    for name, trace in (traces if isinstance(traces, Mapping) else {"held": traces}).items():
        left = trace.forgotten_at()
        n = min(parts, len(left))
        if n == 0:
            raise ValueError("the trace has no tokens")
        edges = np.linspace(0, len(left), n + 1).round().astype(int)
        shares = np.array([np.mean(left[a:b] < 0) for a, b in zip(edges[:-1], edges[1:])])
        chart.lines.append(Line(name, (edges[:-1] + edges[1:]) / 2, shares))
    return chart


def lifetimes(traces: Mapping[str, Trace] | Trace, *, title: str = "How long tokens were held") -> Chart:
    """The share of all tokens that were still held somewhere when so many later ones had been read."""
    chart = Chart(title, "tokens read since", "share still held")
    for name, trace in (traces if isinstance(traces, Mapping) else {"held": traces}).items():
        left = trace.forgotten_at()
        if len(left) == 0:
            raise ValueError("the trace has no tokens")
        age = np.where(left < 0, len(left), left) - np.arange(len(left))
        grid = np.unique(np.linspace(0, len(left), 200).round())
        # Of tokens as old as that; the newest ones have not been tried.
        old = len(left) - np.arange(len(left))
        shares = np.array([np.mean(age[old >= at] >= at) if (old >= at).any() else np.nan for at in grid])
        chart.lines.append(Line(name, grid, shares))
    return chart
