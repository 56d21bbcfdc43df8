"""Stores with one mistake each in the methods of a key store, and in the repetition of commits."""

from __future__ import annotations

from secrets import token_hex
from typing import Any, ClassVar

from lockgate.core.accounts import Account
from lockgate.core.api_keys import ApiKey
from lockgate.stores.answers import OrganizationSummary
from lockgate.stores.rows import (
    LOG,
    STAMP,
    Ended,
    Outcome,
    Row,
    Summaries,
    Unused,
    Walk,
    Write,
    stamped,
)

from .mutants import Call, How, Mutant, gap, several, wrong


class RowMutant(Mutant):
    """Right until a subclass makes its mistake."""

    parts: ClassVar = ("rows",)


def _commit(**changed: Any) -> How:
    """Return a mistake: a commit is made with other fields."""
    return lambda call: call(commit=call.commit._replace(**changed))


def _writes(call: Call, change: Any) -> Any:
    """Make a commit with other writes."""
    return call(commit=call.commit._replace(writes=tuple(map(change, call.commit.writes))))


def _as_present(call: Call) -> Any:
    """Make a commit with the versions that are there."""
    kept = call.store._kept
    return _writes(
        call, lambda one: one if one.old is None else one._replace(version=kept(one.old))
    )


def _stamp_claims(call: Call) -> Any:
    def early(write: Write) -> Write:
        is_claim = isinstance(write.new, Account) and write.new.claimed_at == STAMP
        return write._replace(new=stamped(write.new, call.at - 1)) if is_claim else write

    return _writes(call, early)


def _is_made(call: Call) -> bool:
    return call.commit.id in call.store._made


several(
    {
        # Whatever is there.
        "ignores_versions": ("D43", "commit", _as_present),
        "writes_to_ended_keys": (
            "D43",
            "commit",
            lambda call: _writes(call, lambda one: one._replace(live=False)),
        ),
        # Leaves the instants of accounts to their caller.
        "stamps_keys_alone": ("W12", "commit", _stamp_claims),
        "stamps_by_the_clock_of_the_caller": (
            "W12",
            "commit",
            lambda call: call(
                now=call.store.at(None) - 60_000_000 if call.now is None else call.now
            ),
        ),
        "records_no_commit_without_rows": (
            "D44",
            "commit",
            lambda call: call() if call.commit.writes else _commit(change=None)(call),
        ),
        # For the microsecond in which it is due.
        "keeps_a_key_that_is_due": (
            "D45",
            "commit",
            lambda call: call(
                commit=call.commit._replace(
                    remove_ended=call.commit.remove_ended and call.commit.remove_ended - 1
                )
            ),
        ),
        # In use or not.
        "removes_an_account_that_a_walk_named": (
            "D46",
            "commit",
            lambda call: (
                call() if call.commit.remove_unused is None else _commit(remove_unused=2**62)(call)
            ),
        ),
        "names_one_unused_account": (
            "D46",
            "walk",
            lambda call: call(limit=1 if isinstance(call.wanted, Unused) else call.limit),
        ),
    },
    of=RowMutant,
)


@wrong("W3", "commit", of=RowMutant)
async def remembers_ids_of_updates(call: Call) -> Any:
    """Has no answer for a repeated commit that ends many keys."""
    outcome = await call()
    if not call.commit.writes:
        call.store._made.pop(call.commit.id, None)
    return outcome


@wrong("W3", "commit", of=RowMutant)
async def answers_repetitions_by_the_clock(call: Call) -> Any:
    outcome = await call()
    return outcome if call.now is None else outcome._replace(now=call.now)


@wrong("W3", "commit", of=RowMutant)
async def finds_its_own_rows_taken(call: Call) -> Any:
    """Claims handles before it looks for the id of the commit."""
    for _, _, new, _ in call.commit.writes if call.commit.room is not None else ():
        if isinstance(new, ApiKey) and new.handle in call.store._rows:
            return Outcome("taken", call.at)
    return await call()


@wrong("W3", "commit", of=RowMutant)
async def looks_for_the_id_outside_the_lock(call: Call) -> Any:
    """Checks the id, waits, and writes without it."""
    if not _is_made(call):
        gap()
        with call.store._lock:
            call.store._made.pop(call.commit.id, None)
    return await call()


@wrong("D43", "commit", of=RowMutant)
async def checks_versions_outside_the_lock(call: Call) -> Any:
    """Compares versions, and writes a little later."""
    for old, version, _, _ in call.commit.writes:
        if old is not None and call.store._kept(old) != version:
            return Outcome("changed", call.at)
    gap()
    with call.store._lock:
        made = _as_present(call)
    return await made


@wrong("D43 D3", "commit", of=RowMutant)
async def writes_row_by_row(call: Call) -> Any:
    """The rows before the one that has changed, too."""
    commit = call.commit
    outcome = await call(commit=commit._replace(writes=()))
    rows: list[Row | None] = []
    for number, write in enumerate(commit.writes):
        part = commit._replace(id=f"{commit.id}{number}", writes=(write,), change=None)
        outcome = await call(commit=part)
        rows += outcome.rows
        if outcome.verdict != "done":
            return outcome
    return outcome._replace(rows=tuple(rows))


@wrong("D43", "read", of=RowMutant)
async def numbers_the_rows_of_pages(call: Call) -> Any:
    """Instead of their versions."""
    read = await call()
    is_page = call.index.name.startswith("keys_by")
    return read._replace(versions=[*range(len(read.rows))]) if is_page else read


@wrong("D3", "commit", of=RowMutant)
def gives_handles_of_removed_keys_away(call: Call) -> Any:
    call.store._keys.removed.clear()
    return call()


@wrong("K8", "commit", of=RowMutant)
async def counts_live_keys_before_the_other_writes(call: Call) -> Any:
    room = call.commit.room
    live = call.store._keys.count_live(call.commit.owner, call.at)
    is_full = room is not None and live >= room and not _is_made(call)
    return Outcome("full", call.at) if is_full else await call()


@wrong("D44", "read", "commit", of=RowMutant)
def stamps_with_the_instant_of_the_reading(call: Call) -> Any:
    seen = call.store.seen
    if "commit" in call:
        return call(now=seen.get("read", call.now))
    if call.now is not None:
        seen["read"] = call.now
    return call()


@wrong("D44", "commit", of=RowMutant)
async def records_a_commit_that_changed_no_row(call: Call) -> Any:
    is_new = not _is_made(call)
    outcome = await _commit(change=None)(call)
    if outcome.verdict == "done" and is_new:
        call.store._changes.add(call.commit.owner, call.commit.change, outcome.now)
    return outcome


@wrong("K4", "commit", of=RowMutant)
async def revokes_expired_keys(call: Call) -> Any:
    outcome, keys = await call(), call.store._keys
    if call.commit.revoke_all and outcome.verdict == "done":
        for key in keys.unrevoked(call.commit.owner, 1000, None):
            keys.replace(key, key._replace(revoked_at=outcome.now))
    return outcome


@wrong("K7", "commit", of=RowMutant)
async def writes_the_usage_that_was_read(call: Call) -> Any:
    outcome = await call()
    for _, _, new, _ in call.commit.writes:
        if isinstance(new, ApiKey) and outcome.verdict == "done":
            call.store._requests[new.handle] = new.request_count
    return outcome


def _skips_ties(call: Call) -> Any:
    """Continue after the instant of a page's last row."""
    if call.after is None or call.index is LOG:
        return call()
    return call(after=call.after._replace(id="" if call.index.ids_down else "\U0010ffff" * 128))


def _begins_with_the_last_record(call: Call) -> Any:
    if call.after is None or call.index is not LOG:
        return call()
    return call(after=call.after._replace(instant=call.after.instant + 1))


several(
    {
        "skips_ties": ("D10", "read", _skips_ties),
        "skips_ties_of_accounts": (
            "D14",
            "read",
            lambda call: call() if call.index.name.startswith("keys") else _skips_ties(call),
        ),
        "reads_the_log_inclusively": ("D44", "read", _begins_with_the_last_record),
    },
    of=RowMutant,
)


@wrong("K9", "walk", of=RowMutant)
async def continues_a_walk_by_the_number_of_rows(call: Call) -> Any:
    """Which others change."""
    if call.wanted is not None:
        return await call()
    store, start = call.store, int(call.cursor or 0)
    handles = [*store._rows][start : start + call.limit]
    following = None if len(handles) < call.limit else str(start + call.limit)
    rows = map(Account._make, store._accounts.rows.values())
    keys = tuple(map(store._keys.key, handles))
    return Walk(following, keys, tuple(rows) if following is None else ())


@wrong("D45", "walk", of=RowMutant)
def names_owners_of_keys(call: Call) -> Any:
    """And no organization for its old records alone."""
    if isinstance(call.wanted, Ended):
        call.store._changes.due = lambda until, limit: []
    return call()


@wrong("D25", "walk", of=RowMutant)
async def counts_ended_keys_among_the_live_ones(call: Call) -> Any:
    step = await call()
    if not isinstance(call.wanted, Summaries):
        return step
    keys = call.store._keys
    counted = [
        OrganizationSummary(one.id, one.placed, len(keys.all(one.id)), one.last_used_at)
        for one in step.organizations
    ]
    return step._replace(organizations=tuple(counted))


# The repetition of a commit is answered otherwise than the commit (D33).
@wrong("W3", "commit")
def takes_each_repetition_for_another_commit(call: Call) -> Any:
    return call(commit=call.commit._replace(id=token_hex(8)))


@wrong("W3", "commit")
def remembers_one_commit(call: Call) -> Any:
    """The latest of an organization."""
    commit, latest = call.commit, call.store.seen
    before, latest[commit.owner] = latest.get(commit.owner), commit.id
    if before is not None and before != commit.id:
        call.store._made.pop(before, None)
    return call()


@wrong("W3", "commit")
async def records_repetitions(call: Call) -> Any:
    is_repeated, outcome = _is_made(call), await call()
    if is_repeated:
        with call.store._lock:
            call.store._changes.add(call.commit.owner, call.commit.change, outcome.now)
    return outcome


@wrong("W3", "commit")
async def stamps_repetitions(call: Call) -> Any:
    """Answers with the instant of the repetition."""
    at, outcome = call.at, await call()
    if outcome.verdict != "done" or outcome.now == at:
        return outcome
    rows = tuple(stamped(one.new, at) for one in call.commit.writes)
    return outcome._replace(now=at, rows=rows)


@wrong("W3", "commit")
async def ends_walks_at_repetitions(call: Call) -> Any:
    """Answers a repetition of a removal that nothing more is due."""
    is_repeated, outcome = _is_made(call), await call()
    return outcome._replace(more=False) if is_repeated else outcome
