"""Each check of instants, of many rows, of lost replies and of deaths detects its mutants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from lockgate.testing import Broken
from lockgate.testing.certify import checks_of, drive, hold
from lockgate.testing.checks import Check, deaths, instants, lost, many

from . import mutants_of_deaths as dying
from . import mutants_of_instants as stamping
from . import mutants_of_lost_replies as repeating
from . import mutants_of_many as paging
from .mutants import Mutant

CHECKS: Final = (*instants.CHECKS, *many.CHECKS, *lost.CHECKS, *deaths.CHECKS)
DETECTED: Final[Sequence[tuple[type[Mutant], str]]] = (
    (stamping.StampsBeforeItsTurn, "no_admission_has_a_later_instant_than_the_end_of_its_key"),
    (stamping.StampsWhatItRead, "no_admission_has_a_later_instant_than_the_end_of_its_key"),
    (stamping.StampsBeforeItsTurn, "records_are_numbered_in_the_order_of_their_instants"),
    (stamping.RecordsAtTheEnd, "records_are_numbered_in_the_order_of_their_instants"),
    *(
        (mutant, "thousands_of_keys_are_read_counted_ended_and_removed")
        for mutant in (
            *(paging.ClaimsAPageOfKeys, paging.CapsAPageOfKeys, paging.ListsTwoPages),
            *(paging.CountsOneStep, paging.SearchesAThousandKeys, paging.RemovesInOneStep),
        )
    ),
    (repeating.ForgetsCommits, "a_change_whose_reply_is_lost_is_made_once"),
    (repeating.RecordsRepetitions, "a_change_whose_reply_is_lost_is_made_once"),
    (repeating.StampsRepetitions, "a_change_whose_reply_is_lost_is_made_once"),
    (repeating.EndsWalksAtRepetitions, "a_walk_whose_replies_are_lost_removes_each_key_once"),
    (repeating.RemembersOneCommit, "a_commit_is_repeated_behind_fifteen_others"),
    (dying.RotatesByTwoCommits, "a_process_that_dies_leaves_a_whole_change_or_none"),
    (dying.RegistersByTwoCommits, "a_process_that_dies_leaves_a_whole_change_or_none"),
    (dying.ClaimsByManyCommits, "a_process_that_dies_leaves_a_whole_change_or_none"),
)


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_the_base_of_mutants_makes_no_mistake(check: Check) -> None:
    drive("none", hold(check, stamping.InOneStep()))


@pytest.mark.parametrize(("mutant", "name"), DETECTED)
def test_a_check_detects_a_mutant(mutant: type[Mutant], name: str) -> None:
    (check,) = [check for check in checks_of() if check.name == name]
    with pytest.raises(Broken) as found:
        drive(mutant.io, hold(check, mutant()))
    assert found.value.sentence in mutant.killed_by


def test_each_check_detects_a_mutant() -> None:
    assert {name for _, name in DETECTED} == {check.name for check in CHECKS}
