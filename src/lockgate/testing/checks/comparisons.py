"""Checks that an answer takes the same work whether or not a key exists (K10)."""

from collections.abc import Awaitable, Callable

from ...core.key_format import Token
from ...core.quota_leases import LeaseRequest
from ...core.timestamps import DAY, SECOND
from ...stores.answers import Admission, Verdict
from ..factories import NOW, book
from .callers import Callers
from .check import Check, crowded

_CALLERS = 8
_PLANS = book(None)


class CountedToken(Token):
    """A key as presented, which counts its comparisons with a digest."""

    __slots__ = ("comparisons",)
    comparisons: int

    def __init__(self, token: Token) -> None:
        for name in Token.__slots__:
            setattr(self, name, getattr(token, name))
        self.comparisons = 0

    def matches(self, scheme: str, digest: bytes) -> bool:
        self.comparisons += 1
        return super().matches(scheme, digest)


@crowded("K10", "admission")
async def an_unknown_handle_costs_the_comparison_of_a_wrong_secret(crowd: Callers) -> None:
    """Also the second time, of a removed key, and of callers who ask at once."""
    store, factory = crowd.store, crowd.factory
    wrong, removed, unknown = factory.key(), factory.key(), factory.key()
    await store.insert(factory.draft(key=wrong)._replace(digest=bytes(32)), None, NOW)
    await store.insert(factory.draft(key=removed, lifetime=SECOND), None, NOW)
    cursor = None
    while (step := await store.remove_ended(DAY, NOW + 2 * DAY, cursor)).cursor is not None:
        cursor = step.cursor

    async def plainly(token: Token, _: int) -> Admission:
        return await store.admit(token, 1, _PLANS, NOW)

    async def leased(token: Token, number: int) -> Admission:
        asked = LeaseRequest(f"{number:016x}", 9, SECOND)
        return await store.admit(token, 1, _PLANS, NOW, lease=asked)

    for what, key in (("a wrong secret", wrong), ("a removed key", removed), ("no key", unknown)):
        for admit in (plainly, leased):
            for _ in range(2):
                await _see_compared(crowd, what, CountedToken(factory.token(key)), admit, 0)
        tokens = [CountedToken(factory.token(key)) for _ in range(_CALLERS)]

        async def work(index: int, what: str = what, tokens: list[CountedToken] = tokens) -> None:
            await _see_compared(crowd, what, tokens[index], plainly, index)

        await crowd.at_once(_CALLERS, work)


async def _see_compared(
    crowd: Callers,
    what: str,
    token: CountedToken,
    admit: Callable[[Token, int], Awaitable[Admission]],
    number: int,
) -> None:
    verdict = (await admit(token, number)).verdict
    crowd.see(verdict is Verdict.UNKNOWN, f"The handle of {what} is {verdict.value}.", "K1")
    said = f"An answer to the handle of {what} came without a comparison of digests."
    crowd.see(token.comparisons > 0, said)


CHECKS: tuple[Check, ...] = (an_unknown_handle_costs_the_comparison_of_a_wrong_secret,)
