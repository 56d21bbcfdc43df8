"""The oracle: judges what processes logged, knowing every answer and when it was given."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

MINUTE = 60.0
"""Seconds of the shortest window."""

ADMITTED = "admitted"
LIMITED = "limited"
REVOKED = "revoked"
UNAVAILABLE = "unavailable"
"""503, by a call that may count."""
REFUSED = "refused at once"
"""503, by a call that was not sent."""
AWAY = frozenset({UNAVAILABLE, REFUSED})
EXPECTED = AWAY | {ADMITTED, LIMITED, REVOKED}


class Answer(NamedTuple):
    """An answer to a request. Instants are of the monotonic clock, which processes share."""

    started: float
    ended: float
    outcome: str
    organization: str
    key: str


class Change(NamedTuple):
    """A call that revokes a key."""

    started: float
    ended: float
    answered: bool
    key: str


class Log(NamedTuple):
    """What one process saw."""

    answers: list[Answer]
    changes: list[Change]
    stall: float
    """The longest time in seconds that the process got no processor."""

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> Log:
        """Read a log from JSON."""
        answers = [Answer(*answer) for answer in kept["answers"]]
        changes = [Change(*change) for change in kept["changes"]]
        return cls(answers, changes, kept["stall"])


class Refused(NamedTuple):
    """The 503 that some organizations got."""

    number: int
    answers: int
    longest: float
    """Seconds from the first 503 to the next other answer, in one process."""


class Revoked(NamedTuple):
    """Keys that were admitted after their revocation was answered."""

    admissions: int
    seconds: float
    """From the answer to the end of the last such admission."""
    lost: int
    """How many keys were still admitted at the end."""


def refused(answers: Iterable[Answer], since: float, steady: str) -> Refused:
    """Count the 503 since an instant, among answers that one process logged.

    Args:
        answers: of the process.
        since: the instant.
        steady: the organization by which the longest time is measured: it is asked for without a
            pause.
    """
    some = [answer for answer in answers if answer.ended > since]
    its = sorted((a for a in some if a.organization == steady), key=lambda answer: answer.ended)
    longest, began = 0.0, None
    for answer in its:
        if answer.outcome in AWAY:
            began = answer.ended if began is None else began
        elif began is not None:
            longest, began = max(longest, answer.ended - began), None
    if began is not None:
        longest = max(longest, its[-1].ended - began)
    return Refused(sum(answer.outcome in AWAY for answer in some), len(some), longest)


def both(one: Refused, other: Refused) -> Refused:
    """Add what two processes counted; the longest time is the worse of the two."""
    longest = max(one.longest, other.longest)
    return Refused(one.number + other.number, one.answers + other.answers, longest)


def beyond(limit: int, answers: Iterable[Answer], window: float = MINUTE) -> int:
    """Count the admissions beyond a limit in the worst window of any position.

    An answer counts in a window if the request began and was answered within it, so none is
    counted that the store may have admitted outside.

    Args:
        limit: of one organization.
        answers: of all processes to this organization.
        window: seconds.
    """
    admitted = sorted(a[:2] for a in answers if a.outcome == ADMITTED)
    most = 0
    for number, (start, _) in enumerate(admitted):
        most = max(most, sum(ended < start + window for _, ended in admitted[number:]))
    return max(0, most - limit)


def revocations(logs: Iterable[Log]) -> dict[str, float]:
    """Give the instants at which revocations were answered, by key."""
    revoked: dict[str, float] = {}
    for log in logs:
        for change in log.changes:
            if change.answered:
                revoked[change.key] = min(change.ended, revoked.get(change.key, inf))
    return revoked


def begun(logs: Iterable[Log]) -> dict[str, float]:
    """Give the instants at which revocations were begun, by key: one that gets 503 may be made."""
    first: dict[str, float] = {}
    for log in logs:
        for change in log.changes:
            first[change.key] = min(change.started, first.get(change.key, inf))
    return first


def admitted_though_revoked(logs: Sequence[Log]) -> Revoked:
    """Find admissions that began after the revocation of their key was answered (K4)."""
    revoked = revocations(logs)
    answers = (answer for log in logs for answer in log.answers)
    wrong = [
        answer
        for answer in answers
        if answer.outcome == ADMITTED and answer.started > revoked.get(answer.key, inf)
    ]
    last: dict[tuple[int, str], Answer] = {}
    for number, log in enumerate(logs):
        last |= {(number, a.key): a for a in sorted(log.answers, key=lambda a: a.ended)}
    lost = {answer.key for answer in wrong if answer in last.values()}
    seconds = max((answer.ended - revoked[answer.key] for answer in wrong), default=0.0)
    return Revoked(len(wrong), seconds, len(lost))


class Counts(NamedTuple):
    """How far counters differ from the answers that were given."""

    lost: int
    """Admissions that were answered and are not counted."""
    doubled: int
    """Counts beyond the answers and the 503 that may have counted."""
    answered: int


def counts(logs: Sequence[Log], counted: Mapping[str, int]) -> Counts:
    """Compare the `requestCount` of each key with the admissions that were answered (K7)."""
    admitted: Counter[str] = Counter()
    unsure: Counter[str] = Counter()
    for log in logs:
        for answer in log.answers:
            admitted[answer.key] += answer.outcome == ADMITTED
            # A request with an unexpected outcome may have counted as well.
            unsure[answer.key] += answer.outcome not in EXPECTED - {UNAVAILABLE}
    lost = sum(max(0, admitted[key] - counted[key]) for key in counted)
    doubled = sum(max(0, counted[key] - admitted[key] - unsure[key]) for key in counted)
    return Counts(lost, doubled, sum(admitted[key] for key in counted))


def back(log: Log, keys: Iterable[str], since: float) -> float:
    """Measure the seconds from an instant to the first admission by each of some keys.

    Admissions count that ended after the instant; the slowest key decides.
    """
    wanted = set(keys)
    first: dict[str, float] = {}
    ends = sorted(a for a in log.answers if a.key in wanted and a.outcome == ADMITTED)
    ends.sort(key=lambda answer: answer.ended)
    for answer in ends[bisect_left([a.ended for a in ends], since) :]:
        first.setdefault(answer.key, answer.ended)
    return max(first.get(key, inf) for key in wanted) - since
