"""Answers to keys over their limit, ready to be given again: a flood costs less than service would.

This is for stores that keep everything in this process, where each change is seen at once. One that
is shared remembers refusals behind its own face
(:class:`~lockgate.stores.denials.Remembering`).
"""

from typing import Final, NamedTuple

from ..errors import RateLimitExceeded
from ..gate import Gate
from ..rules.access_rule import Rule
from ..rules.bounded import Bounded
from ..rules.credentials import Token
from .api import Repeated, refused
from .endpoint import Reply

_AT_MOST: Final = 10_000


class _Denial(NamedTuple):
    since: int
    until: int
    edition: object
    """The store's before it refused: after another one, it is asked."""
    answer: Reply


class Denials:
    """What was answered to requests of cost 1, by the handle of the key, while it holds.

    Nobody is let in by it, and the key's secret was recognised before.

    Args:
        gate: tells the time, whether anybody hears of refusals, and what its store has seen.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.known: Final = Bounded[str, _Denial](_AT_MOST)

    async def look(self, token: Token, rule: Rule) -> None:
        """Refuse a key as before, if nothing has changed but the time, and that does not show.

        Raises:
            Repeated: nothing has.
        """
        known = self.known.get(token.handle)
        if known is None or rule.cost > 1 or self._gate.events.heard:
            return
        now = await self._gate.now()
        if known.edition is self._gate.store.edition and known.since <= now < known.until:
            raise Repeated(known.answer)
        self.known.pop(token.handle, None)

    def remember(
        self, token: Token, rule: Rule, refusal: RateLimitExceeded, edition: object
    ) -> None:
        """Remember a refusal for as long as it stands.

        Args:
            token: the key that was refused.
            rule: what the request had to bring.
            refusal: the answer.
            edition: the store's, read before it refused; None: it does not see every change.
        """
        if edition is None or rule.cost > 1 or refusal.until <= refusal.since:
            return
        answer = refused(refusal)
        self.known[token.handle] = _Denial(refusal.since, refusal.until, edition, answer)
