"""The principal, as the application sees it."""

from __future__ import annotations

import pytest

from lockgate import ConfigurationError, Plan, Principal
from lockgate.core.scopes import requirement
from lockgate.core.sliding_window import empty_state, hit
from lockgate.errors import InsufficientScope
from lockgate.sessions import Session
from tests.stores.making import NOW, draft_of, new_key

PLAN = Plan("free", rpm=1, rph=1, rpd=1, concurrent=1)
READING, _ = hit(empty_state(PLAN.windows), PLAN.windows, NOW, 1)


def by_key(*scopes: str) -> Principal:
    key = draft_of(new_key(), "org_1", name="my key", scopes=scopes).created(NOW)
    return Principal("org_1", key, None, PLAN, READING)


def test_a_principal_is_known_by_its_key_its_session_or_its_organization() -> None:
    principal = by_key("jobs:*", "models:read")
    assert principal.key is not None
    assert (principal.display_name, principal.identity) == ("my key", principal.key.id)
    assert principal.is_authenticated
    assert list(principal.scopes) == ["jobs:*", "models:read"]
    assert principal.key.id in repr(principal) and "org_1" in repr(principal)
    session = Principal("org_1", None, Session("org_1", "ada"), PLAN, READING)
    assert (session.display_name, session.identity) == ("ada", "ada")
    session.need("account:write")  # A session has every scope.
    neither = Principal("org_1", None, None, PLAN, READING)
    assert (neither.display_name, neither.identity) == ("org_1", "org_1")


@pytest.mark.parametrize(
    ("scopes", "scope", "good"),
    [
        (("*",), "jobs:read", True),
        (("jobs:*",), "jobs:read", True),
        (("jobs:*",), "jobs:render:start", True),
        (("jobs:read",), "jobs:read", True),
        (("jobs:read",), "jobs:write", False),
        (("jobs:read",), "jobsx:read", False),
        (("models:*",), "jobs:read", False),
        (("jobs:read", "models:write"), "models:write", True),
    ],
)
def test_may_and_need_agree(scopes: tuple[str, ...], scope: str, good: bool) -> None:
    principal = by_key(*scopes)
    assert principal.may(scope) is good
    assert (scope in principal.scopes) is good
    if good:
        principal.need(scope)
        principal.need(requirement(scope))
        return
    for needed in (scope, requirement(scope)):
        with pytest.raises(InsufficientScope, match=f"'{scope}'") as caught:
            principal.need(needed)
        assert caught.value.scope == scope


@pytest.mark.parametrize("scope", ["*", "jobs:*", "", "Jobs:Read", "jobs:read "])
def test_a_question_is_one_exact_scope(scope: str) -> None:
    with pytest.raises(ConfigurationError, match="one exact scope"):
        by_key("*").may(scope)
    assert scope not in by_key("*").scopes
