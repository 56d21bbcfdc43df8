"""Paths with parameters: what a rule names, and which requests it matches."""

import re
from typing import NamedTuple

from ..errors import ConfigurationError
from .path_readings import odd

_PARAMETER = re.compile(r"\{[A-Za-z_]\w*(?::(\w+))?\}")
LITERAL, MIXED, ONE, REST = range(4)
_FILLER = "\ue000"


class Pattern(NamedTuple):
    """A path with parameters: ``/jobs/{id}``, ``/files/{name:path}``."""

    text: str
    segments: tuple[tuple[int, str], ...]
    """For each segment its kind, from the most to the least specific, and its source."""

    @classmethod
    def of(cls, text: str) -> "Pattern":
        """Read a pattern.

        Raises:
            ConfigurationError: if no request path could ever match it as it is written.
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
                # What a parameter is called makes no difference to what it matches.
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
        """Read a framework's route template, whatever its converters are called.

        A form that rules do not have, such as ``/{folder:path}/edit``, becomes the pattern of
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
        """A path that it matches and that no rule is likely to name by its letters."""
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
        """Whether it has no parameters."""
        return all(kind == LITERAL for kind, _ in self.segments)

    @property
    def expression(self) -> str:
        """The regular expression for it, without groups."""
        return "/" + "/".join(_expression(kind, source) for kind, source in self.segments)

    @property
    def rank(self) -> tuple[int, ...]:
        """Sorts a pattern before those that cover it."""
        return tuple(kind for kind, _ in self.segments)

    def covers(self, other: "Pattern") -> bool:
        """Whether it matches every path that the other one matches."""
        for place, (kind, source) in enumerate(self.segments):
            if kind == REST:
                return True
            if place >= len(other.segments):
                return False
            if not _covers((kind, source), other.segments[place]):
                return False
        return len(self.segments) == len(other.segments)

    def meets(self, other: "Pattern") -> bool:
        """Whether some path may match both."""
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
    """Whether one segment matches all that another one matches."""
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
    # What stands between two parameters is taken where it comes first, and no other place is tried
    # ((?>...) gives nothing back): all of them would take the square of a path's length, or more.
    *between, last = others
    return first + "".join(f"(?>[^/]+?{text})" for text in between) + f"[^/]+{last}"
