"""Admission by one script, which verifies this process's key hint.

A process keeps a key hint for each key that it has admitted, which says in which slot the key is
and what it may do. ``admit.lua`` compares the hint with the record, charges all windows and counts
the usage in one step, so most admissions take one round trip. The script answers with one of

- bytes, first the verdict: admitted, limited, or expired (the key, or a temporary limit);
- a list, the fresh record, if the hint differs; nothing was charged, and the process tries again;
- nil, if the request was sent before and may have been charged then.
"""

from collections.abc import Iterable
from time import monotonic
from typing import Any, Final, cast

from redis.exceptions import AskError, ClusterDownError, RedisError, TryAgainError

from ...core.allowed_addresses import contains
from ...core.api_keys import ApiKey, KeyState
from ...core.bounded_dict import BoundedDict
from ...core.fast_tuples import new_tuple
from ...core.key_format import Token
from ...core.limit_windows import LimitWindows
from ...core.limits import Limit, bound
from ...core.plans import Plan, PlanBook
from ...core.quota_leases import LeaseRequest
from ...sync import together
from ..answers import (
    REFUSED_BY_STATE,
    UNKNOWN,
    Admission,
    OutcomeUnknown,
    PartUnavailable,
    Verdict,
    holder_of,
    reading_state,
)
from ..resilience.circuit_breaker import CircuitBreakers
from ..runtime.per_loop import PerLoop
from .admission_codec import (
    ADMITTED,
    EXPIRED,
    NO_USAGE,
    read_admission,
    read_cost,
    read_instant_of_answer,
    read_promise,
    read_request,
    renewed_request,
    write_request,
)
from .codec import RECORDS, read_claim, read_usage
from .error_hints import LossReport
from .key_hints import ADMIT, UNLIMITED, KeyHint
from .key_names import ORGANIZATION, REMOVED, fields_of, slot_of
from .ledger import Ledgers
from .quota_lease_codec import (
    read_granted,
    write_lease_request,
)
from .transport.client import RedisClient
from .transport.commands import Call, Script, command, number, told_in
from .transport.failures import Split, reraise

ADD_USAGE: Final = Script("keys.lua", "add_usage", ORGANIZATION)

_ADMITTED: Final = Verdict.ADMITTED
_USAGE_OF_EXPIRED: Final = slice(9, None)


class Admissions(Ledgers):
    """Admission, beside the calls to ledgers."""

    clients: PerLoop[RedisClient]
    _nodes: CircuitBreakers
    _key_hints: BoundedDict[str, KeyHint]
    _losses: LossReport
    _is_cluster: bool

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
                call = self._call(key_hint, named, lease, begun, request)
            elif lease is not None:
                call = self._call(key_hint, None, lease, begun, request)
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
                answer = await self._admit_after(failure, key_hint, plan, named, lease)
            if type(answer) is bytes and (verdict := answer[0]) < EXPIRED:
                granted = None
                if lease is not None and named is None:
                    answer, granted = read_granted(answer, lease)
                reading, requests, last = read_admission(answer, named)
                if named is not None and named.quotas:
                    named = named.at(reading.now, key_hint.owner)
                key = new_tuple(ApiKey, key_hint.fields + (requests, last))  # noqa: RUF005 - it goes by a list
                judged = _ADMITTED
                if verdict != ADMITTED:
                    judged = Verdict.LIMITED
                    granted = read_promise(answer, reading, cost, key_hint.id)
                return new_tuple(Admission, (judged, key, plan, reading, named, granted))
            outcome = await self._admit_again(token, key_hint, plans, call, answer, named, lease)
            if isinstance(outcome, Admission):
                return outcome
            key_hint = outcome
        return UNKNOWN

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
        named: LimitWindows | None,
        lease: LeaseRequest | None,
    ) -> Any:
        """Repeat a call by parts whose keys are on two nodes; raise any other failure of a call.

        Raises:
            StoreError: the failure, translated.
        """
        if isinstance(failure, Split):
            return await self._admit_by_parts(key_hint, plan, failure.call, named, lease)
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
        call = self._call(key_hint, named, lease, begun, request)
        answer = await self._ask(call, key_hint.owner)
        if answer is None:
            raise OutcomeUnknown("this request may have been admitted before")
        if type(answer) is not bytes or answer[0] >= EXPIRED:
            return None
        granted = None
        if lease is not None and named is None:
            answer, granted = read_granted(answer, lease)
        reading, requests, last = read_admission(answer, named)
        verdict = Verdict.ADMITTED if answer[0] == ADMITTED else Verdict.LIMITED
        granted = granted or read_promise(answer, reading, read_cost(call.text), key_hint.id)
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

    def _call(
        self,
        key_hint: KeyHint,
        named: LimitWindows | None,
        lease: LeaseRequest | None,
        begun: bytes,
        request: bytes,
    ) -> Call:
        """Return the call of an admission.

        Args:
            key_hint: the hint of the key.
            named: the named limits that it is charged to.
            lease: the leases to settle, and the one to grant.
            begun: the start of a call without both.
            request: the end of a call.
        """
        if named is not None or lease is not None:
            asked = b"" if lease is None else write_lease_request(lease)
            begun = key_hint.asking(self._names.place(key_hint.owner), asked, named, begun)
        return Call(key_hint.slot, begun + request, ADMIT, True, True)

    async def _admit_by_parts(
        self,
        key_hint: KeyHint,
        plan: Plan,
        call: Call,
        named: LimitWindows | None,
        lease: LeaseRequest | None,
    ) -> Any:
        """Do the work of :data:`ADMIT` one Redis key at a time, with the same answer. Leases are
        settled, and none is granted.

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
        asked = b"" if lease is None else write_lease_request(lease)
        parts = key.organization, plan.windows, named, asked, request, holder_of(key, plan)
        answer, told = await self._hit_by_parts(*parts)
        if answer is None:
            return None
        if answer[0] == ADMITTED and not is_again:
            values = b"", b"", *fields_of(key.id), b"1", number(told_in(answer))
            usage = await self._ask(place.call(ADD_USAGE, *values)) or usage
        return answer + (usage or NO_USAGE) + told

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


def _owner_of(claim: bytes | None) -> tuple[str, str] | None:
    """Return the organization and id in the claim of a handle; None: there is no such key."""
    return None if claim is None or claim == REMOVED else read_claim(claim)[:2]


def _of_one_slot(failure: Exception) -> bool:
    """Return whether a failure concerns one slot, moving or unserved, and not its server."""
    if isinstance(failure, ClusterDownError):  # Also raised where the whole Cluster is down.
        return "slot" in str(failure)
    return isinstance(failure, PartUnavailable | AskError | TryAgainError)
