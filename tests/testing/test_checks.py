"""Each check of rows, named limits, holds and quota leases detects a mutant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from lockgate.testing import Broken
from lockgate.testing.certify import checks_of, drive, hold
from lockgate.testing.checks import Part

from . import (
    mutants_of_holds,
    mutants_of_limits,
    mutants_of_names,
    mutants_of_quota_leases,
    mutants_of_rows,
    mutants_of_texts,
)
from .mutants import Mutant, every
from .mutants_of_holds import HoldMutant
from .mutants_of_limits import LimitMutant
from .mutants_of_quota_leases import LeaseMutant, Recalling
from .mutants_of_rows import RowMutant

DETECTED: Final[Mapping[Part, Mapping[str, Sequence[str]]]] = {
    "rows": {
        "RemembersIdsOfUpdates": ("a_repeated_end_of_many_keys_is_answered_alike",),
        "AnswersRepetitionsByTheClock": ("a_repeated_change_is_made_once_and_answered_alike",),
        "FindsItsOwnRowsTaken": ("a_repeated_insertion_finds_none_of_its_rows_taken",),
        "LooksForTheIdOutsideTheLock": ("a_commit_that_is_repeated_at_once_is_made_once",),
        "IgnoresVersions": ("a_commit_with_an_outdated_version_changes_nothing",),
        "ChecksVersionsOutsideTheLock": ("one_of_the_commits_on_one_version_succeeds",),
        "NumbersPages": ("versions_are_alike_by_every_index",),
        "WritesToEndedKeys": ("a_key_must_be_live_at_the_instant_of_the_step",),
        "WritesRowByRow": ("a_new_row_takes_no_handle_or_id_of_another",),
        "CountsRoomBefore": ("room_counts_live_keys_after_the_other_writes",),
        "StampsAtTheReading": ("instants_and_records_are_of_the_step",),
        "StampsKeysAlone": ("each_stamp_becomes_the_instant_of_the_step",),
        "StampsByTheClockOfTheCaller": ("without_an_instant_the_clock_of_the_store_stamps",),
        "RecordsEachCommit": ("a_commit_that_changes_no_row_is_not_recorded",),
        "RevokesTheExpired": ("every_live_key_is_revoked_and_no_other",),
        "WritesUsage": ("a_write_keeps_the_usage_of_a_key",),
        "RemovesBeforeTheInstant": ("keys_and_records_are_removed_by_their_instants",),
        "RemovesWhatWasNamed": ("an_account_is_removed_only_if_it_is_unused_at_the_step",),
        "SkipsTies": ("pages_of_keys_follow_the_order_of_their_index",),
        "SkipsTiesOfAccounts": ("pages_of_accounts_follow_the_order_of_their_index",),
        "ReadsTheLogInclusively": ("pages_of_the_log_follow_its_numbers",),
        "WalksByCount": ("a_walk_finds_each_row_that_stays",),
        "NamesOwnersOfKeys": ("a_walk_names_the_organizations_that_are_due",),
        "SumsUpAllKeys": ("a_walk_sums_up_each_organization",),
    },
    "limits": {
        "ChargesThePlanOfARequestThatALimitRefuses": (
            "a_full_named_limit_refuses",
            "a_cost_above_a_named_limit_waits_its_whole_window",
        ),
        "JudgesTheFirstWindowOnly": (
            "each_window_of_a_named_limit_holds",
            "the_longest_wait_is_told_and_suffices",
        ),
        "ChargesALimitThoughAnotherRefuses": (
            "a_refusal_by_a_named_limit_is_not_charged_to_any_window",
        ),
        "ChargesTheLimitOfARequestThatThePlanRefuses": (
            "a_refusal_by_the_plan_is_not_charged_to_a_named_limit",
        ),
        "CountsWhatItReads": (
            "what_remains_is_told_of_the_plan_alone",
            "peeking_changes_no_named_limit",
        ),
        "SharesCellsByTheGrainOfADay": ("many_hits_share_cells_of_a_named_limit",),
        "CountsAllKeysTogether": ("each_subject_is_counted_by_itself",),
        "TakesDashesForUnderscoresOfLimits": ("names_that_look_alike_are_counted_apart",),
        "UnderscoresLimitWindows": ("ids_that_look_alike_have_separate_named_limits",),
        "CountsAllOrganizationsTogether": ("hostile_ids_have_separate_named_limits",),
        "BeginsAnewWithAnotherNumber": (
            "another_number_keeps_counted_hits",
            "a_changed_calendar_quota_keeps_its_count",
        ),
        "ChargesThePlanForLimitsAlone": ("named_limits_are_charged_without_a_plan",),
        "LocksOutAfterTheClockStepsBack": (
            "a_named_limit_survives_a_clock_that_steps_back",
            "a_plan_is_not_locked_out_by_a_refused_named_limit",
        ),
        "ReadsTheLimitBeforeItsTurn": (
            "overlapping_hits_of_named_limits_are_linearizable",
            "callers_at_once_share_a_named_limit",
            "callers_at_once_cross_each_mark_of_a_quota_once",
            "callers_at_once_share_the_limits_of_a_plan_and_a_key",
        ),
        "NeverBeginsAPeriod": (
            "a_calendar_quota_admits_its_limit_in_each_period",
            "a_full_calendar_quota_waits_for_the_next_period",
            "a_clock_that_steps_back_over_a_boundary_finds_the_count",
        ),
        "RefusesBeyondASoftQuota": ("a_soft_quota_counts_and_refuses_nothing",),
        "HasTheSameMonthsForAllOrganizations": (
            "each_organization_has_the_periods_of_its_contract",
        ),
        "ForgetsAnIdleMonth": ("the_count_of_an_idle_month_stays",),
        "AdmitsWithoutLimits": (
            "an_admission_is_charged_to_calendar_quotas",
            "an_admission_is_charged_to_named_limits",
            "a_revoked_key_is_not_charged_to_named_limits",
        ),
        "KeepsLimitsOnAReset": ("a_reset_empties_named_limits",),
        "HasAnyNumberOfFields": ("fields_are_bounded",),
        "ForgetsTheLimitsOfThePlan": (
            "an_admission_is_charged_to_the_limits_of_its_plan",
            "the_limits_of_a_plan_end_with_the_plan",
        ),
        "ForgetsTheLimitsOfTheKey": (
            "an_admission_is_charged_to_the_limits_of_its_key",
            "changed_limits_of_a_key_hold_from_the_next_admission_on",
        ),
    },
    "holds": {
        "CountsNoHolds": ("units_that_are_held_are_counted_in_full",),
        "TellsNothingOfWhatIsHeld": (
            "budgets_are_read_without_a_change",
            "a_hold_of_a_quota_counts_in_the_present_month",
        ),
        "SettlesByWhatWasHeld": (
            "units_that_were_not_used_are_free_at_once",
            "a_hold_is_settled_once",
        ),
        "CountsUseFromTheGrant": ("used_units_are_counted_from_the_settling_on",),
        "TakesAHoldAgain": ("a_hold_is_taken_once",),
        "SettlesAfterTheDeadline": ("a_hold_is_used_in_full_at_its_deadline",),
        "RenewsFromTheDeadline": ("a_renewed_hold_lasts_from_its_renewal",),
        "ForgetsAHoldAtItsDeadline": (
            "the_wait_suffices_if_all_is_used",
            "a_full_quota_waits_for_the_end_of_its_month",
        ),
        "TakesPartOfTheBudgets": (
            "several_budgets_are_taken_together",
            "units_above_a_limit_wait_its_whole_window",
        ),
        "CutsAnOverrun": ("an_overrun_is_counted_as_it_was",),
        "HoldsForAllKeysTogether": ("each_subject_has_budgets_of_its_own",),
        "CutsAt64OfBudgets": ("names_that_look_alike_have_separate_budgets",),
        "SlashesBudgets": ("ids_that_look_alike_have_separate_budgets",),
        "FoldsTheCaseOfOrganizations": ("hostile_ids_have_separate_budgets",),
        "CountsARulesLimitOfTheSameName": ("a_rules_limit_of_the_same_name_is_another_count",),
        "ForgetsBudgetsWithOtherNumbers": ("another_number_keeps_what_is_held_and_used",),
        "KeepsAHoldForItsSpanBesideTheClock": ("holds_survive_a_clock_that_steps_back",),
        "SharesNoCells": ("many_settled_holds_share_cells",),
        "CountsADeadlineWhenItIsFound": (
            "a_hold_past_its_deadline_is_used_in_the_month_of_the_deadline",
        ),
        "SettlesInTheMonthOfTheGrant": ("a_soft_quota_takes_more_than_its_limit",),
        "HoldsWithoutBound": ("holds_of_a_window_are_bounded",),
        "BudgetsWithoutBound": ("budgets_are_bounded",),
        "KeepsBudgetsThroughAReset": ("a_reset_removes_budgets_and_holds",),
        "ReadsAndWritesApart": (
            "callers_at_once_share_a_budget",
            "overlapping_holds_are_linearizable",
        ),
    },
    "quota_leases": {
        "GrantsBesidePromises": ("no_lease_is_granted_beside_promises",),
        "PeeksBesideLeases": (
            "leased_units_are_counted_in_full",
            "named_limits_are_charged_beside_leases",
        ),
        "ForgetsLeasesAtTheirDeadline": (
            "a_lease_is_used_in_full_at_its_deadline",
            "leases_survive_a_clock_that_steps_back",
        ),
        "ForgetsLeasesThatItCounts": ("an_unsettled_lease_stays_listed_after_its_deadline",),
        "TakesHoldersForStopped": ("a_lease_is_in_use_until_it_is_settled",),
        "ListsLeasesById": ("leases_are_listed_in_the_order_of_their_grants",),
        "RaisesForRecalls": ("each_change_recalls_the_leases_of_its_organization",),
        "HitsBesideLeases": ("units_that_were_not_used_are_free_at_once",),
        "StampsEarly": ("used_units_are_counted_from_their_instants",),
        "CountsASettlementTwice": (
            "a_lease_is_settled_once",
            "callers_at_once_share_the_units_of_leases",
        ),
        "StampsWhenItSettles": ("a_lease_is_settled_with_an_admission_or_a_refusal",),
        "GrantsAFewUnits": ("few_units_are_out_on_leases",),
        "GrantsAllThatIsAsked": ("each_window_bounds_a_lease",),
        "GrantsNothingWithoutALimit": (
            "a_plan_without_limits_grants_leases",
            "leases_count_under_another_plan",
        ),
        "GrantsToRevokedKeys": ("a_call_that_is_not_admitted_gets_no_lease",),
        "GrantsBesideNamedLimits": ("a_key_with_named_limits_gets_no_lease",),
        "SettlesOfAllOrganizations": (
            "organizations_have_leases_of_their_own",
            "ids_that_look_alike_have_separate_leases",
        ),
        "LosesLeasesAtReset": ("a_reset_keeps_leases",),
        "GrantsWithARefusal": ("a_refusal_holds_until_the_first_lease_ends",),
        "SettlesWithoutUse": ("overlapping_leases_are_linearizable",),
    },
}
"""By part and mutant, the checks that are to detect its mistake."""
MODULES: Final = (
    mutants_of_rows,
    mutants_of_limits,
    mutants_of_holds,
    mutants_of_quota_leases,
    mutants_of_names,
    mutants_of_texts,
)
MUTANTS: Final = {
    mutant.__name__: mutant
    for mutant in every()
    if mutant.__module__ in {module.__name__ for module in MODULES}
}


@pytest.mark.parametrize("base", [RowMutant, LimitMutant, HoldMutant, LeaseMutant, Recalling])
def test_a_base_of_mutants_makes_no_mistake(base: type[Mutant]) -> None:
    """Otherwise a check detects its mutants for another reason than their mistakes."""
    for check in checks_of(base.parts):
        drive(base.io, hold(check, base()))


@pytest.mark.parametrize("part", list(DETECTED))
def test_each_check_is_to_detect_a_mutant(part: Part) -> None:
    named = [name for names in DETECTED[part].values() for name in names]
    assert sorted(named) == sorted(check.name for check in checks_of([part]))


@pytest.mark.parametrize(
    ("part", "mutant", "name"),
    [
        (part, mutant, name)
        for part, mutants in DETECTED.items()
        for mutant, names in mutants.items()
        for name in names
    ],
)
def test_a_check_detects_a_mutant(part: Part, mutant: str, name: str) -> None:
    (check,) = [check for check in checks_of([part]) if check.name == name]
    made = MUTANTS[mutant]()
    with pytest.raises(Broken) as found:
        drive(made.io, hold(check, made))
    assert found.value.sentence != "G4", "it was detected by its deadline alone"
