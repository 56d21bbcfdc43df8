"""Admission by one script, which verifies this process's key hint.

A process keeps a key hint for each key that it has admitted, which says in which slot the key is
and what it may do. ``admit.lua`` compares the hint with the record, charges all windows and counts
the usage in one step, so most admissions take one round trip. The script answers with one of

- bytes, first the verdict: admitted, limited, or expired (the key, or a temporary limit);
- a list, the fresh record, if the hint differs; nothing was charged, and the process tries again;
- nil, if the request was sent before and may have been charged then.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from math import inf
from time import monotonic
from typing import Any, Final, cast

from redis.exceptions import AskError, ClusterDownError, RedisError, TryAgainError

from ...clock import wall_clock
from ...core.allowed_addresses import contains
from ...core.api_keys import ApiKey, KeyState
from ...core.bounded_dict import BoundedDict
from ...core.fast_tuples import new_tuple
from ...core.key_format import Token
from ...core.limit_hits import combined
from ...core.limit_windows import LimitWindows
from ...core.limits import Limit, bound
from ...core.plans import Plan, PlanBook
from ...core.quota_leases import LeaseRequest, QuotaLeases, Settlement, live
from ...core.sliding_window import Reading, Window
from ...sync import together
from ..answers import (
    REFUSED_BY_STATE,
    UNKNOWN,
    Admission,
    OutcomeUnknown,
    PartUnavailable,
    Verdict,
    reading_state,
)
from ..base import Store
from ..resilience.circuit_breaker import CircuitBreakers
from ..runtime.per_loop import PerLoop
from .admission_codec import (
    ADMITTED,
    ANOTHER_PERIOD,
    EXPIRED,
    LIMITED,
    NO_USAGE,
    charging,
    limiting,
    read_admission,
    read_instant,
    read_instant_of_answer,
    read_limited,
    read_limits,
    read_reading,
    read_request,
    renewed_request,
    size_of_limits,
    write_request,
)
from .codec import RECORDS, read_claim, read_usage
from .error_hints import LossReport
from .key_hints import ADMIT, ADMIT_LEASED, ADMIT_LIMITED, UNLIMITED, KeyHint
from .key_names import ORGANIZATION, REMOVED, Names, Place, fields_of, slot_of
from .quota_lease_codec import (
    NOTHING_GRANTED,
    read_granted,
    read_leases,
    write_lease_request,
    write_settled,
)
from .transport.client import RedisClient
from .transport.commands import Call, Script, arguments, command, number, told_in
from .transport.failures import Split, reraise

_HIT: Final = Script("hit.lua")
_PEEK: Final = Script("peek.lua")
_HIT_LIMITED: Final = Script("hit_limited.lua")
_HIT_LIMITS: Final = Script("hit_limits.lua")
_SETTLE_LEASES: Final = Script("settle_leases.lua")
_QUOTA_LEASES: Final = Script("quota_leases.lua", None, ("windows",), repeatable=True)
ADD_USAGE: Final = Script("keys.lua", "add_usage", ORGANIZATION)

_ADMITTED: Final = Verdict.ADMITTED
_CHARGE_ARGUMENTS: Final = 5
_SETTLE_ARGUMENTS: Final = 6
_LIMITED_ARGUMENTS: Final = 7
_ALONE_ARGUMENTS: Final = 7
_ALONE_HEAD: Final = 9
"""The bytes of the verdict and the instant in an answer of ``hit_limits.lua``."""
_USAGE_OF_EXPIRED: Final = slice(9, None)


class Admissions(Store):
    """The verbs of :class:`~lockgate.stores.base.WindowStore`, and admission."""

    clients: PerLoop[RedisClient]
    _names: Names
    _nodes: CircuitBreakers
    _key_hints: BoundedDict[str, KeyHint]
    _losses: LossReport
    _is_cluster: bool
    grants_leases = True
    _clock_ahead = 0
    """Microseconds by which the server's clock is ahead of this process's, where that matters."""

    @abstractmethod
    async def _ask(self, call: Call, organization: str | None = None) -> Any:
        """Make a call about an organization and return its reply.

        Raises:
            StoreError: the server refused, or no reply came.
            UnreadableState: the stored state of the organization cannot be read.
        """

    async def admit(  # noqa: PLR0912, PLR0915 - each further coroutine costs a microsecond
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        now: int | None = None,
        address: str | None = None,
        limits: tuple[Limit, ...] = (),
        lease: LeaseRequest | None = None,
    ) -> Admission:
        """Admit a request; with ``lease`` as :meth:`admit_leased` does."""
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
            if key_hint.addresses and (
                address is None or not contains(key_hint.addresses, address)
            ):
                outcome = await self._refuse_address(token, key_hint, plans, now, address)
                if isinstance(outcome, Admission):
                    return outcome
                key_hint = outcome
                continue
            charged = key_hint.charged
            if charged[0] is not plans:
                charged = key_hint.under(plans, now)
            _, plan, mark, begun, ends_at, own = charged
            request = write_request(now, cost, ends_at, mark)
            call = new_tuple(Call, (key_hint.slot, begun + request, ADMIT, True, True, 1, None))
            is_limited = limits or own is not UNLIMITED
            named = bound(limits + own[0], key_hint.id, own[1]) if is_limited else None
            if named is not None:
                if named.quotas:
                    named = self._in_periods(named, now, key_hint.owner)
                call = self._limited(key_hint, named, begun, request)
                if lease is not None and lease.settled:
                    await self.settle_leases(key_hint.owner, plan.windows, lease.settled, now)
                lease = None
            elif lease is not None:
                call = _leased(key_hint, lease, begun, request)
            is_calm, asked_at = not nodes.failing, monotonic()
            try:
                if is_calm:
                    answer = await client.ask(call)
                    if type(answer) is not bytes and isinstance(answer, Exception):
                        answer = await client.retry(call, answer)
                else:
                    answer = await self._ask(call, key_hint.owner)
            except (RedisError, OSError) as failure:
                if is_calm:
                    self._report_failure(client, call, failure, asked_at)
                answer = await self._admit_after(failure, key_hint, plan, cost, named, lease)
            if type(answer) is bytes and (verdict := answer[0]) < EXPIRED:
                granted = None
                if lease is not None:
                    answer, granted = read_granted(answer, lease)
                reading, requests, last = read_admission(answer, named)
                if named is not None and named.quotas:
                    named = named.at(reading.now, key_hint.owner)
                key = new_tuple(ApiKey, key_hint.fields + (requests, last))  # noqa: RUF005 - it goes by a list
                judged = _ADMITTED if verdict == ADMITTED else Verdict.LIMITED
                return new_tuple(Admission, (judged, key, plan, reading, named, granted))
            outcome = await self._admit_again(token, key_hint, plans, call, answer, named, lease)
            if isinstance(outcome, Admission):
                return outcome
            key_hint = outcome
        return UNKNOWN

    async def admit_leased(
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        lease: LeaseRequest,
        now: int | None = None,
        address: str | None = None,
    ) -> Admission:
        return await self.admit(token, cost, plans, now, address, lease=lease)

    async def _admit_again(
        self,
        token: Token,
        key_hint: KeyHint,
        plans: PlanBook,
        call: Call,
        answer: object,
        named: LimitWindows | None,
        lease: LeaseRequest | None,
    ) -> Admission | KeyHint:
        """Handle an answer that neither admits nor limits.

        Returns:
            The admission; or the hint with which to make the request again.

        Raises:
            OutcomeUnknown: an earlier call of the request may have been charged.
        """
        if answer is None:
            raise OutcomeUnknown("this request may have been admitted before")
        if isinstance(answer, bytes):
            return await self._admit_ended(key_hint, plans, call, answer, named, lease) or key_hint
        kept = cast(list[bytes | None], answer)
        return await self._refresh_hint(token, key_hint, plans, *kept) or UNKNOWN

    async def _admit_after(
        self,
        failure: RedisError | OSError,
        key_hint: KeyHint,
        plan: Plan,
        cost: int,
        named: LimitWindows | None,
        lease: LeaseRequest | None,
    ) -> Any:
        """Repeat a call by parts whose keys are on two nodes; raise any other failure of a call.

        Raises:
            StoreError: the failure, translated.
        """
        if isinstance(failure, Split):
            return await self._admit_by_parts(key_hint, plan, failure.call, cost, named, lease)
        owner = key_hint.owner
        reraise(failure, owner, self._names.place(owner).removal)

    async def _admit_ended(
        self,
        key_hint: KeyHint,
        plans: PlanBook,
        call: Call,
        expired: bytes,
        named: LimitWindows | None,
        lease: LeaseRequest | None,
    ) -> Admission | None:
        """Refuse an expired key; if a temporary limit or a period has ended, repeat the request in
        the present ones.

        The request keeps its id: if an earlier call of it was charged and its reply was lost, it is
        not charged again (D33).

        Returns:
            The admission; None: the key or its plan has changed meanwhile.
        """
        at = read_instant_of_answer(expired)
        if expired[0] == EXPIRED:
            key = key_hint.key(*read_usage(expired[_USAGE_OF_EXPIRED]))
            if key.expires_at is not None and key.expires_at <= at:
                return Admission(REFUSED_BY_STATE[KeyState.EXPIRED], key)
        elif named is not None:
            named = self._in_present_periods(named, expired, key_hint.owner)
        _, plan, mark, begun, ends_at, _ = key_hint.under(plans, at)
        request = renewed_request(call.text, ends_at, mark)
        call = call._replace(text=begun + request)
        if named is not None:
            call = self._limited(key_hint, named, begun, request)
        elif lease is not None:
            call = _leased(key_hint, lease, begun, request)
        answer = await self._ask(call, key_hint.owner)
        if answer is None:
            raise OutcomeUnknown("this request may have been admitted before")
        if type(answer) is not bytes or answer[0] >= EXPIRED:
            return None
        granted = None
        if lease is not None:
            answer, granted = read_granted(answer, lease)
        reading, requests, last = read_admission(answer, named)
        verdict = Verdict.ADMITTED if answer[0] == ADMITTED else Verdict.LIMITED
        return Admission(verdict, key_hint.key(requests, last), plan, reading, named, granted)

    async def _refuse_address(
        self,
        token: Token,
        key_hint: KeyHint,
        plans: PlanBook,
        now: int | None,
        address: str | None,
    ) -> Admission | KeyHint:
        """Refuse a client that the allow-list of a hint does not have, if the record agrees.

        Returns:
            The refusal; or the hint of a record that has changed, with which to admit.
        """
        key = key_hint.key()
        if address is not None:
            place = self._names.place(key.organization)
            kept = record, usage, placed = await self._read_record(key.organization, key.id)
            if not key_hint.is_still(place, record, placed):
                return await self._refresh_hint(token, key_hint, plans, *kept) or UNKNOWN
            key = key_hint.key(*read_usage(usage))
            if key.expires_at is not None and key.expires_at <= (
                await self.now() if now is None else now
            ):
                return Admission(REFUSED_BY_STATE[KeyState.EXPIRED], key)
        return Admission(Verdict.ELSEWHERE, key)

    def _in_periods(self, named: LimitWindows, now: int | None, organization: str) -> LimitWindows:
        """Return named limits in the periods of a call, by the server's clock as this process
        knows it. A script that finds another period answers ``ANOTHER_PERIOD``."""
        if not named.quotas:
            return named
        return named.at(wall_clock() + self._clock_ahead if now is None else now, organization)

    def _in_present_periods(
        self, named: LimitWindows, answer: bytes, organization: str
    ) -> LimitWindows:
        """Return named limits in the periods of the server's clock, by an answer of the verdict
        ``ANOTHER_PERIOD``; name the periods of later calls by that clock."""
        at = read_instant_of_answer(answer)
        self._clock_ahead = at - wall_clock()
        return named.at(at, organization)

    def _limited(
        self, key_hint: KeyHint, named: LimitWindows, begun: bytes, request: bytes
    ) -> Call:
        """Return the call of an admission that is charged to named limits.

        Args:
            key_hint: the hint of the key.
            named: the windows of the named limits.
            begun: the start of a call without them.
            request: the end of a call.
        """
        begun = key_hint.limited(self._names.place(key_hint.owner), named, begun)
        return Call(key_hint.slot, begun + request, ADMIT_LIMITED, True, True)

    async def _admit_by_parts(
        self,
        key_hint: KeyHint,
        plan: Plan,
        call: Call,
        cost: int,
        named: LimitWindows | None,
        lease: LeaseRequest | None,
    ) -> Any:
        """Do the work of :data:`ADMIT`, :data:`ADMIT_LIMITED` or :data:`ADMIT_LEASED` one Redis key
        at a time, with the same answer. Leases are settled, and none is granted.

        While a slot moves, its keys may be on two nodes. Each call below names a single one, which
        Redis finds on either. A revocation after the first call counts as one during this request.
        The windows are charged in one step. The key's usage is one request short if a later step
        fails, or if the first reply was lost and the request may have been counted.
        """
        request, is_again = read_request(call.text)
        key = key_hint.key()
        place = self._names.place(key.organization)
        kept = record, usage, placed = await self._read_record(key.organization, key.id)
        if not key_hint.is_still(place, record, placed):
            return [*kept]
        if lease is not None and lease.settled:
            now = read_instant(request)
            await self.settle_leases(key.organization, plan.windows, lease.settled, now)
        answer, told = await self._hit_by_parts(
            key.organization, plan.windows, request, cost, named
        )
        if answer is None:
            return None
        if answer[0] == ADMITTED and not is_again:
            values = b"", b"", *fields_of(key.id), b"1", number(told_in(answer))
            usage = await self._ask(place.call(ADD_USAGE, *values)) or usage
        answer += (usage or NO_USAGE) + told
        return answer if lease is None else answer + NOTHING_GRANTED

    async def _hit_by_parts(
        self,
        organization: str,
        windows: tuple[Window, ...],
        request: bytes,
        cost: int,
        named: LimitWindows | None,
    ) -> tuple[bytes | None, bytes]:
        """Charge the windows, and named limits after them, one Redis key at a time.

        The named limits are read first, so that they rarely refuse a request for which the windows
        have been charged; then these are charged for nothing.

        Returns:
            The answer of ``hit.lua`` with the verdict of all, and what the named limits tell.
        """
        place, start = self._names.place(organization), charging(windows).start
        if named is None:
            return await self._ask(_request(_HIT, place, start, request)), b""
        now = read_instant(request)
        told = await self._ask_alone(organization, named, now, cost, is_hit=False)
        script = _HIT if told[0] == ADMITTED else _PEEK
        answer: bytes | None = await self._ask(_request(script, place, start, request))
        if answer is not None and script is _HIT and answer[0] == ADMITTED:
            told = await self._ask_alone(organization, named, now, cost, is_hit=True)
        if answer is not None and told[0] != ADMITTED:
            answer = bytes((LIMITED,)) + answer[1:]
        return answer, told[_ALONE_HEAD:]

    def _report_failure(
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
        self,
        organization: str,
        windows: tuple[Window, ...],
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        if limits is not None:
            return await self._hit_limited(organization, windows, cost, now, limits)
        answer = await self._charge(_HIT, organization, windows, cost, now)
        if answer is None:
            raise OutcomeUnknown("this hit may have been counted before")
        return read_reading(answer)

    async def peek(
        self,
        organization: str,
        windows: tuple[Window, ...],
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        of_limits = None
        if limits is not None:
            alone = await self._ask_alone(organization, limits, now, 1, is_hit=False)
            of_limits = read_limits(alone)
            if not windows:
                return of_limits
            now = of_limits.now
        reading = read_reading(await self._charge(_PEEK, organization, windows, 1, now))
        return reading if of_limits is None else combined(reading, of_limits)

    async def settle_leases(
        self,
        organization: str,
        windows: tuple[Window, ...],
        settled: Sequence[Settlement],
        now: int | None = None,
    ) -> None:
        place = self._names.place(organization)
        start, mark = charging(windows)
        begun = _SETTLE_LEASES.start(_SETTLE_ARGUMENTS) + arguments(b"1", place.windows)
        request = write_request(now, 0, inf, mark)
        text = b"".join((begun, arguments(write_settled(settled)), start, request))
        await self._ask(Call(place.slot, text, _SETTLE_LEASES, True), organization)

    async def quota_leases(self, organization: str, now: int | None = None) -> QuotaLeases:
        call = self._names.place(organization).call(_QUOTA_LEASES, number(now))
        kept = await self._ask(call, organization)
        return () if kept is None else live(read_leases(kept[1]), int(kept[0]))

    async def _hit_limited(
        self,
        organization: str,
        windows: tuple[Window, ...],
        cost: int,
        now: int | None,
        limits: LimitWindows,
    ) -> Reading:
        place = self._names.place(organization)
        if not windows:
            alone = await self._ask_alone(organization, limits, now, cost, is_hit=True)
            return read_limits(alone)
        start, mark = charging(windows)
        request = write_request(now, cost, inf, mark)
        begun = _HIT_LIMITED.start(_LIMITED_ARGUMENTS + len(limits.fields))
        names = arguments(b"2", place.windows, place.limits)
        limits = self._in_periods(limits, now, organization)
        try:
            while True:
                text = b"".join((begun, names, limiting(limits), start, request))
                call = Call(place.slot, text, _HIT_LIMITED, True, True)
                answer = await self._ask(call, organization)
                if answer is None or answer[0] != ANOTHER_PERIOD:
                    break
                limits = self._in_present_periods(limits, answer, organization)
            told = b"" if answer is None else answer[-size_of_limits(limits) :]
            answer = answer and answer[: -len(told)]
        except Split as failure:
            request, _ = read_request(failure.call.text)
            answer, told = await self._hit_by_parts(organization, windows, request, cost, limits)
        if answer is None:
            raise OutcomeUnknown("this hit may have been counted before")
        return read_limited(read_reading(answer), told)

    async def _ask_alone(
        self,
        organization: str,
        limits: LimitWindows,
        now: int | None,
        cost: int,
        *,
        is_hit: bool,
    ) -> bytes:
        """Charge named limits alone, or read them; return the answer of ``hit_limits.lua``."""
        place = self._names.place(organization)
        limits = self._in_periods(limits, now, organization)
        while True:
            alone = _alone(place, limits, now, cost, is_hit=is_hit)
            answer: bytes = await self._ask(alone, organization)
            if answer[0] != ANOTHER_PERIOD:
                return answer
            limits = self._in_present_periods(limits, answer, organization)

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
        return _owner_of(await self._ask(command(slot_of(name), b"GET", name, repeatable=True)))

    async def _owners(self, handles: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return organization and id of the keys with these handles, as far as there are some.

        Asks for those without a key hint: a Cluster at once for each, any other server in one call.
        """
        owners, unknown = dict[str, tuple[str, str]](), list[str]()
        for handle in handles:
            hint = self._key_hints.get(handle)
            if hint is None:
                unknown.append(handle)
            else:
                owners[handle] = hint.owner, hint.id
        if not unknown:
            return owners
        if self._is_cluster:
            found = await together(map(self._claimed, unknown))
        else:
            names = map(self._names.handle, unknown)
            claims = await self._ask(command(0, b"MGET", *names, repeatable=True))
            found = [*map(_owner_of, claims)]
        pairs = zip(unknown, found, strict=True)
        owners.update((handle, owner) for handle, owner in pairs if owner is not None)
        return owners

    async def _read_record(
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
        record, usage, placed = await self._read_record(organization, id)
        if claimed is None or record is None:
            token.compare_with_dummy()
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


def _owner_of(claim: bytes | None) -> tuple[str, str] | None:
    """Return the organization and id in the claim of a handle; None: there is no such key."""
    return None if claim is None or claim == REMOVED else read_claim(claim)[:2]


def _leased(key_hint: KeyHint, lease: LeaseRequest, begun: bytes, request: bytes) -> Call:
    """Return the call of an admission that settles leases and asks for one.

    Args:
        key_hint: the hint of the key.
        lease: what is asked.
        begun: the start of a call without it.
        request: the end of a call.
    """
    begun = key_hint.leased(write_lease_request(lease), begun)
    return Call(key_hint.slot, begun + request, ADMIT_LEASED, True, True)


def _alone(place: Place, limits: LimitWindows, now: int | None, cost: int, *, is_hit: bool) -> Call:
    """Return a call that charges named limits alone, or reads them."""
    start, mark = charging(())
    begun = _HIT_LIMITS.start(_ALONE_ARGUMENTS + len(limits.fields))
    values = arguments(b"1", place.limits) + limiting(limits) + arguments(b"%d" % is_hit)
    request = write_request(now, cost, inf, mark)
    return Call(place.slot, begun + values + start + request, _HIT_LIMITS, not is_hit)


def _of_one_slot(failure: Exception) -> bool:
    """Return whether a failure concerns one slot, moving or unserved, and not its server."""
    if isinstance(failure, ClusterDownError):  # Also raised where the whole Cluster is down.
        return "slot" in str(failure)
    return isinstance(failure, PartUnavailable | AskError | TryAgainError)
