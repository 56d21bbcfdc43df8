"""Patterns by their segments: the few of many that may match a path, without trying each one.

A path is matched before any key or budget is looked at, and one of many readings is matched by each
of them: what this takes must not grow with the number of rules.
"""

from collections.abc import Iterable
from typing import Final

from .path_patterns import LITERAL, REST, Pattern

_FOLDED_TO_I: Final = {0x130: "i", 0x131: "i"}
"""Letters that expressions take for an ``i`` in another letter case, as casefold() does not."""


def fold(path: str) -> str:
    """A path in one letter case: two that an expression may take for each other become the same."""
    if not path.isascii():
        path = path.translate(_FOLDED_TO_I)
    return path.casefold()


class PathTree:
    """Finds the patterns that may match a path in any letter case.

    Args:
        patterns: some of them with parameters.
    """

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self._root: Final = _Node()
        for place, pattern in enumerate(patterns):
            node, ends = self._root, self._root.here
            for kind, source in pattern.segments:
                if kind == REST:
                    ends = node.below
                    break
                node = node.at(fold(source) if kind == LITERAL else None)
                ends = node.here
            ends.append(place)

    def places(self, path: str) -> list[int]:
        """The places of all patterns that match a path, in order, and maybe of some that do not."""
        nodes, found = [self._root], list[int]()
        for segment in fold(path)[1:].split("/"):
            found += [place for node in nodes for place in node.below]
            nodes = [
                child
                for node in nodes
                for child in (node.children.get(segment), node.children.get(None))
                if child is not None
            ]
            if not nodes:
                break
        found += [place for node in nodes for place in node.here]
        return sorted(found)


class _Node:
    """The patterns that begin with the same segments."""

    __slots__ = ("below", "children", "here")

    def __init__(self) -> None:
        self.children: Final[dict[str | None, _Node]] = {}
        """By the next segment, folded; None: a parameter, or a part of the segment is one."""
        self.here: Final[list[int]] = []
        """The patterns that end here."""
        self.below: Final[list[int]] = []
        """The patterns of everything below."""

    def at(self, segment: str | None) -> "_Node":
        """The node for a further segment."""
        return self.children.setdefault(segment, _Node())
