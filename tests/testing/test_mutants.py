"""The kit lets a right store pass, and detects every wrong one by a sentence that it breaks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from lockgate import MemoryStore, Store, run
from lockgate.testing import Broken, certify
from lockgate.testing.certify import checks_of, drive, hold
from lockgate.testing.checks import Check, deaths, instants, lost, many

from . import (
    mutants_of_accounts,  # noqa: F401 - imported to make their mutants
    mutants_of_keys,  # noqa: F401
    mutants_of_slots,  # noqa: F401
    mutants_of_texts,  # noqa: F401
    mutants_of_usage,  # noqa: F401
    mutants_of_windows,  # noqa: F401
)
from .mutants import Mutant, named
from .mutants_of_changes import InOneStep
from .mutants_of_holds import HoldMutant
from .mutants_of_limits import LimitMutant
from .mutants_of_quota_leases import LeaseMutant, Recalling
from .mutants_of_rows import RowMutant

MANY: Final = "thousands_of_keys_are_read_counted_ended_and_removed"
REPEATED: Final = "a_change_whose_reply_is_lost_is_made_once"
DEAD: Final = "a_process_that_dies_leaves_a_whole_change_or_none"
DETECTED: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "rows": {
        "remembers_ids_of_updates": ("a_repeated_end_of_many_keys_is_answered_alike",),
        "answers_repetitions_by_the_clock": ("a_repeated_change_is_made_once_and_answered_alike",),
        "finds_its_own_rows_taken": ("a_repeated_insertion_finds_none_of_its_rows_taken",),
        "looks_for_the_id_outside_the_lock": ("a_commit_that_is_repeated_at_once_is_made_once",),
        "ignores_versions": ("a_commit_with_an_outdated_version_changes_nothing",),
        "checks_versions_outside_the_lock": ("one_of_the_commits_on_one_version_succeeds",),
        "numbers_the_rows_of_pages": ("versions_are_alike_by_every_index",),
        "writes_to_ended_keys": ("a_key_must_be_live_at_the_instant_of_the_step",),
        "writes_row_by_row": ("a_new_row_takes_no_handle_or_id_of_another",),
        "counts_live_keys_before_the_other_writes": (
            "room_counts_live_keys_after_the_other_writes",
        ),
        "stamps_with_the_instant_of_the_reading": ("instants_and_records_are_of_the_step",),
        "stamps_keys_alone": ("each_stamp_becomes_the_instant_of_the_step",),
        "stamps_by_the_clock_of_the_caller": ("without_an_instant_the_clock_of_the_store_stamps",),
        "records_a_commit_that_changed_no_row": ("a_commit_that_changes_no_row_is_not_recorded",),
        "revokes_expired_keys": ("every_live_key_is_revoked_and_no_other",),
        "writes_the_usage_that_was_read": ("a_write_keeps_the_usage_of_a_key",),
        "keeps_a_key_that_is_due": ("keys_and_records_are_removed_by_their_instants",),
        "removes_an_account_that_a_walk_named": (
            "an_account_is_removed_only_if_it_is_unused_at_the_step",
        ),
        "skips_ties": ("pages_of_keys_follow_the_order_of_their_index",),
        "skips_ties_of_accounts": ("pages_of_accounts_follow_the_order_of_their_index",),
        "reads_the_log_inclusively": ("pages_of_the_log_follow_its_numbers",),
        "continues_a_walk_by_the_number_of_rows": ("a_walk_finds_each_row_that_stays",),
        "names_owners_of_keys": ("a_walk_names_the_organizations_that_are_due",),
        "counts_ended_keys_among_the_live_ones": ("a_walk_sums_up_each_organization",),
    },
    "limits": {
        "charges_the_plan_of_a_request_that_a_limit_refuses": (
            "a_full_named_limit_refuses",
            "a_cost_above_a_named_limit_waits_its_whole_window",
        ),
        "judges_by_the_first_window_only": (
            "each_window_of_a_named_limit_holds",
            "the_longest_wait_is_told_and_suffices",
        ),
        "charges_a_limit_though_another_refuses": (
            "a_refusal_by_a_named_limit_is_not_charged_to_any_window",
        ),
        "charges_the_limit_of_a_request_that_the_plan_refuses": (
            "a_refusal_by_the_plan_is_not_charged_to_a_named_limit",
        ),
        "counts_what_it_reads": (
            "what_remains_is_told_of_the_plan_alone",
            "peeking_changes_no_named_limit",
        ),
        "shares_cells_by_the_grain_of_a_day": ("many_hits_share_cells_of_a_named_limit",),
        "counts_all_keys_together": ("each_subject_is_counted_by_itself",),
        "takes_dashes_for_underscores_of_limits": ("names_that_look_alike_are_counted_apart",),
        "underscores_limit_windows": ("ids_that_look_alike_have_separate_named_limits",),
        "counts_all_organizations_together": ("hostile_ids_have_separate_named_limits",),
        "begins_anew_with_another_number": (
            "another_number_keeps_counted_hits",
            "a_changed_calendar_quota_keeps_its_count",
        ),
        "charges_the_plan_for_limits_alone": ("named_limits_are_charged_without_a_plan",),
        "locks_out_after_the_clock_steps_back": (
            "a_named_limit_survives_a_clock_that_steps_back",
            "a_plan_is_not_locked_out_by_a_refused_named_limit",
        ),
        "reads_the_limit_before_its_turn": (
            "overlapping_hits_of_named_limits_are_linearizable",
            "callers_at_once_share_a_named_limit",
            "callers_at_once_cross_each_mark_of_a_quota_once",
            "callers_at_once_share_the_limits_of_a_plan_and_a_key",
        ),
        "never_begins_a_period": (
            "a_calendar_quota_admits_its_limit_in_each_period",
            "a_full_calendar_quota_waits_for_the_next_period",
            "a_clock_that_steps_back_over_a_boundary_finds_the_count",
        ),
        "refuses_beyond_a_soft_quota": ("a_soft_quota_counts_and_refuses_nothing",),
        "has_the_same_months_for_all_organizations": (
            "each_organization_has_the_periods_of_its_contract",
        ),
        "forgets_an_idle_month": ("the_count_of_an_idle_month_stays",),
        "admits_without_limits": (
            "an_admission_is_charged_to_calendar_quotas",
            "an_admission_is_charged_to_named_limits",
            "a_revoked_key_is_not_charged_to_named_limits",
        ),
        "keeps_limits_on_a_reset": ("a_reset_empties_named_limits",),
        "has_any_number_of_fields": ("fields_are_bounded",),
        "forgets_the_limits_of_the_plan": (
            "an_admission_is_charged_to_the_limits_of_its_plan",
            "the_limits_of_a_plan_end_with_the_plan",
        ),
        "forgets_the_limits_of_the_key": (
            "an_admission_is_charged_to_the_limits_of_its_key",
            "changed_limits_of_a_key_hold_from_the_next_admission_on",
        ),
    },
    "holds": {
        "counts_no_holds": ("units_that_are_held_are_counted_in_full",),
        "looks_at_what_is_counted_alone": (
            "budgets_are_read_without_a_change",
            "a_hold_of_a_quota_counts_in_the_present_month",
        ),
        "gives_nothing_back": (
            "units_that_were_not_used_are_free_at_once",
            "a_hold_is_settled_once",
        ),
        "counts_use_from_the_grant": ("used_units_are_counted_from_the_settling_on",),
        "takes_a_hold_again": ("a_hold_is_taken_once",),
        "settles_after_the_deadline": ("a_hold_is_used_in_full_at_its_deadline",),
        "renews_from_the_deadline": ("a_renewed_hold_lasts_from_its_renewal",),
        "forgets_a_hold_at_its_deadline": (
            "the_wait_suffices_if_all_is_used",
            "a_full_quota_waits_for_the_end_of_its_month",
        ),
        "takes_one_budget_after_another": (
            "several_budgets_are_taken_together",
            "units_above_a_limit_wait_its_whole_window",
        ),
        "counts_at_most_what_was_held": ("an_overrun_is_counted_as_it_was",),
        "holds_for_all_keys_together": ("each_subject_has_budgets_of_its_own",),
        "cuts_at64_of_budgets": ("names_that_look_alike_have_separate_budgets",),
        "slashes_budgets": ("ids_that_look_alike_have_separate_budgets",),
        "compares_ids_of_budgets_without_case": ("hostile_ids_have_separate_budgets",),
        "counts_a_rules_limit_of_the_same_name": (
            "a_rules_limit_of_the_same_name_is_another_count",
        ),
        "forgets_budgets_with_other_numbers": ("another_number_keeps_what_is_held_and_used",),
        "keeps_a_hold_for_its_span_beside_the_clock": ("holds_survive_a_clock_that_steps_back",),
        "shares_no_cells": ("many_settled_holds_share_cells",),
        "counts_a_deadline_when_it_is_found": (
            "a_hold_past_its_deadline_is_used_in_the_month_of_the_deadline",
        ),
        "settles_in_the_month_of_the_grant": ("a_soft_quota_takes_more_than_its_limit",),
        "holds_without_bound": ("holds_of_a_window_are_bounded",),
        "has_any_number_of_budgets": ("budgets_are_bounded",),
        "keeps_budgets_on_a_reset": ("a_reset_removes_budgets_and_holds",),
        "reads_and_writes_apart": (
            "callers_at_once_share_a_budget",
            "overlapping_holds_are_linearizable",
        ),
    },
    "quota_leases": {
        "grants_beside_promises": ("no_lease_is_granted_beside_promises",),
        "peeks_beside_leases": (
            "leased_units_are_counted_in_full",
            "named_limits_are_charged_beside_leases",
        ),
        "forgets_leases_at_their_deadline": (
            "a_lease_is_used_in_full_at_its_deadline",
            "leases_survive_a_clock_that_steps_back",
        ),
        "forgets_leases_that_it_counts": ("an_unsettled_lease_stays_listed_after_its_deadline",),
        "takes_holders_for_stopped": ("a_lease_is_in_use_until_it_is_settled",),
        "lists_leases_by_id": ("leases_are_listed_in_the_order_of_their_grants",),
        "raises_for_recalls": ("each_change_recalls_the_leases_of_its_organization",),
        "hits_beside_leases": ("units_that_were_not_used_are_free_at_once",),
        "stamps_early": ("used_units_are_counted_from_their_instants",),
        "counts_a_settlement_twice": (
            "a_lease_is_settled_once",
            "callers_at_once_share_the_units_of_leases",
        ),
        "stamps_when_it_settles": ("a_lease_is_settled_with_an_admission_or_a_refusal",),
        "grants_few_units": ("few_units_are_out_on_leases",),
        "grants_all_that_is_asked": ("each_window_bounds_a_lease",),
        "grants_nothing_without_a_limit": (
            "a_plan_without_limits_grants_leases",
            "leases_count_under_another_plan",
        ),
        "grants_to_revoked_keys": ("a_call_that_is_not_admitted_gets_no_lease",),
        "grants_beside_named_limits": ("a_key_with_named_limits_gets_no_lease",),
        "settles_leases_of_all_organizations": (
            "organizations_have_leases_of_their_own",
            "ids_that_look_alike_have_separate_leases",
        ),
        "loses_leases_on_a_reset": ("a_reset_keeps_leases",),
        "grants_with_a_refusal": ("a_refusal_holds_until_the_first_lease_ends",),
        "settles_without_use": ("overlapping_leases_are_linearizable",),
    },
    "steps": {
        "reads_the_clock_and_waits_for_its_turn": (
            "no_admission_has_a_later_instant_than_the_end_of_its_key",
            "records_are_numbered_in_the_order_of_their_instants",
        ),
        "revokes_a_key_at_the_instant_of_its_reading": (
            "no_admission_has_a_later_instant_than_the_end_of_its_key",
        ),
        "records_a_change_when_it_has_been_made": (
            "records_are_numbered_in_the_order_of_their_instants",
        ),
        "revokes_a_page_of_keys_of_a_claim": (MANY,),
        "caps_a_page_of_keys": (MANY,),
        "lists_two_pages_of_live_keys": (MANY,),
        "counts_one_step_of_hundreds_of_keys": (MANY,),
        "searches_a_thousand_keys": (MANY,),
        "removes_all_keys_in_one_step": (MANY,),
        "takes_each_repetition_for_another_commit": (REPEATED,),
        "records_repetitions": (REPEATED,),
        "stamps_repetitions": (REPEATED,),
        "ends_walks_at_repetitions": ("a_walk_whose_replies_are_lost_removes_each_key_once",),
        "remembers_one_commit": ("a_commit_is_repeated_behind_fifteen_others",),
        "rotates_by_two_commits": (DEAD,),
        "registers_by_two_commits": (DEAD,),
        "revokes_keys_after_a_claim": (DEAD,),
    },
}
"""By part and mutant, the checks that are to detect its mistake; ``steps``: checks of instants, of
many rows, of lost replies and of deaths."""
STEPS: Final = (*instants.CHECKS, *many.CHECKS, *lost.CHECKS, *deaths.CHECKS)


def leftovers(store: Store, now: int) -> int:
    assert isinstance(store, MemoryStore)
    kept = max(len(store._windows), len(store._budgets))
    return max(kept, len(store.states)) if isinstance(store, Mutant) else kept


def checks_in(part: Any) -> Sequence[Check]:
    return STEPS if part == "steps" else checks_of([part])


def each_mutant() -> Iterator[Any]:
    """Each mutant that no check is named for; most that are loose with texts run in campaigns."""
    named = {name for mutants in DETECTED.values() for name in mutants}
    for mutant in Mutant.every:
        if mutant.__name__ not in named:
            marks = () if mutant.in_each_run else pytest.mark.campaign
            yield pytest.param(mutant, marks=marks, id=mutant.__name__)


def test_a_correct_store_passes() -> None:
    run(certify(Mutant, leftovers=leftovers))


@pytest.mark.parametrize(
    "base", [RowMutant, LimitMutant, HoldMutant, LeaseMutant, Recalling, InOneStep]
)
def test_a_base_of_mutants_makes_no_mistake(base: type[Mutant]) -> None:
    """Otherwise a check detects its mutants for another reason than their mistakes."""
    for check in STEPS if base is InOneStep else checks_of(base.parts):
        drive(base.io, hold(check, base()))


@pytest.mark.parametrize("part", list(DETECTED))
def test_each_check_is_to_detect_a_mutant(part: str) -> None:
    named = {name for names in DETECTED[part].values() for name in names}
    assert named == {check.name for check in checks_in(part)}


async def _hold_all(mutant: type[Mutant], checks: Iterable[Check]) -> None:
    for check in checks:
        await hold(check, mutant())


def found_out(mutant: type[Mutant], checks: Sequence[Check]) -> str | None:
    """Return the sentence by which checks detect a mutant; None: they do not.

    A busy machine may keep callers apart who are to meet: each race is run up to five times.
    """
    for _ in range(5):
        try:
            drive(mutant.io, _hold_all(mutant, checks))
        except Broken as found:
            print(f"{mutant.__name__} by {found}")
            return found.sentence
    return None


@pytest.mark.parametrize(
    ("part", "mutant", "name"),
    [
        (part, mutant, name)
        for part, mutants in DETECTED.items()
        for mutant, names in mutants.items()
        for name in names
    ],
)
def test_a_check_detects_a_mutant(part: str, mutant: str, name: str) -> None:
    (check,) = [check for check in checks_in(part) if check.name == name]
    kind = named(mutant)
    sentences = {*kind.killed_by, *([check.sentence] if part != "steps" else [])}
    assert found_out(kind, [check]) in sentences, "by its deadline, G4, a check detects none"


@pytest.mark.parametrize("mutant", list(each_mutant()))
def test_a_mutant_fails_with_a_guarantee_that_it_breaks(
    mutant: type[Mutant], request: pytest.FixtureRequest
) -> None:
    checks = checks_of(mutant.parts, leftovers)
    if not request.config.getoption("matrix"):  # The likely ones first: it takes a third as long.
        checks.sort(key=lambda check: check.sentence not in mutant.killed_by)
    assert found_out(mutant, checks) in mutant.killed_by


def test_the_page_on_own_stores_states_the_number_of_mutants() -> None:
    page = Path(__file__).parents[2] / "docs" / "own-store.md"
    assert f"tested by {len(Mutant.every)} stores with one mistake each" in page.read_text()
