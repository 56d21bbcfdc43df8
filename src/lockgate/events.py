"""What happened, for whoever watches: refusals, failures, keys created and revoked."""

import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final, NamedTuple

from .metrics import Metrics

logger = logging.getLogger("lockgate")

_ADMITTED_EVERY: Final = 10.0
"""Seconds between two events ``admitted``."""


class Event(NamedTuple):
    """Something worth knowing. The fields hold no credential, ever (R7).

    Names: ``refused`` and ``shadowed`` (``code``, ``method``, ``path``, ``address``, ``route``, the
    rule as it was named, ``wait``, whole seconds until another attempt, and ``window`` where one is
    full, each else None; where a key or session was good ``organization``, ``key``, the key's id,
    and ``plan``), ``admitted`` (``plan``, ``requests``, ``seconds``: how many since it was told
    last, at most once in ten seconds, only to an observer),
    ``shadow_summary`` (``seconds``, ``requests``, ``most``, texts),
    ``store_failed`` and ``internal_error`` (``error``, the exception's type), ``unreadable_state``
    (``organization``, ``error``, ``remedy``); of a shared store ``breaker_opened``
    (``store``, ``error``), ``breaker_tried`` (``store``), ``breaker_closed`` (``store``, ``away``,
    seconds), of a Redis Cluster each with the server as well (``node``, as ``host:port``),
    ``limits_fell_back`` (``mode``) and ``limits_restored`` (``decisions``, how many were local);
    ``redis_evicts`` (``server``,
    ``policy``, ``maxmemory``, bytes: limits do not hold there); ``key_created``,
    ``key_adopted``, ``key_updated``, ``key_revoked`` and ``plain_key_used`` (``organization``,
    ``id``), ``key_rotated`` (with ``successor``, an id, as well),
    ``key_rehashed`` and ``key_sealed`` (with ``scheme`` as well), ``key_row_rejected`` (``reason``,
    ``organization``, ``id``, ``prefix``, ``scheme``, ``remedy``),
    ``plan_unknown`` (``plan``, ``default``, ``remedy``),
    ``streams_ended`` (``organization``, ``id`` of the key, ``code``, ``streams``, how many),
    ``key_row_unreadable`` (``id``, ``error``), ``rows_sealed`` (``sealed``, ``refused``, how many),
    ``keys_removed`` (``number``), ``forwarded_header_ignored`` (``peer``),
    ``route_mismatch`` (``method``, ``path``, ``charged``, ``needed``),
    ``slot_refused`` (``organization``, ``job``, ``limit``, ``used``) and ``slot_lost``
    (``organization``, ``job``), ``signing_keys_fetched`` (``keys``, how many) and
    ``signing_keys_failed`` (``error``). Of accounts: ``registered`` (``organization``, ``type``),
    ``signed_in`` and ``signed_out`` (``organization``), ``claimed`` (``organization``, ``user``,
    ``revoked``, ``token_kept``), ``account_removed`` (``organization``), ``billing_failed``
    (``organization``, ``error``), ``approval_failed`` (``error``), ``registrations_exhausted``
    (``limit``: the budget of the whole service is spent), ``registration_refused``,
    ``sign_in_refused`` and ``claim_refused`` (``code``, ``address``).
    """

    name: str
    fields: Mapping[str, object]


Observer = Callable[[Event], None]


class Events:
    """Tells every event to the log (logger ``lockgate``) and to the observer, if there is one.

    Attributes:
        metrics: counts them.
        admit: counts an admitted request by the name of its plan; for an observer, also tells of
            admissions from time to time.
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
        """Whether anybody would hear an ordinary event; asked where telling one takes work."""
        return self._observer is not None or logger.isEnabledFor(logging.DEBUG)

    def _admit(self, plan: str) -> None:
        self.metrics.admit(plan)
        if self._clock() - self._told_at >= _ADMITTED_EVERY:
            self.tell_admitted()

    def tell_admitted(self) -> None:
        """Tell an observer how many requests of each plan were admitted since it was told last."""
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
        """Count, log and report an event. An observer that raises is logged and goes no further."""
        self.metrics.happen(name, fields)
        if logger.isEnabledFor(level):
            text = " ".join(f"{k}={v!r}" for k, v in fields.items())
            logger.log(level, "%s %s", name, text, extra={"event": name, "fields": fields})
        if self._observer is not None:
            try:
                self._observer(Event(name, fields))
            except Exception:
                logger.exception("the observer failed at %s", name)
