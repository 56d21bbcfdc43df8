"""The answers of a store: values for what it decided, errors where it could not answer (G7).

A store that cannot answer raises one of these errors, or an ``OSError`` (``TimeoutError`` is one),
and the gate answers 503 ``STORE_UNAVAILABLE``. Any other exception is a bug of lockgate or of the
host: it is logged with its traceback, answered 503 too, and never counted by the circuit breaker.

StoreError                the driver or the server failed; the cause is the driver's own exception
├── OutcomeUnknown        a call was sent and no answer came (D33)
├── ChangeCommitted       a change was made, and a step that follows it failed (D52)
├── PartUnavailable       one part of the store is away, such as one slot of a Redis Cluster
└── UnreadableState       the state of one organization cannot be decoded
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from struct import error as StructError
from typing import Final, Literal, NamedTuple, TypeAlias

from ..core.accounts import Account
from ..core.api_keys import ApiKey, KeyState
from ..core.changes import Change
from ..core.key_format import Token
from ..core.limit_windows import LimitWindows
from ..core.limits import Limit, bound
from ..core.plans import Organization, Plan
from ..core.reservations import Reservation
from ..core.sliding_window import Reading
from ..errors import StoreError as StoreError  # noqa: PLC0414 - exported with its subclasses


class Verdict(Enum):
    """The outcome of an admission."""

    ADMITTED = "admitted"
    LIMITED = "limited"
    UNKNOWN = "unknown"
    REVOKED = "revoked"
    EXPIRED = "expired"
    ELSEWHERE = "elsewhere"
    """The key is live, and its allow-list does not have the client's address."""


class Admission(NamedTuple):
    """The answer of :meth:`Store.admit`.

    ``key`` is None when the verdict is UNKNOWN; ``plan`` and ``reading`` are set when it is
    ADMITTED or LIMITED. The key shows its usage with this request counted.
    """

    verdict: Verdict
    key: ApiKey | None = None
    plan: Plan | None = None
    reading: Reading | None = None
    limits: LimitWindows | None = None
    """The windows of the named limits that the reading is about as well, set like the reading."""
    lease: Reservation | None = None
    """The lease that was granted with the admission; of a refusal, its promise (D47)."""


UNKNOWN = Admission(Verdict.UNKNOWN)
REFUSED_BY_STATE = {KeyState.REVOKED: Verdict.REVOKED, KeyState.EXPIRED: Verdict.EXPIRED}


def refusal_of(token: Token, key: ApiKey | None, now: int, address: str | None) -> Admission | None:
    """Return the refusal of a token by the key that was found for its handle; None: the key is live
    and allows the address."""
    if key is None:
        token.compare_with_dummy()
        return UNKNOWN
    if not token.accepts(key):
        return UNKNOWN
    state = key.state(now)
    if state is not KeyState.ACTIVE:
        return Admission(REFUSED_BY_STATE[state], key)
    if key.details is not None and not key.details.allows(address):
        return Admission(Verdict.ELSEWHERE, key)
    return None


def limits_of(limits: tuple[Limit, ...], plan: Plan, key: ApiKey, now: int) -> LimitWindows | None:
    """Return the windows of the named limits of a rule, a plan and a key; None: there are none."""
    if limits or plan.limits or key.limits:
        named = bound(limits + plan.limits, key.id, key.limits)
        return named and named.at(now, key.organization)
    return None


def holder_of(key: ApiKey, plan: Plan) -> str:
    """Return the holder of the promises to a key; empty: its plan does not keep retries (D47)."""
    return key.id if plan.kept_retries else ""


class OutcomeUnknown(StoreError):
    """A call was sent and its reply was lost, so it may have taken effect (D33)."""


class PartUnavailable(StoreError):
    """A part of a store is unavailable, such as one slot of a Redis Cluster.

    Requests of its organizations get 503; the circuit breaker does not count them, since the rest
    of the store answers.
    """


_REMOVAL: Final = "remove it: windows and slots then begin anew, keys and plans are lost"


class UnreadableState(StoreError):
    """The state of one organization cannot be decoded (W8).

    Requests of that organization get 503; the circuit breaker does not count them.

    Attributes:
        organization: the organization's id; None where only ``where`` is known.
        where: the affected part of the store, as the end of a sentence.
        removal: how to give up what is damaged, and what is then lost.
    """

    def __init__(self, organization: str | None, where: str, removal: str | None = None) -> None:
        self.organization: Final = organization
        self.where: Final = where
        self.removal: Final = removal or _REMOVAL
        super().__init__(f"Unreadable state of organization {organization!r}: {where}.")

    @property
    def remedy(self) -> str:
        """Advice for the operator."""
        return (
            f"run the release of lockgate that wrote it, restore {self.where} from a backup, or "
            f"{self.removal}"
        )


UNREADABLE: Final = (ValueError, TypeError, LookupError, ArithmeticError, StructError)
"""Exceptions that the standard library's decoders raise for damaged bytes."""


@contextmanager
def reading_state(
    organization: str | None, where: str, removal: str | None = None
) -> Generator[None]:
    """Raise :class:`UnreadableState` where stored bytes cannot be decoded."""
    try:
        yield
    except UNREADABLE as failure:
        raise UnreadableState(organization, where, removal) from failure


class Usage(NamedTuple):
    """Requests to add to a key's usage, and the instant of the latest (D6)."""

    requests: int
    last_used_at: int


@dataclass(frozen=True, slots=True)
class UsageBatch:
    """Names some counts, so that a store counts them once however often the call is repeated (D33).

    A writer numbers its batches from 1 upwards, and begins none before it has stopped to repeat the
    one before. The rule is :mod:`lockgate.core.usage_marks`.
    """

    writer: str
    """16 ASCII characters, which no other writer has."""
    number: int
    answered: set[str] = field(default_factory=set[str], compare=False, repr=False)
    """The organizations whose part a store has counted. A store that makes a call for each leaves
    them out of a repetition, so that a long batch ends although each attempt has a deadline."""


class HistoryOwner(NamedTuple):
    """The owner of a usage history: a key, or its organization as a whole."""

    organization: str
    handle: str | None
    """The key's handle; None: the organization."""


class Rows(NamedTuple):
    """The answer of :meth:`Store.scan`."""

    keys: Sequence[ApiKey]
    accounts: Sequence[Account]
    cursor: str | None
    """The position of the next step; None after the last."""


class FoundKeys(NamedTuple):
    """One step of :meth:`Store.search`."""

    keys: Sequence[ApiKey]
    cursor: str | None
    """Where the next step begins; None: this was the last one."""


class OrganizationSummary(NamedTuple):
    """An organization in :meth:`Store.organizations`."""

    id: str
    placed: Organization | None
    """The plan that was assigned to it; None: the default plan."""
    live_keys: int
    last_used_at: int | None
    """The latest use of its live keys, in microseconds; None: never used, or no live key."""


class FoundOrganizations(NamedTuple):
    """One step of :meth:`Store.organizations`."""

    organizations: Sequence[OrganizationSummary]
    cursor: str | None
    """Where the next step begins; None: this was the last one."""


Reseal = tuple[str | None, str | None]
"""The present seal of a row, and its replacement."""
UNSEALED: Reseal = (None, None)


class Census(NamedTuple):
    """One step of :meth:`Store.census`."""

    counts: dict[str, int]
    """Live keys and tokens of this step, by digest scheme."""
    cursor: str | None
    """Where the next step begins; None: this was the last one."""


class Removal(NamedTuple):
    """One step of :meth:`Store.remove_ended`."""

    removed: int
    cursor: str | None
    """Where the next step begins; None: this was the last one."""


class StoreWarning(NamedTuple):
    """A state of a store, or of its servers, in which a service fails without an error."""

    kind: Literal["eviction", "memory", "persistence", "clock", "keys", "tables", "disk"]
    text: str
    """A sentence that names the server, the effect and the remedy."""


NO_KEYS: Final = StoreWarning(
    "keys",
    "There is no key in the store, so every request with a key gets 401. If there should be keys, "
    "check the store's URL, which may name another store, and restore the latest backup if its "
    "data was lost.",
)
"""The warning of a store that holds no key."""
CREATED: Final = (
    "There were no tables of lockgate in %s: they have been created, and no key is known there "
    "yet. If keys are missing, see the path in the store's URL."
)
"""The warning of a database whose tables a gate has created."""
_CLOCK_OFFSET: Final = 1.0
"""Seconds by which a store's clock may differ from the process's without a warning."""


def clock_warnings(
    name: str, asked_at: float, shown: float, answered_at: float
) -> list[StoreWarning]:
    """Return a warning if a store's clock surely differs from this process's; otherwise none.

    Args:
        name: the store, in a sentence.
        asked_at: the process's clock before the question, in seconds.
        shown: the store's clock.
        answered_at: the process's clock after the answer.
    """
    offset = max(shown - answered_at, min(shown - asked_at, 0.0))
    if abs(offset) <= _CLOCK_OFFSET:
        return []
    text = (
        f"The clock of {name} is {abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} this "
        f"process's: limits and expiries go by the clock of {name} and sessions by the process's, "
        "so synchronize both, as with NTP."
    )
    return [StoreWarning("clock", text)]


class Freshness(NamedTuple):
    """The answer of :meth:`Store.freshness`."""

    change_counter: int | None
    now: int
    """The present in microseconds, by the clock of the windows."""


Page: TypeAlias = list[ApiKey]
"""Some keys of a list, in its order."""

LogPage: TypeAlias = list[Change]
"""Some records of the change log, the newest first."""
