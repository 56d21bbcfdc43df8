"""A change that is committed is reported with its result, whatever fails after it (D52)."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lockgate import run
from lockgate.errors import ChangeCommitted, StoreError, StoreUnavailable
from lockgate.stores.committed import after_commit, collecting, committing, read_after_commit

SECRET = "acme_live_a_text_that_is_shown_once"


async def works() -> None:
    pass


async def fails() -> None:
    raise StoreError("no answer")


async def change(
    step: Callable[[], Coroutine[Any, Any, None]] = fails, organization: str = "org_1"
) -> str:
    return await after_commit(SECRET, organization, "The cache could not be told.", step())


def test_a_step_that_fails_raises_the_result_of_its_change_D52() -> None:
    with pytest.raises(ChangeCommitted) as told:
        run(change())
    assert told.value.result == SECRET
    assert told.value.remains == ("The cache could not be told.",)
    assert isinstance(told.value.__cause__, StoreError)
    assert isinstance(told.value, StoreUnavailable | StoreError)
    assert told.value.body()["code"] == "CHANGE_COMMITTED"


def test_an_operation_goes_on_and_raises_its_own_result_at_its_end_D52() -> None:
    @committing
    async def operation() -> list[str]:
        return [await change(), await change(organization="org_2"), "the end"]

    with pytest.raises(ChangeCommitted) as told:
        run(operation())
    assert told.value.result == [SECRET, SECRET, "the end"]
    assert told.value.remains == ("The cache could not be told.",)


def test_a_step_that_succeeds_later_leaves_nothing_to_report_D52() -> None:
    @committing
    async def operation() -> str:
        await change()
        return await change(works)

    assert run(operation()) == SECRET


def test_a_failure_of_another_organization_stays_D52() -> None:
    with collecting() as pending:
        run(change())
        run(change(works, "org_2"))
    assert pending


def test_the_outermost_context_reports_for_those_inside_D52() -> None:
    with collecting() as pending, collecting():
        assert run(committing(change)()) == SECRET
    assert pending.remains == ["The cache could not be told."]
    assert [str(failure) for failure in pending.unreported()] == ["no answer"]
    assert pending.unreported() == []


def test_an_operation_that_is_refused_after_a_change_raises_the_refusal_D52() -> None:
    @committing
    async def operation() -> None:
        await change()
        raise LookupError

    with pytest.raises(LookupError):
        run(operation())


def test_a_read_that_fails_after_a_change_has_the_known_result_D52() -> None:
    async def read() -> str:
        raise StoreError

    with collecting() as pending:
        assert run(read_after_commit("org_1", read(), "as changed")) == "as changed"
    assert pending


def test_no_text_and_no_pickle_of_the_error_holds_the_result_K2() -> None:
    error = ChangeCommitted(SECRET, ["The cache could not be told."])
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.result, copy.remains) == (None, error.remains)
    assert SECRET not in f"{error!r} {error} {error.body()}"
    assert SECRET.encode() not in pickle.dumps(error)
