"""Draw the pictures of the pages: ``python -m docs.drawing`` writes them to ``docs/pictures/``.

Each has colours for light and for dark screens, and is legible at 320 pixels of width.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from benchmarks.worst import LIMIT, START, Admit, lockgate, of_limits
from lockgate import Plan
from lockgate.core.sliding_window import empty_state, hit
from lockgate.core.timestamps import MINUTE, SECOND
from lockgate.testing import worst

PICTURES: Final = Path(__file__).parent / "pictures"
WIDTH: Final = 480
_STYLE: Final = """
  text { font: 14px sans-serif; fill: #1f2328 }
  .small { font-size: 12px; fill: #57606a }
  .head { font-weight: bold }
  .good { fill: #1a7f5a } .bad { fill: #c22f3d } .faint { fill: #8c959f }
  .box { fill: #eef1f4; stroke: #8c959f }
  .line { stroke: #57606a; fill: none } .dash { stroke-dasharray: 4 4 }
  .span { fill: #3f7fd0; fill-opacity: .18; stroke: #3f7fd0 }
  #tip { fill: #57606a }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6e9ec } .small { fill: #aeb6bf }
    .good { fill: #45c38f } .bad { fill: #ff7b86 } .faint { fill: #79828c }
    .box { fill: #262b31; stroke: #79828c } .line { stroke: #aeb6bf }
    .span { fill: #6ea8f0; stroke: #6ea8f0 } #tip { fill: #aeb6bf }
  }"""
_TIP: Final = (
    '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path id="tip" d="M0 0L8 4L0 8z"/></marker>'
)


def picture(title: str, height: int, parts: Iterable[str]) -> str:
    """Return an SVG document of :data:`WIDTH` and a height, in pixels."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH * 4 // 3}">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}\n</style>\n<defs>{_TIP}</defs>\n{body}\n</svg>\n"
    )


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return a line of text that starts, ends or has its middle at ``x``."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x: float, y: float, to_x: float, to_y: float, kind: str = "line", tip: str = "") -> str:
    """Return a line; with ``tip`` an arrow."""
    end = ' marker-end="url(#arrow)"' if tip else ""
    return f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" class="{kind}"{end}/>'


def box(x: float, y: float, width: float, height: float, kind: str = "box") -> str:
    """Return a rectangle."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" class="{kind}"/>'


def _requests() -> list[int]:
    """One request, then 20 a second from the 50th to the 70th second, as after a restart."""
    return [START, *(START + 50 * SECOND + n * SECOND // 20 for n in range(400))]


def admitted(make: Callable[[], Admit]) -> list[int]:
    """Return the instants at which a limiter of 100 a minute admits those requests."""
    admit = make()
    return [at for at in _requests() if admit(at)]


def fixed_window() -> str:
    """Draw the requests that a fixed window admits, and those that lockgate admits."""
    rows: Mapping[str, tuple[str, list[int]]] = {
        "limits, FixedWindowRateLimiter": ("bad", admitted(of_limits("FixedWindowRateLimiter"))),
        "lockgate": ("good", admitted(lockgate)),
    }
    parts: list[str] = []
    left, scale = 20, 5.5
    for top, (name, (kind, times)) in zip((0, 150), rows.items(), strict=True):
        most = worst(times, MINUTE)
        parts.append(text(left, top + 22, name, "head"))
        parts.append(text(460, top + 22, f"{most.admitted} in 60 seconds", f"head {kind}", "end"))
        first = (most.until - MINUTE - START) / SECOND
        start = max(first, 0)
        width = ((most.until - START) / SECOND - start) * scale
        parts.append(box(left + start * scale, top + 34, width, 84, "span"))
        for second, number in Counter((at - START) // SECOND for at in times).items():
            height = 4 * number
            parts.append(box(left + second * scale, top + 118 - height, scale - 1, height, kind))
        parts.append(line(left, top + 118, 460, top + 118))
        for second in (0, 30, 60):
            parts.append(text(left + second * scale, top + 134, f"{second} s", "small", "middle"))
    parts.append(
        text(left, 310, f"Limit {LIMIT} a minute; 401 requests, 20 a second from 50 s on.")
    )
    parts.append(
        text(left, 328, "Bars: admitted a second. Shaded: the fullest 60 seconds.", "small")
    )
    return picture("A fixed window admits 199 requests in 60 seconds; the limit is 100", 340, parts)


def sliding_window() -> str:
    """Draw three requests under a limit of 2 a minute, decided by the rule itself."""
    windows = Plan("tiny", rpm=2, rph=None, rpd=None, concurrent=None).windows
    state = empty_state(windows)
    parts = [text(20, 22, "At most 2 in any 60 seconds", "head")]
    left, scale = 30, 4.6
    instants = (0, 40, 59, 60)
    admissions: list[tuple[int, bool]] = []
    for row, at in enumerate(instants):
        reading, state = hit(state, windows, at * SECOND, 1)
        admissions.append((at, reading.allowed))
        y = 62 + 62 * row
        start = max(at - 60, -4) * scale + left
        parts.append(box(start, y - 14, at * scale + left - start, 28, "span"))
        parts.append(line(left - 10, y, 470, y))
        for then, allowed in admissions:
            counts = allowed and then > at - 60
            kind = "good" if counts else "bad" if then == at else "faint"
            parts.append(f'<circle cx="{left + then * scale:g}" cy="{y}" r="7" class="{kind}"/>')
        wait = f"refused, wait {reading.wait // SECOND} s"
        answer = "admitted" if reading.allowed else wait
        kind = "good" if reading.allowed else "bad"
        parts.append(
            text(left + at * scale + 7, y - 20, f"{at} s: {answer}", kind, "end" if at else "start")
        )
    told = "Shaded: the 60 seconds up to the request. Grey: does not count."
    parts.append(text(20, 300, told, "small"))
    return picture("Which requests count in a sliding window of a minute", 312, parts)


def _lanes(names: Iterable[str], xs: Iterable[int], bottom: int) -> list[str]:
    parts: list[str] = []
    for name, x in zip(names, xs, strict=True):
        parts += [box(x - 52, 8, 104, 30), text(x, 28, name, "head", "middle")]
        parts.append(line(x, 38, x, bottom, "line dash"))
    return parts


def _message(y: int, start: int, end: int, words: str, *, dashed: bool = False) -> list[str]:
    """Return an arrow between two lanes, with its words above its end."""
    toward = end - 59 if end > start else end + 59
    kind = "line dash" if dashed else "line"
    return [text(toward, y - 6, words, "small", "middle"), line(start, y, end, y, kind, "tip")]


def _note(x: int, y: int, *lines: str, kind: str = "box") -> list[str]:
    """Return a box on a lane, with lines of text."""
    height = 8 + 16 * len(lines)
    parts = [box(x - 56, y, 112, height), box(x - 56, y, 112, height, kind)]
    rows = enumerate(lines)
    return parts + [text(x, y + 16 + 16 * n, words, "small", "middle") for n, words in rows]


def admission() -> str:
    """Draw the messages of one admitted request."""
    client, gate, store, handler = 62, 180, 298, 418
    lanes = ("client", "gate", "store", "handler"), (client, gate, store, handler)
    parts = [
        *_lanes(*lanes, 380),
        *_message(66, client, gate, "request, key"),
        *_note(gate, 78, "rule of the path,", "checksum: no I/O"),
        *_message(146, gate, store, "handle, digest, cost"),
        *_note(
            store, 158, "one atomic step:", "key is live, units", "fit in all windows", kind="span"
        ),
        *_message(242, store, gate, "key, plan, usage", dashed=True),
        *_note(gate, 254, "scopes suffice"),
        *_message(306, gate, handler, "principal"),
        *_message(334, handler, gate, "response", dashed=True),
        *_message(364, gate, client, "and rate headers", dashed=True),
    ]
    return picture("One admission: a single call of the store decides key and limits", 388, parts)


def revocation() -> str:
    """Draw a revocation on one process, and the next request on another."""
    owner, one, store, two = 62, 180, 298, 418
    parts = [
        *_lanes(("owner", "process 1", "store", "process 2"), (owner, one, store, two), 304),
        *_message(68, two, store, "a request: admitted"),
        *_message(104, owner, one, "revoke"),
        *_message(132, one, store, "key, audit record"),
        *_note(store, 142, "revoked", kind="span"),
        *_message(196, store, one, "done", dashed=True),
        *_message(222, one, owner, "200", dashed=True),
        *_message(262, two, store, "the next request"),
        *_message(292, store, two, "revoked", dashed=True),
        text(two, 322, "401", "head bad", "middle"),
        text(two, 338, "KEY_REVOKED", "small", "middle"),
        text(20, 366, "Process 2 remembers the key, but asks the store at each use.", "small"),
    ]
    return picture("A key revoked on one process is refused by every other", 378, parts)


DRAWN: Final[Mapping[str, Callable[[], str]]] = {
    "fixed-window.svg": fixed_window,
    "sliding-window.svg": sliding_window,
    "admission.svg": admission,
    "revocation.svg": revocation,
}


def main() -> None:
    """Write every picture."""
    for name, draw in DRAWN.items():
        (PICTURES / name).write_text(draw())


if __name__ == "__main__":
    main()
