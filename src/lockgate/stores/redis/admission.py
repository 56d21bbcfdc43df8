"""Admission by one script, which verifies this process's key hint.

A process keeps a key hint for each key that it has admitted. ``admit.lua`` compares the hint with
the record, charges all windows and counts the usage in one step. If the hint differs, the script
returns the fresh record without charging.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from math import inf
from time import monotonic
from typing import Any, Final, cast

from redis.exceptions import AskError, ClusterDownError, RedisError, TryAgainError

from ...core.api_keys import ApiKey, KeyState
from ...core.bounded_dict import BoundedDict
from ...core.key_format import Token
from ...core.plans import Plan, PlanBook
from ...core.sliding_window import Reading, Window
from ..base import (
    REFUSED_BY_STATE,
    UNKNOWN,
    Admission,
    OutcomeUnknown,
    PartUnavailable,
    Store,
    Verdict,
    reading_state,
)
from ..resilience.circuit_breaker import CircuitBreakers
from ..runtime.per_loop import PerLoop
from .admission_codec import (
    ADMITTED,
    EXPIRED,
    NO_USAGE,
    charging,
    read_admission,
    read_reading,
    read_request,
    write_request,
)
from .codec import RECORDS, read_claim, read_usage
from .error_hints import LossReport
from .key_hints import ADMIT, KeyHint
from .key_names import ORGANIZATION, REMOVED, Names, Place, fields_of, slot_of
from .transport.client import RedisClient
from .transport.commands import Call, Script, arguments, command, number, told_in
from .transport.failures import Split, reraise

_HIT: Final = Script("hit.lua")
_PEEK: Final = Script("peek.lua")
ADD_USAGE: Final = Script("keys.lua", "add_usage", ORGANIZATION)

_ADMITTED: Final = Verdict.ADMITTED
_CHARGE_ARGUMENTS: Final = 5
_USAGE_OF_EXPIRED: Final = slice(9, None)

# A NamedTuple's own constructor takes three times as long.
_api_key = cast(Callable[[type[ApiKey], Iterable[object]], ApiKey], tuple.__new__)  # pyright: ignore[reportUnknownMemberType] - typeshed's own Self
_admission = cast(Callable[[type[Admission], Iterable[object]], Admission], tuple.__new__)  # pyright: ignore[reportUnknownMemberType] - typeshed's own Self
_call = cast(Callable[[type[Call], Iterable[object]], Call], tuple.__new__)  # pyright: ignore[reportUnknownMemberType] - typeshed's own Self


class Admissions(Store):
    """The verbs of :class:`~lockgate.stores.base.WindowStore`, and admission."""

    clients: PerLoop[RedisClient]
    _names: Names
    _nodes: CircuitBreakers
    _key_hints: BoundedDict[str, KeyHint]
    _losses: LossReport

    @abstractmethod
    async def _ask(self, call: Call, organization: str | None = None) -> Any:
        """Make a call about an organization and return its reply.

        Raises:
            StoreError: the server refused, or no reply came.
            UnreadableState: the stored state of the organization cannot be read.
        """

    async def admit(  # noqa: PLR0912 - each further coroutine costs a microsecond
        self, token: Token, cost: int, plans: PlanBook, now: int | None = None
    ) -> Admission:
        key_hint = self._key_hints.get(token.handle)
        if key_hint is None or (
            token.sealed != key_hint.sealed and not token.accepts(key_hint.key())
        ):
            key_hint = await self._find_hint(token, plans)
        client, nodes = self.clients.here(), self._nodes
        while key_hint is not None:
            if key_hint.revoked is not None:
                self._key_hints.pop(token.handle, None)
                return Admission(REFUSED_BY_STATE[KeyState.REVOKED], key_hint.revoked)
            charged = key_hint.charged
            if charged[0] is not plans:
                charged = key_hint.under(plans)
            _, plan, mark, begun = charged
            text = begun + write_request(now, cost, key_hint.expires_at, mark)
            call = _call(Call, (key_hint.slot, text, ADMIT, True, True, 1, None))
            watched, asked_at = bool(nodes.failing), monotonic()
            try:
                if watched:
                    answer = await self._ask(call, key_hint.unused[2])
                else:
                    answer = await client.ask(call)
                    if isinstance(answer, Exception):
                        answer = await client.retry(call, answer)
            except (RedisError, OSError) as failure:
                if not watched:
                    self._judge(client, call, failure, asked_at)
                if not isinstance(failure, Split):
                    reraise(failure, key_hint.unused[2])
                answer = await self._admit_by_parts(key_hint, plan, failure.call)
            if type(answer) is not bytes:
                if answer is None:
                    raise OutcomeUnknown("this request may have been admitted before")
                if type(answer) is list:
                    key_hint = await self._refresh_hint(
                        token, key_hint, plans, *cast(list[bytes | None], answer)
                    )
                    continue
            verdict = answer[0]
            if verdict == EXPIRED:
                key = key_hint.key(*read_usage(answer[_USAGE_OF_EXPIRED]))
                return Admission(REFUSED_BY_STATE[KeyState.EXPIRED], key)
            reading, requests, last = read_admission(answer)
            key = _api_key(ApiKey, key_hint.unused + (requests, last))  # noqa: RUF005 - it goes by a list
            judged = _ADMITTED if verdict == ADMITTED else Verdict.LIMITED
            return _admission(Admission, (judged, key, plan, reading))
        return UNKNOWN

    async def _admit_by_parts(self, key_hint: KeyHint, plan: Plan, call: Call) -> Any:
        """Do the work of :data:`ADMIT` one Redis key at a time, with the same answer.

        While a slot moves, its keys may be on two nodes. Each call below names a single one, which
        Redis finds on either. A revocation after the first call counts as one during this request.
        The windows are charged in one step. The key's usage is one request short if a later step
        fails, or if the first reply was lost and the request may have been counted.
        """
        request, is_again = read_request(call.text)
        key = key_hint.key()
        place = self._names.place(key.organization)
        kept = record, usage, placed = await self._kept(key.organization, key.id)
        if not key_hint.is_still(place, record, placed):
            return [*kept]
        answer: bytes | None = await self._ask(
            _request(_HIT, place, charging(plan.windows).start, request), key.organization
        )
        if answer is None:
            return None
        if answer[0] == ADMITTED and not is_again:
            values = *fields_of(key.id), b"1", number(told_in(answer))
            usage = await self._ask(place.call(ADD_USAGE, *values)) or usage
        return answer + (usage or NO_USAGE)

    def _judge(
        self,
        client: RedisClient,
        call: Call,
        failure: BaseException,
        asked_at: float,
        tried: str | None = None,
    ) -> None:
        """Report the failure of a call to the circuit breaker of the server that has its slot.

        Args:
            client: made the call.
            call: the call.
            failure: its exception.
            asked_at: when it was made, in seconds of the monotonic clock.
            tried: the server that the call probed; None: the call was no probe.
        """
        nodes, node = self._nodes, client.node(call.slot)
        if tried is not None and tried != node:
            nodes.dropped(tried, trying=True)
        trying = tried == node
        if not isinstance(failure, RedisError | OSError) or _of_one_slot(failure):
            nodes.dropped(node, trying)
        elif nodes.failed(node, failure, asked_at, trying):
            client.abandon(call.slot)

    async def hit(
        self, organization: str, windows: tuple[Window, ...], cost: int, now: int | None = None
    ) -> Reading:
        answer = await self._charge(_HIT, organization, windows, cost, now)
        if answer is None:
            raise OutcomeUnknown("this hit may have been counted before")
        return read_reading(answer)

    async def peek(
        self, organization: str, windows: tuple[Window, ...], now: int | None = None
    ) -> Reading:
        return read_reading(await self._charge(_PEEK, organization, windows, 1, now))

    async def _charge(
        self,
        script: Script,
        organization: str,
        windows: tuple[Window, ...],
        cost: int,
        now: int | None,
    ) -> Any:
        place = self._names.place(organization)
        start, mark = charging(windows)
        request = write_request(now, cost, inf, mark)
        return await self._ask(_request(script, place, start, request), organization)

    async def _claimed(self, handle: str) -> tuple[str, str] | None:
        """Return the organization and id of the key with this handle, or None."""
        name = self._names.handle(handle)
        claim = await self._ask(command(slot_of(name), b"GET", name, repeatable=True))
        return None if claim is None or claim == REMOVED else read_claim(claim)[:2]

    async def _kept(
        self, organization: str, id: str
    ) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Return a key's record and usage, and the plan assignment of its organization."""
        place = self._names.place(organization)
        values = place.organization, *fields_of(id), b"plan"
        record, usage, placed = await self._ask(
            command(place.slot, b"HMGET", *values, repeatable=True), organization
        )
        return record, usage, placed

    async def _find_hint(self, token: Token, plans: PlanBook) -> KeyHint | None:
        """Read a key of which this process has no hint that fits, in two round trips.

        An unknown handle costs as much as a wrong secret (K10).
        """
        handle = token.handle
        claimed = await self._claimed(handle)
        organization, id = claimed or (handle, handle)
        record, usage, placed = await self._kept(organization, id)
        if claimed is None or record is None:
            token.matches_nobody()
            return None
        return self._remember(token, self._hint(organization, record, usage, placed, plans))

    async def _refresh_hint(
        self,
        token: Token,
        key_hint: KeyHint,
        plans: PlanBook,
        record: bytes | None,
        usage: bytes | None,
        placed: bytes | None,
    ) -> KeyHint | None:
        """Replace a hint that the script found stale; None: the key no longer fits the token."""
        self._key_hints.pop(token.handle, None)
        if record is None:  # The key was removed, or Redis lost data.
            if not self._losses.holds_copies:
                await self._check_loss(token.handle)
            return await self._find_hint(token, plans)
        organization = key_hint.key().organization
        return self._remember(token, self._hint(organization, record, usage, placed, plans))

    async def _check_loss(self, handle: str) -> None:
        """Report a loss of data if the key with this handle is gone without having been removed.

        A removal first marks the handle, or takes the instant out of its claim.
        """
        name = self._names.handle(handle)
        claim = await self._ask(command(slot_of(name), b"GET", name, repeatable=True))
        if claim is None or (claim != REMOVED and read_claim(claim).since is not None):
            self._losses.report()

    def _hint(
        self,
        organization: str,
        record: bytes,
        usage: bytes | None,
        placed: bytes | None,
        plans: PlanBook,
    ) -> KeyHint:
        place = self._names.place(organization)
        with reading_state(organization, RECORDS):
            return KeyHint(place, record, usage, placed, plans)

    def _remember(self, token: Token, key_hint: KeyHint) -> KeyHint | None:
        if not token.accepts(key_hint.key()):
            return None
        self._key_hints[token.handle] = key_hint
        return key_hint


def _request(script: Script, place: Place, start: bytes, request: bytes) -> Call:
    """Return a call that touches only the windows of an organization."""
    begun = script.start(_CHARGE_ARGUMENTS) + arguments(b"1", place.windows) + start
    return Call(place.slot, begun + request, script, True, True)


def _of_one_slot(failure: Exception) -> bool:
    """Return whether a failure concerns one slot, moving or unserved, and not its server."""
    if isinstance(failure, ClusterDownError):  # Also raised where the whole Cluster is down.
        return "slot" in str(failure)
    return isinstance(failure, PartUnavailable | AskError | TryAgainError)
