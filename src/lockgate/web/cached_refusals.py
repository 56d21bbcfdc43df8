"""Answers to keys over their limit, ready to be given again: a flood costs less than service would.

This is for stores that keep everything in this process, where each change is seen at once. One that
is shared remembers refusals behind its own face
(:class:`~lockgate.stores.resilience.refusal_cache.RefusalCache`).
"""

from typing import Final, NamedTuple

from ..core.access_rule import Rule
from ..core.bounded_dict import BoundedDict
from ..core.key_format import Token
from ..errors import RateLimitExceeded
from ..gate import Gate
from .operations.operation import Reply
from .operations.table import Repeated, refused
from .shadow import Kind, kind_of

_AT_MOST: Final = 10_000


class _CachedRefusal(NamedTuple):
    since: int
    until: int
    local_version: object
    """The store's before it refused: after another one, it is asked."""
    answer: Reply
    kind: Kind
    """How it is counted."""


class CachedRefusals:
    """What was answered to requests of cost 1, by the handle of the key, while it holds.

    Nobody is let in by it, and the key's secret was recognised before.

    Args:
        gate: tells the time, whether anybody hears of refusals, and what its store has seen.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.known: Final = BoundedDict[str, _CachedRefusal](_AT_MOST)

    async def peek(self, token: Token, rule: Rule) -> None:
        """Refuse a key as before, if nothing has changed but the time, and that does not show.

        Raises:
            Repeated: nothing has.
        """
        known = self.known.get(token.handle)
        if known is None or rule.cost > 1 or self._gate.events.heard:
            return
        now = await self._gate.now()
        if (
            known.local_version is self._gate.store.local_version
            and known.since <= now < known.until
        ):
            self._gate.metrics.refuse(known.kind.code, known.kind.plan, known.kind.window)
            raise Repeated(known.answer)
        self.known.pop(token.handle, None)

    def remember(
        self, token: Token, rule: Rule, refusal: RateLimitExceeded, local_version: object
    ) -> None:
        """Remember a refusal for as long as it stands.

        Args:
            token: the key that was refused.
            rule: what the request had to bring.
            refusal: the answer.
            edition: the store's, read before it refused; None: it does not see every change.
        """
        if local_version is None or rule.cost > 1 or refusal.until <= refusal.since:
            return
        answer = refused(refusal)
        self.known[token.handle] = _CachedRefusal(
            refusal.since, refusal.until, local_version, answer, kind_of(refusal)
        )
