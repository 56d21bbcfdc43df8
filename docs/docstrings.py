"""Prepare docstrings for the Python reference of the site."""

from __future__ import annotations

import re
from typing import Final

_NUMBER: Final = r"[DGHKLPRW]\d+"
_NUMBERS: Final = re.compile(rf"(?: |\n *)\({_NUMBER}(?:(?:, | to ){_NUMBER})*\)")


def without_numbers(lines: list[str]) -> list[str]:
    """Return the lines of a docstring without the numbers of decisions in brackets, which serve
    readers of the code.

    Numbers at the start of a line are removed with the line break before them: the rest of that
    line would have another indentation than its paragraph, which reStructuredText refuses.
    """
    return _NUMBERS.sub("", "\n".join(lines)).split("\n")
