"""Find the access rule of a path, in every reading that an application may have of it (D31).

The most specific pattern that matches a path decides, together with the methods that it names: any
other method is answered with 405, even where a more general pattern names it. So an endpoint never
runs under the rule of a neighbouring path.

Two spellings are matched along with the path itself, because many routers treat them alike: the
path with its last slash added or removed, and the path in another letter case. A pattern that only
another spelling matches counts too, unless it is more general than the pattern of the path itself.
A path for which :func:`~lockgate.core.request_paths.odd` is true must meet all its readings.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, Final, cast

from .access_rule import ANY_KEY, Rule, both, not_allowed, nowhere, unpaid
from .request_paths import REST, PathTree, Pattern, fold, odd, readings

Redirects = Callable[[Any], bool]
"""Tells of a request whether its router only redirects it to another spelling of its path (D50)."""


class MethodRules(dict[str, Rule]):
    """The rule of each method that a path names; any other method has :attr:`otherwise`.

    Args:
        named: the rules by method; ``*`` is every other method.
    """

    def __init__(self, named: Mapping[str, Rule]) -> None:
        super().__init__(named)
        anything = self.pop("*", None)
        if "GET" in self:
            self.setdefault("HEAD", self["GET"])
        self.otherwise = anything or not_allowed(self)

    def __missing__(self, method: str) -> Rule:
        """Return the rule of a method that the path does not name.

        Some servers and frameworks write a method in upper case by themselves (D31): in another
        letter case it is held to the rule of that method as well.
        """
        upper = self.get(method.upper())
        return self.otherwise if upper is None else strictest([upper, self.otherwise])


class Entry:
    """One pattern with its rule for each method."""

    __slots__ = ("alone", "by_method", "pattern", "settled")

    def __init__(self, pattern: Pattern, by_method: Mapping[str, Rule]) -> None:
        self.pattern: Final = pattern
        self.by_method: Final = MethodRules(by_method)
        self.alone = False
        """Whether other spellings of this pattern's paths match only more general patterns with
        parameters."""
        self.settled: frozenset[Entry | None] = frozenset()
        """The entries, None for no match, that another spelling may match without changing the
        rule: this one and more general ones. Empty where patterns cross, since one match then does
        not exclude another."""


_UNNAMED: Final = Entry(Pattern("", ()), {"*": ANY_KEY})
"""The entry of paths that no pattern matches: any method, any valid key."""
_UNNAMED.settled = frozenset({None})


class PathRules:
    """The rules for all paths of one host.

    Args:
        named: for each pattern, the rule of each method; ``*`` is every other method.
    """

    def __init__(self, named: Mapping[Pattern, Mapping[str, Rule]]) -> None:
        entries = [Entry(pattern, by_method) for pattern, by_method in named.items()]
        self.entries: Final = sorted(entries, key=lambda entry: entry.pattern.rank)
        self._literal = {e.pattern.text: e for e in self.entries if e.pattern.literal}
        self._open = [e for e in self.entries if not e.pattern.literal]
        expressions = [e.pattern.expression for e in self._open]
        self._first = re.compile("|".join(f"({e})" for e in expressions), re.DOTALL)
        folds = re.DOTALL | re.IGNORECASE
        self._each = [(re.compile(x, re.DOTALL), re.compile(x, folds)) for x in expressions]
        self._tree = PathTree(e.pattern for e in self._open)
        self._stems: dict[str, list[Entry]] = {}
        for text, entry in self._literal.items():
            self._stems.setdefault(_stem(text), []).append(entry)
        self._first_spelled = re.compile(self._first.pattern, folds)
        for entry in self._open:
            others = [e for e in self._open if _may_meet(e.pattern.stem, entry.pattern.stem)]
            wider = {e for e in others if _contains(e.pattern, entry.pattern)}
            entry.alone = len(others) - len(wider) == 1
            if not any(_cross(e.pattern, entry.pattern) for e in others):
                entry.settled = frozenset({None, entry, *wider})
        self.exact: Final = {text: self._merged(text) for text in self._literal}
        """The rule of each method for each literal path, all spellings considered."""

    def match(
        self, method: str, path: str, redirects: Redirects | None = None, request: object = None
    ) -> Rule:
        """Return the rule for a decoded path; ANY_KEY where no pattern matches it.

        Args:
            method: of the request.
            path: of the request.
            redirects: is asked about a path whose rule names another spelling of it only.
            request: what that is asked about.

        Raises:
            InvalidRequest: the path can be read in too many ways.
        """
        by_method = self.exact.get(path)
        if by_method is not None:
            return by_method[method]
        if odd(path):
            return self.strictest(method, readings(path))
        entry = self._find(self._first, path) or _UNNAMED
        if _stem(path) in self._stems:
            return self._spelled(method, path, entry, redirects, request)
        if not entry.alone and self._open:
            twin = path[:-1] if path[-1:] == "/" else f"{path}/"
            for spelling in (path, twin):
                if self._find(self._first_spelled, spelling) not in entry.settled:
                    return self._spelled(method, path, entry, redirects, request)
        return entry.by_method[method]

    def _spelled(
        self, method: str, path: str, entry: Entry, redirects: Redirects | None, request: object
    ) -> Rule:
        """Return the rule for a path of which patterns match other spellings."""
        rule = self.strictest(method, (path,))
        is_named = entry.pattern.rank[-1:] not in {(), (REST,)}
        if redirects is None or is_named or rule.public or rule.allow is not None:
            return rule
        return unpaid(rule) if redirects(request) else rule

    def _find(self, expression: re.Pattern[str], path: str) -> Entry | None:
        found = expression.fullmatch(path) if self._open else None
        return None if found is None else self._open[cast(int, found.lastindex) - 1]

    def strictest(self, method: str, paths: Iterable[str]) -> Rule:
        """Return a rule with the demands of every reading; public only if every reading is."""
        return agreed(
            [
                strictest([entry.by_method[method] for entry in self._concerned(path)])
                for path in paths
            ]
        )

    def names(self, path: str) -> bool:
        """Return whether a pattern matches a path literally, without normalisation."""
        return path in self._literal or self._find(self._first, path) is not None

    def inside(self, pattern: Pattern) -> list[Entry]:
        """Return the entries for single paths of a route, with or without a trailing slash."""
        stem = pattern.stem
        return [entry for entry in self.entries if stem.covers(entry.pattern.stem)]

    def named(self, pattern: Pattern) -> Entry | None:
        """Return the entry of a pattern, ignoring letter case and a trailing slash."""
        segments = pattern.stem.segments
        return next((e for e in self.entries if e.pattern.stem.segments == segments), None)

    def _merged(self, path: str) -> MethodRules:
        found = [entry.by_method for entry in self._concerned(path)]
        if len(found) == 1:
            return found[0]
        methods = {method for by_method in found for method in by_method}
        merged = MethodRules({m: strictest([rules[m] for rules in found]) for m in methods})
        merged.otherwise = strictest([by_method.otherwise for by_method in found])
        return merged

    def _concerned(self, path: str) -> list[Entry]:
        """Return the entries of a path, and of its other spellings unless they are more general."""
        own = self._most_specific(path, exactly=True)
        twin = path[:-1] if path.endswith("/") else f"{path}/"
        spelled = self._most_specific(path, exactly=False)
        if twin:
            spelled += self._most_specific(twin, exactly=False)
        further = [
            entry
            for entry in spelled
            if entry not in own and not any(_contains(entry.pattern, e.pattern) for e in own)
        ]
        return [*(own or [_UNNAMED]), *further]

    def _most_specific(self, path: str, *, exactly: bool) -> list[Entry]:
        """Return the entries that match a path, without entries more general than another match."""
        if exactly:
            literal = self._literal.get(path)
            if literal is not None:
                return [literal]
        elif (stem := _stem(path)) in self._stems:
            slash = path.endswith("/")
            spelled = [e for e in self._stems[stem] if e.pattern.text.endswith("/") == slash]
            if spelled:
                return spelled
        found = [
            self._open[place]
            for place in self._tree.places(path)
            if self._each[place][not exactly].fullmatch(path)
        ]
        return [e for e in found if not any(_contains(e.pattern, o.pattern) for o in found)]


def agreed(rules: Sequence[Rule]) -> Rule:
    """Merge the rules of all readings of a path, the path itself first.

    A method that the path itself accepts and another reading does not is answered with 404.
    """
    if rules[0].allow is None and any(rule.allow is not None for rule in rules):
        return nowhere(rules[0])
    return strictest(rules)


def strictest(rules: Sequence[Rule]) -> Rule:
    """Merge rules into one as strict as all; a method that one does not accept is not accepted."""
    for rule in reversed(rules):  # The most specific spelling comes last.
        if rule.allow is not None:
            return rule
    guarded = [rule for rule in rules if not rule.public]
    return reduce(both, guarded) if guarded else rules[0]


def _stem(path: str) -> str:
    return fold(path).removesuffix("/") if len(path) > 1 else path


def _contains(one: Pattern, other: Pattern) -> bool:
    """Return whether a pattern is strictly more general than another."""
    return one.covers(other) and not other.covers(one)


def _may_meet(one: Pattern, other: Pattern) -> bool:
    """Return whether a path may match both stems, the slash before an empty tail aside."""
    return any(a.meets(b) for a in _with_empty_tail(one) for b in _with_empty_tail(other))


def _with_empty_tail(pattern: Pattern) -> Iterable[Pattern]:
    yield pattern
    if pattern.segments[-1][0] == REST:
        yield pattern._replace(segments=pattern.segments[:-1])


def _cross(one: Pattern, other: Pattern) -> bool:
    """Return whether two patterns overlap, and neither contains the other."""
    return one.segments != other.segments and not (one.covers(other) or other.covers(one))
