"""Calls of a store's verbs, their answers, and their text form in traces."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, cast

from ..core.accounts import Account, AccountDraft
from ..core.api_keys import ApiKey, KeyDraft
from ..core.key_format import Token
from ..core.plans import Plan, PlanBook
from ..core.sliding_window import Reading, Window
from ..core.timestamps import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from ..stores.answers import Census, FoundKeys, FoundOrganizations, Removal
from .clock import START

UNITS: Final = (
    (DAY, "d"),
    (HOUR, "h"),
    (MINUTE, "min"),
    (SECOND, "s"),
    (MILLISECOND, "ms"),
    (1, "us"),
)
_NEAR: Final = 1000 * DAY


class Raised(NamedTuple):
    """The answer of a call that raised: the exception's type, with its text if unexpected."""

    error: str


class Lost:
    """The answer of a call whose reply was lost."""

    def __repr__(self) -> str:
        return "no answer"


LOST: Final = Lost()


WALKS: Final[Mapping[str, Callable[[list[Any]], Any]]] = {
    "census": lambda steps: Census(_total(step.counts for step in steps), None),
    "remove_ended": lambda steps: Removal(sum(step.removed for step in steps), None),
    "search": lambda steps: FoundKeys(_sorted(step.keys for step in steps), None),
    "organizations": lambda steps: FoundOrganizations(
        _sorted(step.organizations for step in steps), None
    ),
}
"""Verbs that run one step of a walk, with the function that sums up its steps. A call makes the
whole walk."""
_STEPS_AT_MOST: Final = 10_000


class Call(NamedTuple):
    """One verb with its arguments, ``now`` included."""

    verb: str
    arguments: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...] = ()
    """Keyword arguments."""

    async def on(self, store: object) -> Any:
        """Make the call on a store; an exception is an answer too."""
        method: Callable[..., Awaitable[Any]] = getattr(store, self.verb)
        try:
            answer = await method(*self.arguments, **dict(self.options))
            if self.verb in WALKS:
                return await self._walked(method, answer)
            return answer
        except Exception as error:
            return raised(error)

    async def _walked(self, method: Callable[..., Awaitable[Any]], step: Any) -> Any:
        steps = [step]
        while steps[-1].cursor is not None and len(steps) < _STEPS_AT_MOST:
            options = {**dict(self.options), "cursor": steps[-1].cursor}
            steps.append(await method(*self.arguments, **options))
        return WALKS[self.verb](steps)

    def __str__(self) -> str:
        named = (f"{name}={show(value)}" for name, value in self.options)
        return f"{self.verb}({', '.join((*map(show, self.arguments), *named))})"


def _sorted(steps: Iterable[Iterable[Any]]) -> list[Any]:
    """Return the rows of all steps, each once, in the order of their ids."""
    rows = {row.id: row for step in steps for row in step}
    return [rows[id] for id in sorted(rows)]


def _total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for some in counts:
        total.update(some)
    return dict(total)


def raised(error: Exception) -> Raised:
    """Return an exception as an answer: lockgate's by type, others with their message."""
    name = type(error).__name__
    if type(error).__module__.startswith("lockgate"):
        return Raised(name)
    return Raised(f"{name}: {error}")


def as_call(verb: str) -> str:
    """Return what messages call a verb: ``find()``, ``charge(Hit)``."""
    return verb if verb.endswith(")") else f"{verb}()"


def show(value: object) -> str:
    """Return the short text of a value in a trace; instants are relative to :data:`START`."""
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, int):
        return _number(value)
    if isinstance(value, KeyDraft):
        expires = "" if value.expires_at is None else f", expires_at={show(value.expires_at)}"
        return f"draft {value.handle} of {value.organization!r}{expires}"
    if isinstance(value, AccountDraft):
        return f"account {value.handle} of {value.organization!r}"
    if isinstance(value, ApiKey):
        return _key(value)
    if isinstance(value, Reading):
        return _reading(value)
    if isinstance(value, Token):
        return f"token {value.handle}"
    if isinstance(value, PlanBook):
        return "plans"
    if isinstance(value, Plan):
        return f"plan {value.name}"
    if isinstance(value, Window):
        return f"{value.limit} a {value.name}"
    if isinstance(value, Raised):
        return f"raises {value.error}"
    return _compound(value)


def _compound(value: Any) -> str:
    fields: Callable[[], dict[str, Any]] | None = getattr(value, "_asdict", None)
    if fields is not None:
        inner = ", ".join(f"{name}={show(part)}" for name, part in fields().items())
        return f"{type(value).__name__}({inner})"
    if isinstance(value, tuple | list):
        inner = ", ".join(map(show, cast(Iterable[object], value)))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if isinstance(value, dict):
        pairs = cast(dict[object, object], value)
        return f"{{{', '.join(f'{k!r}: {show(v)}' for k, v in pairs.items())}}}"
    return repr(value)


def _number(value: int) -> str:
    if abs(value - START) < _NEAR:
        return f"T{_span(value - START, signed=True)}" if value != START else "T"
    return _span(value) if value >= SECOND else str(value)


def _span(micros: int, *, signed: bool = False) -> str:
    sign = ("-" if micros < 0 else "+") if signed else ""
    left, parts = abs(micros), list[str]()
    for unit, name in UNITS:
        count, left = divmod(left, unit)
        if count:
            parts.append(f"{count}{name}")
    return sign + ("".join(parts) or "0")


def _key(key: ApiKey) -> str:
    parts = [f"key {key.handle}", f"created {show(key.created_at)}"]
    if key.expires_at is not None:
        parts.append(f"expires {show(key.expires_at)}")
    if key.revoked_at is not None:
        parts.append(f"revoked {show(key.revoked_at)}")
    used = "" if key.last_used_at is None else f", last {show(key.last_used_at)}"
    parts.append(f"used {key.request_count} times{used}")
    return f"<{', '.join(parts)}>"


def _reading(reading: Reading) -> str:
    fields = reading._asdict()
    verdict = "admitted" if fields.pop("allowed") else "refused"
    inner = ", ".join(f"{name}={show(part)}" for name, part in fields.items() if part is not None)
    return f"{verdict}({inner})"


def alike(expected: object, got: object) -> bool:
    """Return whether an answer equals the expected one, including the types of all parts.

    ``Decimal(3)``, ``3.0`` and 3 are equal, but differ in JSON; a key equals a plain tuple, which
    has no fields.
    """
    if expected != got or not isinstance(got, type(expected)):
        return False
    if isinstance(expected, tuple | list):
        pairs = zip(cast(Iterable[object], expected), cast(Iterable[object], got), strict=True)
        return all(alike(*pair) for pair in pairs)
    if isinstance(expected, dict):
        given = cast(dict[object, object], got)
        return all(
            alike(value, given[name])
            for name, value in cast(dict[object, object], expected).items()
        )
    return True


def differences(expected: object, got: object) -> str:
    """Return both answers; for readings, keys and accounts only the parts that differ."""
    if isinstance(expected, Reading | ApiKey | Account) and type(got) is type(expected):
        right, wrong = expected._asdict(), cast(Reading, got)._asdict()
        parts = (
            f"{name} is {show(wrong[name])} where {show(part)} is right"
            for name, part in right.items()
            if not alike(part, wrong[name])
        )
        return "; ".join(parts)
    return f"it answered {show(got)} where {show(expected)} is right"
