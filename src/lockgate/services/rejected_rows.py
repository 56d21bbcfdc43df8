"""Rows that are not believed: told to the log and to the observer, with the remedy."""

import logging
from typing import Final

from ..core.accounts import Account
from ..core.bounded_dict import BoundedDict
from ..core.digests import Peppers
from ..core.row_seals import Rejected, Rejection, judge_seal, rejected_by_seal
from ..events import Events

_TOLD_AT_MOST: Final = 1000
_REMEDIES: Final = {
    Rejection.PLAIN: (
        "Digests without a pepper are refused once peppers are configured. If such keys are from "
        "before the first pepper, give Gate(accept_plain=True) until they have moved; if not, "
        "somebody else wrote this row."
    ),
    Rejection.PEPPER: (
        "Another process uses a pepper that this one does not know. Before a new pepper is used, "
        "give it to every process as Gate(next_pepper=...); one that was dropped belongs to the "
        "end of Gate(peppers=[...]) until the keys that were made with it are replaced."
    ),
    Rejection.UNSEALED: (
        "Rows without a seal are refused once peppers are configured. If such rows are from before "
        "that, give Gate(accept_unsealed=True) and call gate.keys.seal(); if not, somebody else "
        "wrote this row."
    ),
    Rejection.SEAL: (
        "Somebody changed this row behind lockgate's back, or copied it. Find out who writes to "
        "the database, revoke the key and create another."
    ),
}


class RejectedRows:
    """Tells of rows that are treated as if they were not there.

    A scheme or pepper that is not accepted is told once for each, a row without a seal or with a
    wrong one once for each key: whatever happens often would fill the log.

    Args:
        events: told ``key_row_rejected``.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._told = BoundedDict[tuple[Rejection, str], None](_TOLD_AT_MOST)

    def report(self, rejected: Rejected) -> None:
        """Tell of a row, if nothing alike was told before."""
        why, organization, id, prefix, scheme = rejected
        by_scheme = why in {Rejection.PLAIN, Rejection.PEPPER}
        about = why, scheme if by_scheme else id
        if about in self._told:
            return
        self._told[about] = None
        self._events.emit(
            "key_row_rejected",
            logging.ERROR,
            reason=why.value,
            organization=organization,
            id=id,
            prefix=prefix,
            scheme=scheme,
            remedy=_REMEDIES[why],
        )


def believed(account: Account, peppers: Peppers, rejections: RejectedRows) -> bool:
    """Whether the row of an account has a good seal; tell of it if not."""
    why = judge_seal(account, peppers)
    if why is not None:
        rejections.report(rejected_by_seal(account, why))
    return why is None
