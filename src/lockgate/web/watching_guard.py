"""Shadow mode: a guard that lets requests through, and reports what it would have refused."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Final, cast

from ..core.access_rule import Rule
from ..core.limits import Limit
from ..core.sliding_window import Reading
from ..errors import InsufficientScope, NotFound, RateLimitExceeded, Refusal
from ..gate import Gate
from ..principal import Principal
from ..services.reservations.slots import ConcurrencySlot
from ..stores.runtime.process_hooks import at_process_end
from .entry import Entry
from .guard import Guard
from .request import RequestView
from .sessions import Presented
from .shadow import Shadow, Watch, kind_of


class WatchingGuard(Guard):
    """Counts and reports requests that a :class:`Guard` would refuse, and lets them through.

    It takes no slots. lockgate's own operations stay closed.

    Args:
        gate: as for :class:`Guard`, like ``rules`` and ``host``.
        rules: by ``"METHOD /path"``, what a request must bring.
        host: the one host that the rules without a host are for; None: every host.
        shadow: what is only watched: ``limits``, with credentials and scopes enforced, or ``all``.

    Raises:
        ConfigurationError: as for :class:`Guard`.
    """

    def __init__(
        self,
        gate: Gate,
        rules: Mapping[str, Rule | str] | None = None,
        *,
        host: str | None = None,
        shadow: Shadow,
    ) -> None:
        super().__init__(gate, rules, host=host)
        self.shadow = shadow
        self._watches_all: Final = shadow == "all"
        if self._watches_all:
            self._without_gate = "served"
        self._watch: Final = Watch(gate.events)
        at_process_end(self)  # A WSGI server has no other end.

    def verify_presence(self, entry: Entry | None) -> None:
        with self._passing():
            super().verify_presence(entry)

    def ended(self) -> None:
        self._watch.tell()

    def _mismatched(self, charged: Rule, needed: Rule, caller: RequestView) -> None:
        with self._passing():
            super()._mismatched(charged, needed, caller)

    def _passing(self) -> AbstractContextManager[None]:
        """Return a context that a NotFound does not leave where everything is only watched."""
        return suppress(NotFound) if self._watches_all else nullcontext()

    def _rule_of(self, caller: RequestView) -> Rule:
        return self._match(caller) if self._watches_all else super()._rule_of(caller)

    def _check_method(self, rule: Rule, principal: Principal, caller: RequestView) -> None:
        if not self._watches_all:
            super()._check_method(rule, principal, caller)

    def _slot(self, rule: Rule, principal: Principal) -> ConcurrencySlot | None:
        return None

    def _proving(self, rule: Rule, address: str) -> AbstractContextManager[None]:
        return super()._proving(rule, address) if rule.own else nullcontext()

    async def _charge_subject(
        self,
        kind: str,
        subject: str,
        limits: Iterable[Limit],
        caller: RequestView,
        rule: Rule,
    ) -> Reading | None:
        try:
            return await super()._charge_subject(kind, subject, limits, caller, rule)
        except RateLimitExceeded as refusal:
            if rule.own:
                raise
            self._tell(refusal, caller, rule, watched=True)
            return refusal.measured and refusal.measured[1]

    def _refused(self, refusal: Refusal, caller: RequestView, rule: Rule) -> Entry:
        refusal = self._completed(refusal, caller, rule)
        watched = self._lets_in(refusal, rule)
        self._tell(refusal, caller, rule, watched=watched)
        if not watched:
            raise refusal
        principal = cast(Principal | None, refusal.principal)
        if principal is not None and not self._watches_all:
            return self._enforced(caller, rule, principal)
        return Entry(self, rule, principal, refusal.measured)

    def _lets_in(self, refusal: Refusal, rule: Rule) -> bool:
        is_watched = self._watches_all or isinstance(refusal, RateLimitExceeded)
        return is_watched and not rule.own

    def _spent(self, refusal: Refusal, reading: Reading, rule: Rule) -> Refusal:
        if self._watches_limits(rule):  # The credential is refused all the same.
            return refusal
        return super()._spent(refusal, reading, rule)

    def _refuse_spent(self, rule: Rule, address: str, shown: Presented | None = None) -> None:
        if not self._watches_limits(rule):
            super()._refuse_spent(rule, address, shown)

    def _watches_limits(self, rule: Rule) -> bool:
        """Return whether credentials are enforced and limits are not."""
        return not (self._watches_all or rule.own)

    def _enforced(self, caller: RequestView, rule: Rule, principal: Principal) -> Entry:
        """Return the entry of a caller past a limit, if all else is as the rule asks."""
        if rule.requires is not None:
            lacking = rule.requires.lacking(principal.scopes)
            if lacking is not None:
                refusal = self.gate.refused(InsufficientScope(lacking), principal)
                return self._refused(refusal, caller, rule)
        return self._admitted(caller, Entry(self, rule, principal, principal[3:]))

    def _tell(
        self, refusal: Refusal, caller: RequestView, rule: Rule, *, watched: bool = False
    ) -> None:
        super()._tell(refusal, caller, rule, watched=watched)
        if watched:
            self._watch.count(kind_of(refusal))
