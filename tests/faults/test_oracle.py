"""The oracle counts only certain admissions, independently of the order of the log."""

from __future__ import annotations

from .campaign import Figures, broken, cells, rows, worst
from .oracle import (
    Answer,
    Change,
    Counts,
    Log,
    Refused,
    Revoked,
    admitted_though_revoked,
    back,
    beyond,
    counts,
    refused,
)
from .scenarios import SCENARIOS


def answers(*outcomes: tuple[float, float, str]) -> list[Answer]:
    return [Answer(started, ended, outcome, "org", "key") for started, ended, outcome in outcomes]


def test_w1_admissions_count_in_the_worst_window_of_any_position() -> None:
    some = answers(*((at, at + 0.5, "admitted") for at in (0.0, 50.0, 55.0, 59.0, 61.0, 200.0)))
    assert beyond(3, some) == 1
    assert beyond(4, some) == 0
    # A request sent before the window may have been admitted before it.
    assert beyond(1, answers((0.0, 59.0, "admitted"), (1.0, 60.5, "admitted"))) == 0
    assert beyond(0, answers((0.0, 1.0, "limited"))) == 0


def test_refusals_last_from_the_first_503_to_the_next_other_answer() -> None:
    some = answers(
        (0.0, 0.5, "unavailable"),
        (1.0, 1.2, "admitted"),
        (2.0, 2.1, "refused at once"),
        (2.2, 2.4, "unavailable"),
        (2.5, 3.5, "limited"),
    )
    assert refused(some, 0.7, "org") == Refused(2, 4, 1.4)
    assert refused(some[:1], 0.0, "org") == Refused(1, 1, 0.0)
    assert refused(some, 0.7, "another") == Refused(2, 4, 0.0)


def test_k4_an_admission_is_wrong_if_it_began_after_the_revocation_was_answered() -> None:
    change = Change(1.0, 2.0, True, "key")
    before = Log(answers((1.9, 2.1, "admitted"), (2.5, 2.6, "revoked")), [change], 0.0)
    assert admitted_though_revoked([before]) == Revoked(0, 0.0, 0)
    after = Log(answers((2.1, 2.25, "admitted"), (3.0, 3.5, "revoked")), [], 0.0)
    assert admitted_though_revoked([before, after]) == Revoked(1, 0.25, 0)
    ever = Log(answers((2.1, 2.2, "revoked"), (3.0, 3.5, "admitted")), [], 0.0)
    assert admitted_though_revoked([before, ever]) == Revoked(1, 1.5, 1)
    failed = Log(answers((3.0, 3.5, "admitted")), [change._replace(answered=False)], 0.0)
    assert admitted_though_revoked([failed]) == Revoked(0, 0.0, 0)


def test_k7_only_a_503_that_may_count_explains_a_count_without_an_answer() -> None:
    some = answers((0, 1, "admitted"), (0, 1, "unavailable"), (0, 1, "refused at once"))
    log = Log(some, [], 0.0)
    assert counts([log], {"key": 2}) == Counts(0, 0, 1)
    assert counts([log], {"key": 3}) == Counts(0, 1, 1)
    assert counts([log, log], {"key": 1}) == Counts(1, 0, 2)


def test_the_slowest_key_decides_when_all_are_back() -> None:
    one, other = answers((0, 5, "admitted"), (0, 7, "admitted"))
    log = Log([one, other._replace(key="other"), one._replace(ended=9)], [], 0.0)
    assert back(log, ["key"], since=4.0) == 1.0
    assert back(log, ["key", "other"], since=6.0) == 3.0


def test_a_broken_promise_is_named_and_the_worst_run_is_shown() -> None:
    scenario = next(each for each in SCENARIOS if each.promise.refused == 0)
    clean = Figures(
        scenario.servers,
        scenario.name,
        "alone",
        Refused(0, 100, 0.0),
        Refused(0, 100, 0.0),
        0,
        20,
        0,
        Revoked(0, 0.0, 0),
        Counts(0, 0, 100),
        None,
        (),
        0.0,
    )
    assert broken(scenario, clean) == []
    bad = clean._replace(concerned=Refused(2, 100, 0.5), beyond=1, revoked=Revoked(3, 1.5, 1))
    both = worst([clean, bad])
    assert broken(scenario, bad) == [
        "503: 2, promised 0",
        "beyond the limit: 1, promised 0",
        "admitted though revoked: 3, promised 0",
    ]
    [(name, row)] = rows([both]).items()
    assert name.endswith(", alone")
    assert (row[0], row[3]) == ("2 of 200, 0.50 s", "1")
    assert "3 in 1.50 s, 1 for good" in cells(bad)
