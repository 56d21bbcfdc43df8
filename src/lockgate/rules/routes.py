"""Which rule holds for a request: by method and path, closed by default (D31)."""

import re
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Final, Literal

from ..errors import ConfigurationError
from .paths import odd, readings
from .patterns import Pattern
from .plans import LARGEST, is_whole
from .scopes import Catalogue, Requirement, requirement

Credential = Literal["key", "session"]


class Rule:
    """What a request must bring, and what it weighs.

    Args:
        requires: the scope that a key needs; None: any valid key will do.
        cost: what the request takes from each window, at least 1.
        slot: whether the request holds one of its organization's slots for concurrent jobs, until
            it is answered whole (D26).
        accepts: the credentials that are accepted. lockgate's own key operations also take a
            session; an application's take keys only (spec 5.1).

    Raises:
        ConfigurationError: for a requirement that is no exact scope, a cost below 1, or a public
            rule that has any of these.
    """

    __slots__ = (
        "accepts",
        "cost",
        "own",
        "public",
        "requires",
        "slot",
        "takes_key",
        "takes_session",
    )

    def __init__(
        self,
        requires: str | None = None,
        *,
        cost: int = 1,
        slot: bool = False,
        accepts: tuple[Credential, ...] = ("key",),
        public: bool = False,
        own: bool = False,
    ) -> None:
        if not (is_whole(cost) and 1 <= cost <= LARGEST):
            raise ConfigurationError(
                f"A rule's cost is a whole number of at least 1, not {cost!r}."
            )
        if public and (requires is not None or cost > 1 or slot):
            raise ConfigurationError(
                "A public rule has no scope, no cost and no slot: no key is there to have them."
            )
        self.requires: Requirement | None = None if requires is None else requirement(requires)
        self.cost: Final = cost
        self.slot: Final = slot
        self.accepts: Final = accepts
        self.takes_key: Final = "key" in accepts
        self.takes_session: Final = "session" in accepts
        self.public: Final = public
        self.own: Final = own
        """A rule of lockgate's own operations: no shadow mode opens them."""

    def __repr__(self) -> str:
        return f"<Rule: {self}>"

    def __str__(self) -> str:
        if self.public:
            return "public"
        scope = f"scope {self.requires.scope}" if self.requires else "any scope"
        cost = f", cost {self.cost}" if self.cost > 1 else ""
        slot = ", a slot" if self.slot else ""
        return f"{' or '.join(self.accepts)}, {scope}{cost}{slot}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rule):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash((self.requires, self.cost, self.accepts, self.public))


PUBLIC: Final = Rule(public=True)
"""No key is needed, and none is looked at."""

ANY_KEY: Final = Rule()
"""A valid key, whatever its scopes: what holds where no rule is named (D31)."""

_METHOD = re.compile(r"\*|[A-Z]+")
_PERCENT: Final = ord("%")
"""A number is looked for in bytes five times as fast as other bytes are."""
_SLASH: Final = b"%2f"


def _both(one: Rule, other: Rule) -> Rule:
    """A rule as strict as two together."""
    if one == other:
        return one
    rule = Rule(
        cost=max(one.cost, other.cost),
        slot=one.slot or other.slot,
        accepts=tuple(c for c in one.accepts if c in other.accepts),
        own=one.own or other.own,
    )
    needed = [r.requires for r in (one, other) if r.requires is not None]
    rule.requires = needed[0].together(needed[-1]) if needed else None
    return rule


class _Table:
    """The rules for one method."""

    def __init__(self, rules: Mapping[Pattern, Rule]) -> None:
        self.exact = {pattern.text: rule for pattern, rule in rules.items() if pattern.literal}
        ordered = sorted((p for p in rules if not p.literal), key=lambda p: p.rank)
        self.rules = [rules[pattern] for pattern in ordered]
        self.expression = re.compile("|".join(f"({p.expression})" for p in ordered), re.DOTALL)

    def match(self, path: str) -> Rule | None:
        rule = self.exact.get(path)
        if rule is None and self.rules:
            found = self.expression.fullmatch(path)
            if found is not None and found.lastindex is not None:
                rule = self.rules[found.lastindex - 1]
        return rule


def _of_twin(table: _Table, path: str) -> Rule | None:
    """The rule of a path that nobody named, by the same path with or without a last slash.

    Some software serves both alike, so neither may need less; being public is not passed on.
    """
    rule = table.match(path[:-1] if path.endswith("/") else f"{path}/")
    return None if rule is None or rule.public else rule


class RuleBook:
    """All rules of an application.

    Args:
        rules: by ``"METHOD /path"``: a :class:`Rule`, or just the scope that is required.
            ``GET`` holds for HEAD and for WebSocket handshakes too; ``*`` is any method. Where two
            rules match, the more specific path decides, then the named method.
        catalogue: the scopes that exist; a rule that requires another one is refused.

    Raises:
        ConfigurationError: for a rule that cannot be read, and for two rules that can match the
            same request, neither more specific, and differ.
    """

    def __init__(self, rules: Mapping[str, Rule | str], catalogue: Catalogue | None = None) -> None:
        self._named: dict[str, dict[Pattern, Rule]] = {}
        for key, wanted in rules.items():
            method, pattern = _read(key)
            rule = Rule(wanted) if isinstance(wanted, str) else wanted
            if not rule.accepts:
                raise ConfigurationError(f"The rule {key!r} accepts no credential: name one.")
            if rule.requires and catalogue:
                catalogue.check_requirement(rule.requires)
            named = self._named.setdefault(method, {})
            for other, standing in named.items():
                same = pattern.covers(other) and other.covers(pattern)
                crossing = pattern.meets(other) and not (
                    pattern.covers(other) or other.covers(pattern)
                )
                if (same or crossing) and standing != rule:
                    raise ConfigurationError(
                        f"The rules '{method} {other.text}' and '{key}' contradict each other: "
                        f"{standing} or {rule}? Take one out, or name the path that both match."
                    )
            named[pattern] = rule
        anything = self._named.get("*", {})
        tables = {method: _Table(_merged(named, anything)) for method, named in self._named.items()}
        self._otherwise = _Table(anything)
        if "GET" in tables and "HEAD" not in tables:
            tables["HEAD"] = tables["GET"]
        elif "GET" in tables:
            tables["HEAD"] = _Table(
                _merged(_merged(self._named["HEAD"], self._named["GET"]), anything)
            )
        self._tables = tables

    def __iter__(self) -> Iterator[tuple[str, str, Rule]]:
        """Every rule as it was named: method, path, rule."""
        for method, named in self._named.items():
            for pattern, rule in named.items():
                yield method, pattern.text, rule

    def match(self, method: str, path: str, raw: bytes = b"") -> Rule:
        """The rule for a request; :data:`ANY_KEY` where none is named.

        What other software may read differently (a path with empty or dot segments or an encoded
        slash, a method in lower case) is never public, and is held to the rules of all readings
        (D31).

        Args:
            method: as it came.
            path: decoded, as the application will see it.
            raw: as it came on the wire, where the server tells; with two slashes in front, another
                reading of it.
        """
        table = self._tables.get(method)
        # Two slashes in front: some servers take one of them for the whole before they decode.
        clear = not raw or (raw[:2] != b"//" and not (_PERCENT in raw and _SLASH in raw.lower()))
        if table is None:
            clear = clear and method.isupper()
            table = self._tables.get(method.upper(), self._otherwise)
        if clear:
            rule = table.exact.get(path)
            if rule is not None:
                return rule
            if not odd(path):
                return table.match(path) or _of_twin(table, path) or ANY_KEY
        rules = [
            table.match(reading) or _of_twin(table, reading) for reading in readings(path, raw)
        ]
        guarded = [rule for rule in rules if rule is not None and not rule.public]
        return reduce(_both, guarded) if guarded else ANY_KEY

    def named(self, method: str, path: str) -> Rule | None:
        """The rule that is named for a route's own pattern, parameters and all; None: none is."""
        return self._tables.get(method, self._otherwise).match(path)


def _read(key: str) -> tuple[str, Pattern]:
    method, _, path = key.partition(" ")
    if not _METHOD.fullmatch(method) or not path:
        raise ConfigurationError(
            f"The rule {key!r} cannot be read: write 'GET /path', or '* /path' for every method."
        )
    return method, Pattern.of(path)


def _merged(named: Mapping[Pattern, Rule], below: Mapping[Pattern, Rule]) -> dict[Pattern, Rule]:
    """The rules of both; where two match the same paths, the one in ``named``."""
    hidden = {
        pattern for pattern in below for own in named if own.covers(pattern) and pattern.covers(own)
    }
    return {**{p: rule for p, rule in below.items() if p not in hidden}, **named}
