"""What may be said of an account, and what an account shows of itself."""

from __future__ import annotations

import pytest

from lockgate.core.accounts import Account, AccountDraft, read_company

DRAFT = AccountDraft("org_1", "an agent", "ada@example.com", None, "handle", "sha256", b"\1\2")


def test_a_drafted_account_is_created_in_whole_milliseconds() -> None:
    made = DRAFT.created(1_234_567)
    assert made == Account(*DRAFT, created_at=1_234_000)
    assert made[9:] == (None, None, None, 0, None)


def test_accounts_and_drafts_show_no_address_or_digest() -> None:
    for thing in (DRAFT, DRAFT.created(0)):
        assert "org_1" in repr(thing)
        assert "ada@" not in repr(thing) and "sha256" not in repr(thing)


@pytest.mark.parametrize(
    ("account_type", "company", "expected"),
    [
        ("personal", None, None),
        ("company", " Ada & Co ", "Ada & Co"),
        ("company", "c" * 200, "c" * 200),
        ("company", "\U0001f511", "\U0001f511"),
    ],
)
def test_d13_a_company_has_a_name_and_a_person_none(
    account_type: str, company: str | None, expected: str | None
) -> None:
    assert read_company(account_type, company) == (expected, {})


NO_NAMES = [None, "", " ", "c" * 201, "a\r\nb", "a\ud800", "a\u202eb"]


@pytest.mark.parametrize(
    ("account_type", "company", "field"),
    [
        *(("company", name, "company_name") for name in NO_NAMES),
        *(("personal", name, "company_name") for name in ("Ada & Co", "")),
        ("Company", "Ada & Co", "account_type"),
        ("", None, "account_type"),
    ],
)
def test_d13_other_account_types_and_names_are_reported_by_field(
    account_type: str, company: str | None, field: str
) -> None:
    _, problems = read_company(account_type, company)
    assert list(problems) == [field]
    assert all(text.endswith(".") for text in problems[field])
