"""Plots as SVG text that needs nothing beside itself: no script, no font, no network.

Their grounds and inks are CSS variables with a light default, so that a page can give them its own. The same
numbers give the same bytes: pygal's date and random ids are taken out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Any

import pygal  # type: ignore[import-untyped]
from pygal.style import Style  # type: ignore[import-untyped]

COLOURS = ("#1f83c4", "#d55e00", "#009e73", "#b05f8f", "#8c7a00", "#6a6fc9")
"""After Okabe and Ito: told apart by the colour-blind, on light ground and on dark."""
GREYS = ("#6f6f6f", "#a8a8a8")
DASHED = {"dasharray": "6, 4", "width": "2"}
POINTS = 200
BARS_MAX = 40
LEGENDS_MAX = 4
"""So many names stand side by side."""
SHORTEST_S = 0.001
"""Shorter times are drawn as this, since the axis is logarithmic and has to begin somewhere."""
ORIGIN_S = SHORTEST_S / 10

LOOKS: dict[str, Any] = {
    "width": 720,
    "height": 400,
    "margin": 12,
    "margin_right": 24,
    "margin_bottom": 20,
    "legend_at_bottom": True,
    "truncate_legend": 32,
    "max_scale": 8,
    "disable_xml_declaration": True,
}
STYLE: dict[str, Any] = {
    "background": "var(--ground, #ffffff)",
    "plot_background": "var(--ground, #ffffff)",
    "foreground": "var(--ink, #333333)",
    "foreground_strong": "var(--ink, #333333)",
    "foreground_subtle": "var(--rule, #dddddd)",
    "guide_stroke_color": "var(--rule, #dddddd)",
    "major_guide_stroke_color": "var(--rule, #dddddd)",
    "font_family": "system-ui, sans-serif",
    "label_font_size": 12,
    "major_label_font_size": 12,
    "legend_font_size": 13,
    "title_font_size": 16,
    "opacity": "1",
    "stroke_opacity": "1",
    "stroke_width": "2",
    "transition": "0s",
}

Lines = Mapping[str, Sequence[tuple[float, float]]]
"""What is drawn, by the name in the legend: points (x, y) in order of x."""


def distribution(name: str, title: str, x_title: str, seconds: Mapping[str, Sequence[float]]) -> str:
    """The share of requests within a time, over that time on a logarithmic axis."""
    lines = {label: _cumulated(values) for label, values in seconds.items() if values}
    axes = {
        "x_labels": _ticks([x for points in lines.values() for x, _ in points]),
        "y_labels": [0, 25, 50, 75, 90, 100],
        "x_title": f"{x_title}, logarithmic",
        "y_title": "requests within (%)",
    }
    return _draw(pygal.XY, name, lines, {"title": title, "show_dots": False, **axes})


def over_time(name: str, title: str, y_title: str, lines: Lines) -> str:
    """A quantity over the seconds of a run."""
    axes = {"x_title": "time (s)", "y_title": y_title, "include_x_axis": True}
    return _draw(pygal.XY, name, lines, {"title": title, "show_dots": False, **axes})


def by_rate(
    name: str,
    title: str,
    y_title: str,
    lines: Lines,
    published: Lines | None = None,
    rates_of: str = "requests",
) -> str:
    """A quantity over the rate at which these are begun; `published` lines are grey and dashed."""
    axes = {"x_title": f"{rates_of} sent (per s)", "y_title": y_title, "include_x_axis": True}
    return _draw(pygal.XY, name, lines, {"title": title, "dots_size": 4, **axes}, published)


def bars(name: str, title: str, y_title: str, values: Mapping[str, Mapping[str, float]]) -> str:
    """For each name in the legend a value for each label; at most BARS_MAX labels are shown."""
    labels = list(dict.fromkeys(label for by_label in values.values() for label in by_label))[:BARS_MAX]
    axes = {
        "x_labels": labels,
        "x_label_rotation": 30 if len(labels) > 4 else 0,
        "truncate_label": 24,
        "y_title": y_title,
        "include_x_axis": True,
    }
    heights = {legend: [by_label.get(label) for label in labels] for legend, by_label in values.items()}
    return _draw(pygal.Bar, name, heights, {"title": title, **axes})


def _draw(
    kind: type[Any],
    name: str,
    series: Mapping[str, Sequence[Any]],
    looks: Mapping[str, Any],
    published: Mapping[str, Sequence[Any]] | None = None,
) -> str:
    """Draw it; `name` is what its ids in the page begin with."""
    published = published or {}
    colours = [*islice(cycle(COLOURS), len(series)), *islice(cycle(GREYS), len(published))]
    style = Style(colors=colours, value_colors=colours, **STYLE)
    columns = min(LEGENDS_MAX, len(colours))
    chart = kind(style=style, legend_at_bottom_columns=columns, **LOOKS, **looks)
    for legend, values in series.items():
        chart.add(legend, values)
    for legend, values in published.items():
        chart.add(legend, values, stroke_style=DASHED)
    chart.uuid = name
    chart.add_xml_filter(_bare)
    svg: str = chart.render(is_unicode=True)
    return svg


def _bare(root: Any) -> Any:
    """Take out scripts, the ids they go by, and comments (a date, links); show values when pointed at."""
    for parent in list(root.iter()):
        for child in list(parent):
            child.attrib.pop("id", None)
            if not isinstance(child.tag, str) or child.tag == "script":  # the tag of a comment is a function
                parent.remove(child)
            elif child.tag == "desc":
                child.tag = "title"
                if child.get("class") != "value":
                    parent.remove(child)
    return root


def _log(seconds: float) -> float:
    """Where a time stands on a logarithmic axis; its 0, where pygal draws a thick line, is out of sight.

    Rounded, for pygal seeks the scale of an axis for ever when its ends differ by a rounding error.
    """
    return round(math.log10(max(seconds, SHORTEST_S) / ORIGIN_S), 6)


def _cumulated(seconds: Sequence[float]) -> list[tuple[float, float]]:
    """Points (place of the time, % of requests within it) at evenly spaced shares."""
    known = sorted(seconds)
    last = len(known) - 1
    return [(_log(known[round(step * last / POINTS)]), 100 * step / POINTS) for step in range(POINTS + 1)]


def _ticks(places: Sequence[float]) -> list[dict[str, object]]:
    """Round times around all of these: powers of ten, with 2 and 5 between them where there are few."""
    low, high = min(places), max(places)
    steps = (1, 2, 5) if high - low < 2 else (1,)
    times = [step * 10.0**power for power in range(-3, 7) for step in steps]
    first = max((time for time in times if _log(time) <= low), default=times[0])
    last = min((time for time in times if _log(time) >= high), default=times[-1])
    return [
        {"value": _log(time), "label": f"{time:g} s" if time >= 1 else f"{1000 * time:g} ms"}
        for time in times
        if first <= time <= last
    ]
