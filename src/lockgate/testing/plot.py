"""Plots of a simulation, in block characters for a terminal and as SVG.

A plotting library would be a large dependency for a few bars and lines.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Final
from xml.etree import ElementTree as Tree

from ..core.timestamps import SECOND
from .simulation import Bucket, Simulation

BUCKETS: Final = 60
_ADMITTED, _REFUSED = "#2a9d5c", "#d1495b"
_WINDOWS: Final = ("#3066be", "#c77d0a", "#6a4c93")
_BLOCKS: Final = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_WIDTH, _HEIGHT = 900, 300
_LEFT, _TOP, _WIDE, _HIGH = 60, 45, 820, 200
_BAR: Final = 26
_STYLE: Final = (
    "svg { color: #222 } .page { fill: #fff } "
    "@media (prefers-color-scheme: dark) { svg { color: #e6e9ec } .page { fill: #131416 } }"
)


def terminal(simulation: Simulation, width: int = BUCKETS) -> str:
    """Draw admissions and refusals over time, and the load of each window, as text."""
    parts = simulation.timeline(width)
    if not parts:
        return "Nobody called."
    most = _most(parts)
    seconds = (parts[-1].start - parts[0].start) / SECOND / max(1, len(parts) - 1)
    rows = [
        ("admitted", [part.admitted / most for part in parts], ""),
        ("refused", [part.refused / most for part in parts], f"full block: {most} calls"),
        *(
            (f"{name} used", shares, "full block: the limit")
            for name, shares in _fullness(simulation, parts)
        ),
    ]
    wide = max(len(name) for name, _, _ in rows)
    lines = [f"{name:>{wide}} |{_blocks(heights)}| {note}".rstrip() for name, heights, note in rows]
    return "\n".join([*lines, f"{'':>{wide}}  one block: {seconds:g} s"])


def svg(simulation: Simulation) -> str:
    """Draw the same as an SVG document."""
    parts = simulation.timeline(BUCKETS)
    document = _document(2 * _HEIGHT, f"What plan {simulation.plan.name} does to these calls")
    most = _most(parts)
    legend = [("admitted", _ADMITTED), ("refused", _REFUSED)]
    calls = _panel(document, 0, "Calls over time", f"{most:,}", legend, parts)
    step = _WIDE / max(1, len(parts))
    for number, part in enumerate(parts):
        below = float(_HIGH)
        for count, colour in ((part.admitted, _ADMITTED), (part.refused, _REFUSED)):
            high = _HIGH * count / most
            below -= high
            if count:
                _add(calls, "rect", x=step * number, y=below, width=step, height=high, fill=colour)
    windows = [
        (name, shares, colour)
        for (name, shares), colour in zip(_fullness(simulation, parts), _WINDOWS, strict=False)
    ]
    legend = [(name, colour) for name, _, colour in windows]
    used = _panel(document, _HEIGHT, "Used, of each window's limit", "100 %", legend, parts)
    for _, shares, colour in windows:
        points = (f"{step * (n + 0.5):.1f},{_HIGH * (1 - s):.1f}" for n, s in enumerate(shares))
        _add(used, "polyline", points=" ".join(points), fill="none", stroke=colour, stroke_width=2)
    return _written(document)


def bars(title: str, rows: Mapping[str, int], limit: int) -> str:
    """Draw one bar per name as an SVG document; bars above the limit are red."""
    document = _document(_TOP + _BAR * (len(rows) + 1), title)
    _add(document, "text", title, x=20, y=26, font_size=16)
    left, wide = 330, 480
    scale = wide / max(limit, *rows.values())
    for number, (name, value) in enumerate(rows.items()):
        y = _TOP + _BAR * number
        _add(document, "text", name, x=left - 10, y=y + 15, text_anchor="end")
        colour = _ADMITTED if value <= limit else _REFUSED
        _add(document, "rect", x=left, y=y, width=value * scale, height=_BAR - 7, fill=colour)
        _add(document, "text", f"{value:,}", x=left + value * scale + 6, y=y + 15)
    x, end = left + limit * scale, _TOP + _BAR * len(rows)
    line = {"stroke": "currentColor", "stroke_dasharray": "4 3"}
    _add(document, "line", x1=x, y1=_TOP - 6, x2=x, y2=end, **line)
    _add(document, "text", f"limit {limit:,}", x=x, y=end + 12, text_anchor="middle")
    return _written(document)


def _most(parts: Sequence[Bucket]) -> int:
    return max((part.admitted + part.refused for part in parts), default=1)


def _fullness(simulation: Simulation, parts: Sequence[Bucket]) -> list[tuple[str, list[float]]]:
    """Return each limited window with its used share in each part."""
    return [
        (window.name, [min(1.0, part.used[index] / max(1, window.limit)) for part in parts])
        for index, window in enumerate(simulation.plan.windows)
        if window.limit is not None
    ]


def _blocks(heights: Iterable[float]) -> str:
    last = len(_BLOCKS) - 1
    return "".join(_BLOCKS[ceil(height * last)] for height in heights)


def _document(height: float, title: str) -> Tree.Element:
    document = Tree.Element("svg", xmlns="http://www.w3.org/2000/svg", role="img")
    document.attrib |= {"viewBox": f"0 0 {_WIDTH} {height:g}", "font-size": "12"}
    document.attrib |= {"font-family": "sans-serif", "fill": "currentColor"}
    _add(document, "title", title)
    _add(document, "style", _STYLE)
    Tree.SubElement(document, "rect", {"class": "page", "width": "100%", "height": "100%"})
    return document


def _panel(
    document: Tree.Element,
    top: float,
    title: str,
    most: str,
    legend: Sequence[tuple[str, str]],
    parts: Sequence[Bucket],
) -> Tree.Element:
    """Return an empty chart with its labels; its corner is the origin of the drawing."""
    panel = _add(document, "g", transform=f"translate({_LEFT} {top + _TOP:g})")
    _add(panel, "text", title, x=0, y=-18, font_size=16)
    for number, (name, colour) in enumerate(legend):
        right = _WIDE - 90 * (len(legend) - number)
        _add(panel, "rect", x=right, y=-28, width=11, height=11, fill=colour)
        _add(panel, "text", name, x=right + 16, y=-18)
    _add(panel, "text", most, x=-6, y=9, text_anchor="end")
    _add(panel, "text", "0", x=-6, y=_HIGH, text_anchor="end")
    for number in range(0, len(parts), max(1, len(parts) // 6)):
        time = datetime.fromtimestamp(parts[number].start // SECOND, UTC)
        x = _WIDE * number / len(parts)
        _add(panel, "text", f"{time:%H:%M:%S}", x=x, y=_HIGH + 18)
        _add(panel, "line", x1=x, y1=0, x2=x, y2=_HIGH + 5, stroke="#8884")
    _add(panel, "line", x1=0, y1=_HIGH, x2=_WIDE, y2=_HIGH, stroke="currentColor")
    return panel


def _add(inside: Tree.Element, tag: str, text: str = "", **attributes: str | float) -> Tree.Element:
    written = {
        name.replace("_", "-"): value if isinstance(value, str) else f"{round(value, 2):g}"
        for name, value in attributes.items()
    }
    element = Tree.SubElement(inside, tag, written)
    element.text = text or None
    return element


def _written(document: Tree.Element) -> str:
    Tree.indent(document)
    return Tree.tostring(document, encoding="unicode") + "\n"
