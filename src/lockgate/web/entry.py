"""The record that a gate leaves in the scope or environment of a request that it admits.

A gate inside another one finds the record of the outer gate under :data:`ENTRY`, links its own to
it, and puts it in the place of that until its application has answered. So every fact of an
admission belongs to a gate: an inner gate shares a slot or a charge of the same gate, and takes its
own beside those of another one.
"""

from __future__ import annotations

from asyncio import Task
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final

from ..core.access_rule import Rule
from ..core.deprecation import sunset_headers
from ..core.plans import Plan
from ..core.sliding_window import Reading
from ..errors import Header, Unauthenticated
from ..gate import Gate
from ..principal import Principal
from ..services.reservations.slots import ConcurrencySlot
from .asgi_types import Receive
from .guarded_routes import GuardedRoutes
from .request import RequestView
from .sessions import agent_session

Measured = tuple[Plan, Reading]
"""What the rate-limit headers of a response tell of; the adapter writes them."""

ENTRY: Final = "lockgate.entry"
"""The key of a scope or an environment that holds the record of the innermost gate."""


class Entry:
    """An admission: the caller, the rule that was charged, and the state of the response.

    Attributes:
        guard: admitted the request.
        rule: the rule that was charged.
        principal: the caller; None on a public route, and where shadow mode lets in a request
            without a good credential.
        measured: what the response tells of its limits.
        slot: the slot that the request holds at this gate; None: it holds none.
        spent: the units that this gate charged, at all guards that the request passed.
        limits: the named limits that they were charged for.
        outer: the record of the gate outside this one.
        is_rated: whether the rate headers are in the response: a gate inside has written its own.
        has_started: whether the response has begun, so that no refusal can replace it.
        has_ended: whether its last message was sent.
        has_length: whether a WSGI response tells how long it is.
        receive: under ASGI the callable for messages of the client, of the server or of
            :class:`~lockgate.web.disconnects.Incoming`.
        receiving: the calls of it by the application that wait for a message.
        task: the task of an ASGI application whose response may be a stream that ends with its
            key.
        is_watched: whether the response is one of the gate's open streams.
        refusal: why the stream has to end; None: it may continue.
    """

    __slots__ = (
        "guard",
        "has_ended",
        "has_length",
        "has_started",
        "is_rated",
        "is_watched",
        "limits",
        "measured",
        "outer",
        "principal",
        "receive",
        "receiving",
        "refusal",
        "rule",
        "slot",
        "spent",
        "task",
    )

    def __init__(
        self,
        guard: GuardedRoutes,
        rule: Rule,
        principal: Principal | None,
        measured: Measured | None,
    ) -> None:
        self.guard = guard
        self.rule = rule
        self.principal = principal
        self.measured = measured
        self.spent = rule.cost
        self.limits = rule.limits
        self.slot: ConcurrencySlot | None = None
        self.outer: Entry | None = None
        self.task: Task[object] | None = None
        self.refusal: Unauthenticated | None = None
        self.receive: Receive | None = None
        self.receiving = 0
        self.is_rated = self.is_watched = False
        self.has_started = self.has_ended = self.has_length = False

    @property
    def gate(self) -> Gate:
        """The gate that admitted the request."""
        return self.guard.gate

    @property
    def ending(self) -> tuple[Header, ...]:
        """The headers that tell the holder of a rotated key when it ends (D43)."""
        key = None if self.principal is None else self.principal.key
        return sunset_headers(key) if key is not None and key.details is not None else ()

    @property
    def own_slot(self) -> ConcurrencySlot | None:
        """The slot that is taken and freed here; a slot of the same gate outside is only shared."""
        shared = self.within(self.gate)
        return None if shared is not None and shared.slot is self.slot else self.slot

    def within(self, gate: Gate) -> Entry | None:
        """Return the nearest record outside that is of the same gate."""
        outer = self.outer
        while outer is not None and outer.guard.gate is not gate:
            outer = outer.outer
        return outer

    def of(self, guard: GuardedRoutes) -> Entry | None:
        """Return this record, or the one outside it, that a guard made."""
        entry: Entry | None = self
        while entry is not None and entry.guard is not guard:
            entry = entry.outer
        return entry

    def spent_budget(self) -> Measured | None:
        """Return the spent budget of an address, here or at a gate outside, that the endpoint of a
        public rule has to tell; None: none is spent, or limits are only watched."""
        entry: Entry | None = self
        while entry is not None:
            measured = entry.measured
            if entry.rule.answers_refusals and measured is not None and not measured[1].allowed:
                return None if entry.guard.shadow else measured
            entry = entry.outer
        return None

    def watch(self, caller: RequestView) -> None:
        """Have the response end with its key, or with the session of its agent."""
        principal, streams = self.principal, self.guard.streams
        assert principal is not None and streams is not None, "or the response is no stream"
        holder = principal.key or agent_session(self.gate, principal, caller)
        if holder is None:
            self.task = None  # The session of a person.
        else:
            self.is_watched = True
            streams.add(self, holder)

    def end(self, refusal: Unauthenticated) -> None:
        """End the stream: cancel its task, or under WSGI let its next part raise the refusal."""
        if self.task is None:
            self.refusal = refusal
            return
        with suppress(RuntimeError):  # The event loop has ended, and the stream with it.
            self.task.get_loop().call_soon_threadsafe(self._cancel, refusal)

    def _cancel(self, refusal: Unauthenticated) -> None:
        if self.task is not None:
            self.refusal = refusal
            self.task.cancel()

    def unwatch(self) -> bool:
        """Let the stream continue, whatever becomes of its key: it is over for the gate.

        Returns:
            Whether its task was cancelled to end the stream, and for no other reason.
        """
        task, self.task, self.is_watched = self.task, None, False
        if self.guard.streams is not None:
            self.guard.streams.open.pop(self, None)
        return task is not None and self.refusal is not None and task.uncancel() == 0

    def leave(self, held: MutableMapping[str, Any]) -> None:
        """Take the record out of a scope or environment: the application has answered.

        The next gate that is given the same scope is beside this one, not inside it.
        """
        if self.outer is None:
            held.pop(ENTRY, None)
        else:
            held[ENTRY] = self.outer


def mark_rated(entry: Entry | None) -> None:
    """Tell a gate, and all gates outside it, that the response has its rate headers."""
    while entry is not None:
        entry.is_rated = True
        entry = entry.outer


def entry_in(held: Mapping[str, Any]) -> Entry | None:
    """Return the record of the innermost gate in a scope or environment."""
    entry: Entry | None = held.get(ENTRY)
    return entry


def gate_in(held: Mapping[str, Any]) -> Gate | None:
    """Return the innermost gate that admitted a scope or environment."""
    entry = entry_in(held)
    return None if entry is None else entry.gate


def principal_of(held: Mapping[str, Any]) -> Principal | None:
    """Return the caller as the innermost gate found it; None where no credential was needed."""
    entry = entry_in(held)
    return None if entry is None else entry.principal


def charged_rule(held: Mapping[str, Any]) -> Rule | None:
    """Return the rule that the innermost gate charged; None: there is no gate."""
    entry = entry_in(held)
    return None if entry is None else entry.rule
