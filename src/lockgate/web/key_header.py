"""The guard of a gate that takes keys from a second header (D35)."""

from collections.abc import Mapping

from ..core.access_rule import Rule
from ..errors import InvalidFormat, MissingAuth, Refusal
from ..gate import Gate
from .entry import Entry
from .guard import Guard
from .request import RequestView
from .shadow import Shadow, shadow_mode
from .watching_guard import WatchingGuard


class KeyHeaderGuard(Guard):
    """Admits a key from ``WebOptions(key_header=)`` as if it came as ``Authorization: Bearer``.

    All that follows sees that value, so caches know a key by both headers as one. A separate class,
    so that gates without such a header search for none.
    """

    async def enter(self, caller: RequestView) -> Entry:
        name = self.gate.key_header
        assert name is not None, "or the gate has an ordinary guard"
        # A second value of either header, or one of each, is refused as two keys (D18).
        caller.authorizations = [
            *caller.authorizations,
            *(b"Bearer " + value for value in caller.header(name)),
        ]
        return await super().enter(caller)

    def _refused(self, refusal: Refusal, caller: RequestView, rule: Rule) -> Entry:
        if isinstance(refusal, MissingAuth | InvalidFormat):
            name = (self.gate.key_header or b"").decode().title()
            refusal.message += f" Or send the key alone as '{name}: <API key>'."
        return super()._refused(refusal, caller, rule)


class _WatchingKeyHeaderGuard(KeyHeaderGuard, WatchingGuard):
    """Does both."""


def guard_of(
    gate: Gate,
    rules: Mapping[str, Rule | str] | None,
    *,
    host: str | None,
    shadow: Shadow | None,
) -> Guard:
    """Return the guard that suits a gate.

    Args:
        gate: as for :class:`Guard`, like ``rules`` and ``host``.
        rules: by ``"METHOD /path"``, what a request must bring.
        host: the one host that the rules without a host are for; None: every host.
        shadow: what is only watched; None: nothing.

    Raises:
        ConfigurationError: as :class:`Guard`, or ``shadow`` is no mode.
    """
    has_header, mode = gate.key_header is not None, shadow_mode(shadow)
    if mode is None:
        return (KeyHeaderGuard if has_header else Guard)(gate, rules, host=host)
    watching = _WatchingKeyHeaderGuard if has_header else WatchingGuard
    return watching(gate, rules, host=host, shadow=mode)
