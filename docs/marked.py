"""The parts of pages that programs write: between ``<!-- table: NAME -->`` and ``<!-- end -->``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

_PART: Final = re.compile(r"(<!-- table: ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)

Row = Iterable[str]


def table(*rows: Row) -> str:
    """Return rows of text as a Markdown table; the first one is its head."""
    head, *body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def fill_parts(page: str, fill: Callable[[str, str], str]) -> str:
    """Return the text of a page with new parts.

    Args:
        page: the text.
        fill: takes the name of a part and its present text; returns the new one.
    """

    def replace(found: re.Match[str]) -> str:
        start, name, before, end = found.groups()
        return f"{start}\n{fill(name, before.strip()).strip()}\n\n{end}"

    return _PART.sub(replace, page)


def parts(page: str) -> dict[str, str]:
    """Return the texts of the parts of a page by their names."""
    return {name: text.strip() for _, name, text, _ in _PART.findall(page)}
