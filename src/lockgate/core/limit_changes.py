"""Read a limit that an operator enters: a number, a number to add to the present limit, or none."""

import re
from typing import Final

from .sliding_window import LARGEST

_CHANGE: Final = re.compile(r"(\+?)([0-9]{1,40})")


def read_limit(text: str, present: int | None) -> int | None:
    """Return a limit that was entered as ``500``, ``+500`` or ``none``; None: no limit.

    Args:
        text: what was entered.
        present: the present limit, to which ``+500`` adds; None: no limit.

    Raises:
        ValueError: the text is none of them, the number is too large, or there is no limit to add
            to. Its message is a sentence without its capital letter and its full stop.
    """
    if text == "none":
        return None
    parts = _CHANGE.fullmatch(text)
    if parts is None:
        raise ValueError("use a number, +number or none")
    if parts[1] and present is None:
        raise ValueError("there is no limit to add to")
    number = int(parts[2])
    if parts[1] and not number:
        raise ValueError("add a number of 1 or more")
    limit = number + ((present or 0) if parts[1] else 0)
    if limit > LARGEST:
        raise ValueError(f"use a number up to {LARGEST}")
    return limit
