"""Events: report refusals, failures and changes of keys to the log and to an observer."""

import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final, NamedTuple

from .metrics import Metrics

logger = logging.getLogger("lockgate")

_ADMITTED_EVERY: Final = 10.0
"""Seconds between two events ``admitted``."""
_WARNED_EVERY: Final = 60.0
"""Seconds between two equal warnings."""


class Event(NamedTuple):
    """An event: its name and fields. No field ever holds a credential (K2).

    Names: ``refused`` and ``shadowed`` (``code``, ``method``, ``path``, ``address``, ``route``, the
    route of its access rule, ``wait``, whole seconds until another attempt, and ``window``, the
    full window, ``limit_name``, that of the named limit which has it, and ``reason``, ``address``
    for a client off its key's allow-list, each else None;
    for a valid key or session ``organization``, ``key``, the key's id,
    and ``plan``), ``admitted`` (``plan``, ``requests``, ``seconds``: admissions since the previous
    such event, at most once in ten seconds, only for an observer),
    ``shadow_summary`` (``seconds``, ``requests``, ``most``, texts),
    ``store_failed`` and ``internal_error`` (``error``, the exception's type), ``unreadable_state``
    (``organization``, ``error``, ``remedy``); of a shared store ``breaker_opened``
    (``store``, ``error``), ``breaker_tried`` (``store``), ``breaker_closed`` (``store``, ``away``,
    in seconds), each with ``node`` (``host:port``) in a Redis Cluster,
    ``limits_fell_back`` (``mode``) and ``limits_restored`` (``decisions``, how many were local);
    ``redis_evicts`` (``server``,
    ``policy``, ``maxmemory``, bytes: limits do not hold there); ``key_created``,
    ``key_adopted``, ``key_updated``, ``key_revoked`` and ``plain_key_used`` (``organization``,
    ``id``), ``key_rotated`` (with ``successor``, an id, as well),
    ``key_rehashed`` and ``key_sealed`` (with ``scheme`` as well), ``key_row_rejected`` (``reason``,
    ``organization``, ``id``, ``prefix``, ``scheme``, ``remedy``),
    ``plan_unknown`` (``plan``, ``default``, ``remedy``), ``windows_reset`` (``organization``),
    ``streams_ended`` (``organization``, ``id`` of the key, None for an agent's session, ``code``,
    ``streams``, how many),
    ``key_leaked`` (``organization``, ``id``, ``url``, ``source``, ``was_live``, ``revoked``),
    ``leak_report_refused`` (``code``, ``address``), ``leak_signers_failed`` and
    ``leak_notice_failed`` (``error``),
    ``key_row_unreadable`` (``id``, ``error``), ``rows_sealed`` (``sealed``, ``refused``, how many),
    ``keys_removed`` (``number``), ``forwarded_header_ignored`` and
    ``forwarded_header_missing`` (``peer``),
    ``route_mismatch`` (``method``, ``path``, ``charged``, ``needed``),
    ``threshold`` (``organization``, ``plan``, ``window``, ``share``, 80 or 100 %, ``used``,
    ``limit``; see ``docs/usage.md``), ``quota_threshold`` (``organization``, ``limit_name``,
    ``period``, ``share``, ``used``, ``limit``, ``soft``, ``resets_at``),
    ``usage_lost`` (``owners``, how many),
    ``slot_refused`` (``organization``, ``job``, ``limit``, ``used``) and ``slot_lost``
    (``organization``, ``job``), ``hold_refused`` (``organization``, ``limit_name``, ``units``),
    ``hold_overrun`` (``organization``, ``limit_name``, ``held``, ``used``),
    ``hold_uncounted`` (``organization``, ``limit_name``, ``remedy``) and ``hold_lost``
    (``organization``), ``subjects_fell_back`` (``limit_name``, ``an_hour``, ``remedy``),
    ``signing_keys_fetched`` (``keys``, how many) and
    ``signing_keys_failed`` (``error``). Of accounts: ``registered`` (``organization``, ``type``),
    ``signed_in`` and ``signed_out`` (``organization``), ``claimed`` (``organization``, ``user``,
    ``revoked``, ``token_kept``), ``account_removed`` (``organization``), ``billing_failed``
    (``organization``, ``error``), ``approval_failed`` (``error``), ``registrations_exhausted``
    (``limit``, of the whole service), ``registration_refused``,
    ``sign_in_refused`` and ``claim_refused`` (``code``, ``address``). Of a dashboard:
    ``names_failed`` (``error``).
    """

    name: str
    fields: Mapping[str, object]


Observer = Callable[[Event], None]


class OnceAMinute:
    """Let one of many equal warnings through in a minute, so that they do not fill the log."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = monotonic()

    def is_due(self) -> bool:
        """Return whether the latest warning was let through a minute ago, and let this through."""
        now = monotonic()
        if now < self._next:
            return False
        self._next = now + _WARNED_EVERY
        return True


class Events:
    """Report every event to the log (logger ``lockgate``), the metrics and an optional observer.

    Attributes:
        metrics: counts the events.
        admit: counts an admitted request by the name of its plan; with an observer, also emits
            ``admitted``.
    """

    def __init__(
        self,
        observer: Observer | None,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._observer = observer
        self._clock = clock
        self._told_at = clock()
        self._told: dict[str, int] = {}
        self.metrics: Final = Metrics() if metrics is None else metrics
        # Chosen once: admissions that no observer hears of cost only their count.
        self.admit: Final = self.metrics.admit if observer is None else self._admit

    @property
    def heard(self) -> bool:
        """Whether DEBUG events reach a log or an observer; callers skip costly fields if not."""
        return self._observer is not None or logger.isEnabledFor(logging.DEBUG)

    def _admit(self, plan: str) -> None:
        self.metrics.admit(plan)
        if self._clock() - self._told_at >= _ADMITTED_EVERY:
            self.tell_admitted()

    def tell_admitted(self) -> None:
        """Emit ``admitted`` for each plan with admissions since its previous event."""
        if self._observer is None:
            return
        since, self._told_at = self._told_at, self._clock()
        for plan, total in list(self.metrics.admitted.items()):
            requests = total - self._told.get(plan, 0)
            self._told[plan] = total
            if requests:
                seconds = round(self._told_at - since, 1)
                self.emit("admitted", plan=plan, requests=requests, seconds=seconds)

    def emit(self, name: str, level: int = logging.DEBUG, **fields: object) -> None:
        """Count, log and report an event. An observer's exception is logged, not raised."""
        self.metrics.happen(name, fields)
        if logger.isEnabledFor(level):
            text = " ".join(f"{k}={v!r}" for k, v in fields.items())
            logger.log(level, "%s %s", name, text, extra={"event": name, "fields": fields})
        if self._observer is not None:
            try:
                self._observer(Event(name, fields))
            except Exception:
                logger.exception("the observer failed at %s", name)
