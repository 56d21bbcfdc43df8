"""Request paths: the patterns that rules name, and the readings that routers disagree on (D31)."""

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from urllib.parse import unquote

from ..errors import ConfigurationError, InvalidRequest, Problem

_PARAMETER = re.compile(r"\{[A-Za-z_]\w*(?::(\w+))?\}")
LITERAL, MIXED, ONE, REST = range(4)
_FILLER = "\ue000"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffd]")
"""U+FFFD stands for bytes that are not UTF-8: an application may see control characters there."""
_SLASHES: Final = re.compile(r"//+")
_PARAMETERS: Final = re.compile(r";[^/]*")
_TAIL: Final = re.compile(r"[?#].*", re.DOTALL)
_SUSPECT: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffd%;\\?#]|//|/\.")
_ENCODED_SLASH: Final = re.compile(r"%2f", re.IGNORECASE)
_NOT_A_SLASH: Final = "\ufffc"
"""Replaces an encoded slash in the reading that keeps it within its segment."""
_FOLDED_TO_I: Final = {0x130: "i", 0x131: "i"}
"""Letters that regular expressions fold to ``i``, as casefold() does not."""
_READINGS_SIZE: Final = 64 * 1024
"""The most characters that all readings of one path may have together."""
_MOST_READINGS: Final = 64
"""The most readings of one path: each is matched with all rules, before any key is verified."""


class Pattern(NamedTuple):
    """A path with parameters: ``/jobs/{id}``, ``/files/{name:path}``."""

    text: str
    segments: tuple[tuple[int, str], ...]
    """For each segment its kind, from the most to the least specific, and its source."""

    @classmethod
    def of(cls, text: str) -> "Pattern":
        """Read a pattern.

        Raises:
            ConfigurationError: no request path can match the text.
        """
        plain = _PARAMETER.sub("x", text)
        if re.search(r"[{}<>*]|/:", plain) or odd(plain):
            raise ConfigurationError(
                f"The path {text!r} matches no request: start with '/', write it decoded, without "
                "empty, '.' or '..' segments; parameters are written '{name}', or '{name:path}' "
                "for a whole tail."
            )
        segments: list[tuple[int, str]] = []
        for segment in text[1:].split("/"):
            whole = _PARAMETER.fullmatch(segment)
            if whole is None:
                # Patterns that differ in names of parameters alone are equal.
                shape = _PARAMETER.sub("{}", segment)
                segments.append((MIXED if "{" in segment else LITERAL, shape))
            else:
                segments.append((REST, "") if whole[1] == "path" else (ONE, ""))
            if segments[-1][0] == REST:
                break
        if text.count(":path}") > (segments[-1][0] == REST) or not (
            len(segments) == len(text[1:].split("/"))
        ):
            raise ConfigurationError(
                f"In {text!r}, '{{name:path}}' must be the whole last segment."
            )
        return cls(text, tuple(segments))

    @classmethod
    def of_route(cls, template: str) -> "Pattern":
        """Read a framework's route template with any converters.

        A form that rules do not support, such as ``/{folder:path}/edit``, becomes the pattern of
        everything below its first tail.
        """
        segments: list[tuple[int, str]] = []
        for segment in template[1:].split("/"):
            whole = _PARAMETER.fullmatch(segment)
            if ":path}" in segment:
                segments.append((REST, ""))
                break
            if whole is not None:
                segments.append((ONE, ""))
            else:
                shape = _PARAMETER.sub("{}", segment)
                segments.append((MIXED if "{" in segment else LITERAL, shape))
        return cls(template, tuple(segments))

    @property
    def sample(self) -> str:
        """A path that this pattern matches, with letters that rules do not use."""
        filled = (
            f"{_FILLER}/{_FILLER}" if kind == REST else source.replace("{}", _FILLER) or _FILLER
            for kind, source in self.segments
            if (kind, source) != (LITERAL, "")
        )
        slash = "/" if self.segments[-1] == (LITERAL, "") and len(self.segments) > 1 else ""
        return "/" + "/".join(filled) + slash

    @property
    def stem(self) -> "Pattern":
        """The pattern in lower case and without a last slash, to compare it with others."""
        segments = tuple((kind, source.casefold()) for kind, source in self.segments)
        if len(segments) > 1 and segments[-1] == (LITERAL, ""):
            segments = segments[:-1]
        return Pattern(self.text, segments)

    @property
    def literal(self) -> bool:
        """Whether the pattern has no parameters."""
        return all(kind == LITERAL for kind, _ in self.segments)

    @property
    def expression(self) -> str:
        """The pattern as a regular expression without groups."""
        return "/" + "/".join(_expression(kind, source) for kind, source in self.segments)

    @property
    def rank(self) -> tuple[int, ...]:
        """A sort key that puts a pattern before the patterns that cover it."""
        return tuple(kind for kind, _ in self.segments)

    def covers(self, other: "Pattern") -> bool:
        """Return whether this pattern matches every path that the other one matches."""
        for place, (kind, source) in enumerate(self.segments):
            if kind == REST:
                return True
            if place >= len(other.segments):
                return False
            if not _covers((kind, source), other.segments[place]):
                return False
        return len(self.segments) == len(other.segments)

    def meets(self, other: "Pattern") -> bool:
        """Return whether some path may match both patterns."""
        for (kind, source), theirs in zip(self.segments, other.segments, strict=False):
            if REST in (kind, theirs[0]):
                return True
            ours = (kind, source)
            if LITERAL in (kind, theirs[0]) and not (
                _covers(ours, theirs) or _covers(theirs, ours)
            ):
                return False
        return len(self.segments) == len(other.segments)


def _covers(ours: tuple[int, str], theirs: tuple[int, str]) -> bool:
    """Return whether one segment matches every text that the other one matches."""
    if theirs[0] == REST:
        return False
    if ours[0] == MIXED and theirs[0] == LITERAL:
        return re.fullmatch(_expression(*ours), theirs[1], re.DOTALL) is not None
    return ours[0] == ONE or ours == theirs


def _expression(kind: int, source: str) -> str:
    if kind == ONE:
        return "[^/]+"
    if kind == REST:
        return ".*"
    first, *others = map(re.escape, source.split("{}"))
    if not others:
        return first
    # The text between two parameters is matched at its first place only ((?>...) never backtracks):
    # trying every place would take the square of a path's length, or more.
    *between, last = others
    return first + "".join(f"(?>[^/]+?{text})" for text in between) + f"[^/]+{last}"


def fold(path: str) -> str:
    """Fold a path to one letter case, as regular expressions do that ignore it."""
    if not path.isascii():
        path = path.translate(_FOLDED_TO_I)
    return path.casefold()


class PathTree:
    """A tree of patterns by segments, which finds the few that may match a path in any letter case.

    A path is matched before any key or budget is checked, and each of its readings is matched: the
    time must not grow with the number of rules.

    Args:
        patterns: with or without parameters.
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
        """Return the indexes of all patterns that may match a path, ascending."""
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
        """By the next segment, folded; None: a segment with a parameter."""
        self.here: Final[list[int]] = []
        """The patterns that end here."""
        self.below: Final[list[int]] = []
        """The patterns with a tail that begins here."""

    def at(self, segment: str | None) -> "_Node":
        """Return the node for a further segment."""
        return self.children.setdefault(segment, _Node())


def odd(path: str) -> bool:
    """Return whether a router or server may read a path in another way than it is written.

    True for control characters (a router whose expressions end with ``$`` takes ``/images`` and a
    line feed for ``/images``), empty, ``.`` and ``..`` segments, ``;`` parameters, backslashes, and
    ``%``, ``?`` or ``#`` that are left after decoding. One trailing slash does not count.
    """
    if path[:1] != "/":
        return True
    found = _SUSPECT.search(path)
    if found is None:
        return False
    if found[0] not in {"//", "/."} or _CONTROL.search(path) or not set("%;\\?#").isdisjoint(path):
        return True
    return any(segment in {"", ".", ".."} for segment in path[1:].removesuffix("/").split("/"))


def folded(path: str) -> str:
    """Drop control characters from a path, and resolve empty and dot segments."""
    kept: list[str] = []
    for segment in _CONTROL.sub("", path).split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in {"", "."}:
            kept.append(segment)
    return "/" + "/".join(kept)


_STEPS: Final[tuple[Callable[[str], str], ...]] = (
    lambda path: _SLASHES.sub("/", f"/{path}"),
    folded,
    lambda path: _PARAMETERS.sub("", path),
    lambda path: path.replace("\\", "/"),
    unquote,
    lambda path: _TAIL.sub("", path),
)


def readings(path: str, raw: bytes = b"") -> list[str]:
    """Return all readings of a path by routers and servers, the path itself first.

    Args:
        path: decoded, as the application will see it.
        raw: the target on the wire, where the server passes it on.

    Raises:
        InvalidRequest: the path has more than 64 readings, or they have more than 64 KiB.
    """
    wire = raw.partition(b"?")[0].decode("latin-1")
    known = dict.fromkeys((path, unquote(wire), unquote(_ENCODED_SLASH.sub(_NOT_A_SLASH, wire))))
    if not wire:
        known = {path: None}
    waiting, size = list(known), sum(map(len, known))
    while waiting:
        text = waiting.pop()
        for step in _STEPS:
            read = step(text)
            if read not in known:
                size += len(read)
                if size > _READINGS_SIZE or len(known) == _MOST_READINGS:
                    raise InvalidRequest(
                        [Problem("", "The path can be read in too many ways: write it plainly.")]
                    )
                known[read] = None
                waiting.append(read)
    return list(known)
