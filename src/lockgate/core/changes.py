"""The change log: a record of each change to the keys, plans and accounts of an organization (D44).

A service drafts the record, and the store that makes the change adds number and instant and keeps
the record in the same atomic step. No field holds a secret: keys are named by their ids.
"""

import json
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Literal, NamedTuple, Self, cast

from .api_keys import ApiKey, KeyDetails, KeyDraft
from .plans import Organization
from .temporary_limits import told_apart

LOGGED_AT_MOST: Final = 10_000
"""Records that an organization keeps: beyond these, each new one replaces the oldest."""
ACTOR_LENGTH: Final = 255
"""Characters of an actor's id that are kept."""
ADDRESS_LENGTH: Final = 64
"""Characters of an actor's address that are kept."""

Action = Literal[
    "key_created",
    "key_imported",
    "key_updated",
    "key_rotated",
    "key_revoked",
    "plan_assigned",
    "plan_noted",
    "windows_reset",
    "account_registered",
    "account_claimed",
    "account_removed",
]
ActorKind = Literal["user", "key", "agent", "client", "scanner", "operator", "host", "lockgate"]

Value = str | int | bool | tuple[str, ...] | None
Fields = tuple[tuple[str, Value], ...]
"""Names and values, in an order that is kept."""


class Actor(NamedTuple):
    """The originator of a change."""

    kind: ActorKind
    """``user``: a signed-in person; ``key``: an API key; ``agent``: an agent that registers or
    uses its dashboard token; ``client``: an unauthenticated caller; ``scanner``: the sender of a
    report of leaked keys; ``operator``: the command line, or an operator at the dashboard;
    ``host``: code of the service that names no other actor; ``lockgate``: its own maintenance."""
    id: str | None = None
    """The user's id, the key's id, the identifier of a scanner's signing key, or the login name of
    the operator."""
    address: str | None = None
    """The address of the client, for a change that was requested over HTTP."""


HOST: Final = Actor("host")
LOCKGATE: Final = Actor("lockgate")
_ACTOR: Final[ContextVar[Actor]] = ContextVar("lockgate_actor", default=HOST)


@contextmanager
def acting(actor: Actor) -> Generator[None]:
    """Return a context whose changes are recorded as those of an actor.

    It holds for the running task or thread, and for tasks that it starts::

        with acting(Actor("user", request.user.id)):
            await gate.keys.revoke("org_1", key_id)
    """
    outside = _ACTOR.set(actor)
    try:
        yield
    finally:
        _ACTOR.reset(outside)


def current_actor() -> Actor:
    """Return the actor of the innermost :func:`acting`; without one, the host."""
    return _ACTOR.get()


class Change(NamedTuple):
    """One record of the change log."""

    number: int
    """Counts the records of an organization, from 1: a later change has a greater number."""
    at: int
    """The instant of the change in microseconds, by the clock that stamps keys."""
    action: Action
    key: str | None
    """The id of the key; None: the plan, the account, or all keys of the organization."""
    actor: Actor
    before: Fields = ()
    """The values before the change."""
    after: Fields = ()
    """The values after it."""

    def concerns(self, key: str) -> bool:
        """Return whether the record is about a key: it, its successor, or all keys."""
        if self.key is None:
            return ("revoke_keys", True) in self.after or ("key", key) in self.after
        return self.key == key or ("successor", key) in self.after

    def creates(self, key: str) -> bool:
        """Return whether the key began to exist by this change."""
        if self.action in {"key_created", "key_imported"}:
            return self.key == key
        if self.action == "key_rotated":
            return ("successor", key) in self.after
        return self.action == "account_registered" and ("key", key) in self.after

    @classmethod
    def read(cls, number: int, at: int, text: str | bytes) -> Self:
        """Decode the text of :meth:`ChangeDraft.text`."""
        action, key, actor, before, after = cast(list[Any], json.loads(text))
        return cls(number, at, action, key, Actor(*actor), _fields(before), _fields(after))


class ChangeDraft(NamedTuple):
    """A record that a store is about to keep, as in :class:`Change`."""

    action: Action
    key: str | None
    actor: Actor
    before: Fields = ()
    after: Fields = ()

    def text(self) -> str:
        """Encode it in ASCII, bounded in length."""
        kind, id, address = self.actor
        actor = kind, id and id[:ACTOR_LENGTH], address and address[:ADDRESS_LENGTH]
        parts = self.action, self.key, actor, self.before, self.after
        return json.dumps(parts, separators=(",", ":"))

    def made(self, number: int, at: int) -> Change:
        """Return the record as a store answers it."""
        return Change.read(number, at, self.text())


def drafted_change(
    action: Action,
    key: str | None = None,
    before: Fields = (),
    after: Fields = (),
    actor: Actor | None = None,
) -> ChangeDraft:
    """Return a draft of the current actor's, or of another's."""
    return ChangeDraft(action, key, actor or current_actor(), before, after)


def plan_fields(placed: Organization | None) -> Fields:
    """Return an assigned plan as fields: its name, the organization's own limits, and temporary
    ones with the instants of their ends."""
    if placed is None:
        return (("plan", None),)
    own, temporary = told_apart(placed.overrides)
    ending = [
        field
        for name, (limit, until) in sorted(temporary.items())
        for field in ((f"temporary_{name}", limit), (f"temporary_{name}_ends_at", until))
    ]
    return (("plan", placed.plan), *sorted(own.items()), *ending)


def key_fields(key: KeyDraft) -> Fields:
    """Return a new key as fields."""
    fields = ("name", key.name), ("scopes", key.scopes), ("expires_at", key.expires_at)
    if key.details is None:
        return fields
    details = ("addresses", key.details.addresses), ("limits", _limits(key.details))
    return *fields, *((name, value) for name, value in details if value)


def key_differences(old: ApiKey, new: ApiKey) -> tuple[Fields, Fields]:
    """Return the fields that two versions of a key differ in: those of each."""
    pairs = zip(_of_key(old), _of_key(new), strict=True)
    differing = [pair for pair in pairs if pair[0] != pair[1]]
    return tuple(old for old, _ in differing), tuple(new for _, new in differing)


def _of_key(key: ApiKey) -> Fields:
    return (
        ("name", key.name),
        ("scopes", key.scopes),
        ("expires_at", key.expires_at),
        ("revoked_at", key.revoked_at),
        ("successor", key.successor),
        ("addresses", key.addresses),
        ("labels", () if key.details is None else tuple(map("=".join, key.details.labels))),
        ("limits", () if key.details is None else _limits(key.details)),
    )


def _limits(details: KeyDetails) -> tuple[str, ...]:
    return tuple(map("=".join, details.limits))


def _fields(pairs: Iterable[tuple[str, Value | list[str]]]) -> Fields:
    return tuple((n, tuple(v) if isinstance(v, list) else v) for n, v in pairs)
