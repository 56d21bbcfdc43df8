"""Whole 429 responses, kept for stores in this process: a flood costs less than an admission.

Such a store's ``local_version`` changes with every key and plan, so a response that was kept under
another version is never sent. Shared stores have a cache of their own, by the change counter:
:class:`~lockgate.stores.resilience.refusal_cache.RefusalCache`.
"""

from typing import Final, NamedTuple

from ..core.access_rule import Rule
from ..core.bounded_dict import BoundedDict
from ..core.key_format import Token
from ..errors import RateLimitExceeded
from ..gate import Gate
from ..metrics import Tally
from ..principal import Principal
from .operations.operation import Reply
from .operations.table import Repeated, refused
from .shadow import Kind, kind_of

_AT_MOST: Final = 10_000


class _CachedResponse(NamedTuple):
    since: int
    until: int
    """Instants between which the response stays valid, in microseconds; ``until`` is excluded."""
    local_version: object
    """The store's version before it refused the request."""
    answer: Reply
    kind: Kind
    tally: Tally
    """Counts the refusals of this kind."""
    organization: str


class CachedResponses:
    """Responses to refused requests of cost 1 without named limits, by the handle of the key.

    The cache only refuses. A key is looked up after its secret was verified.

    Args:
        gate: has the clock, the events, and the store with its ``local_version``.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.known: Final = BoundedDict[str, _CachedResponse](_AT_MOST)

    async def peek(self, token: Token, rule: Rule) -> None:
        """Repeat the response to a key, if it is still valid; an observer gets a new refusal.

        Raises:
            Repeated: with the response.
        """
        known, gate = self.known.get(token.handle), self._gate
        if known is None or not rule.shares_refusals or gate.events.heard:
            return
        now = await gate.now()
        if known.local_version is gate.store.local_version and known.since <= now < known.until:
            known.tally.number += 1
            recorder = gate.recorder
            if recorder is not None:
                kind, owner = known.kind, (known.organization, token.handle)
                recorder.refuse(*owner, kind.window or kind.code, kind.code, at=now)
            raise Repeated(known.answer)
        self.known.pop(token.handle, None)

    def remember(
        self, token: Token, rule: Rule, refusal: RateLimitExceeded, local_version: object
    ) -> None:
        """Keep the response to a refusal until the seconds in its headers change.

        Args:
            token: the key that was refused.
            rule: the access rule of the request.
            refusal: the refusal.
            local_version: the store's, read before it refused; None: the store is shared.
        """
        organization = refusal.organization
        if local_version is None or not rule.shares_refusals or refusal.until <= refusal.since:
            return
        if self._gate.error_body is not None:
            return  # The answer depends on the request.
        principal = refusal.principal
        if isinstance(principal, Principal) and principal.key and principal.key.addresses:
            return  # The answer depends on the client.
        if isinstance(principal, Principal) and principal.plan.kept_retries:
            return  # The next caller with the key gets another second.
        assert organization is not None, "a key was refused"
        answer = refused(refusal, self._gate, None)
        kind = kind_of(refusal)
        tally = self._gate.metrics.tally(kind.code, kind.plan, kind.window)
        until = refusal.until
        if refusal.measured is not None:  # A temporary limit may be the lower one.
            until = int(min(until, refusal.measured[0].until))
        self.known[token.handle] = _CachedResponse(
            refusal.since, until, local_version, answer, kind, tally, organization
        )
