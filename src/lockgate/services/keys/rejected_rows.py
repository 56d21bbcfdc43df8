"""Rejected rows: report them in the log and to the observer, with the remedy."""

import logging
from time import monotonic
from typing import Final

from ...core.accounts import Account
from ...core.bounded_dict import BoundedDict
from ...core.digests import Peppers
from ...core.row_seals import Rejected, Rejection, judge_seal, rejected_by_seal
from ...events import Events

_TOLD_AT_MOST: Final = 1000
_AGAIN: Final = 60.0
"""Seconds after which a scheme or pepper is reported again."""
_BY_SCHEME: Final = {Rejection.PLAIN, Rejection.PEPPER, Rejection.SCHEME}
REMEDIES: Final = {
    Rejection.PLAIN: (
        "Digests without a pepper are refused once peppers are configured. If such keys are from "
        "before the first pepper, give KeyOptions(accept_plain=True) until they have moved; if "
        "not, another writer of the database made this row."
    ),
    Rejection.PEPPER: (
        "Another process uses a pepper that this one does not know. Before a new pepper is used, "
        "give it to every process as KeyOptions(next_pepper=...); one that was dropped belongs to "
        "the end of Gate(peppers=[...]) until the keys that were made with it are replaced."
    ),
    Rejection.SCHEME: (
        "This process cannot compare digests of this scheme: install the release of lockgate that "
        "wrote the row, or give this gate the KeyOptions(legacy=...) of the process that "
        "imported it."
    ),
    Rejection.UNSEALED: (
        "Rows without a seal are refused once peppers are configured. If such rows are from before "
        "that, give KeyOptions(accept_unsealed=True) and call gate.keys.seal(); if not, another "
        "writer of the database made this row."
    ),
    Rejection.SEAL: (
        "This row was changed or copied by another writer than lockgate. Find out who writes to "
        "the database, revoke the key and create another."
    ),
}


class RejectedRows:
    """Reports rows that are treated as if they were missing, at ERROR with the remedy.

    A scheme or pepper that is not accepted is reported once a minute while keys under it are
    presented; a row without a seal or with a wrong one once per process. More would fill the log.

    Args:
        events: receives ``key_row_rejected``.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._told = BoundedDict[tuple[Rejection, str], float](_TOLD_AT_MOST)

    def report(self, rejected: Rejected) -> None:
        """Report a row, unless one like it was reported lately."""
        why, organization, id, prefix, scheme = rejected
        by_scheme = why in _BY_SCHEME
        about = why, scheme if by_scheme else id
        reported, now = self._told.get(about), monotonic()
        if reported is not None and (not by_scheme or now < reported + _AGAIN):
            return
        self._told[about] = now
        self._events.emit(
            "key_row_rejected",
            logging.ERROR,
            reason=why.value,
            organization=organization,
            id=id,
            prefix=prefix,
            scheme=scheme,
            remedy=REMEDIES[why],
        )


def seal_is_valid(account: Account, peppers: Peppers, rejections: RejectedRows) -> bool:
    """Return whether the row of an account has a good seal; report it if not."""
    why = judge_seal(account, peppers)
    if why is not None:
        rejections.report(rejected_by_seal(account, why))
    return why is None
