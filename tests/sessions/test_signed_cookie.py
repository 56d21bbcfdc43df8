"""Signed session cookies: only what this service issued, for as long as it said."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from itsdangerous import URLSafeTimedSerializer

from lockgate import ConfigurationError, run
from lockgate.sessions import Session, SignedCookie

SECRET = "the first secret of all, long enough"
NEWER = "a newer secret, long enough as well"
SESSION = Session("org_1", "ada", "ada@example.com")


def sessions(*secrets: str, max_age: int = 3600) -> SignedCookie:
    return SignedCookie(secrets or [SECRET], max_age)


TEXT = st.none() | st.text(max_size=60)


@given(TEXT, TEXT, TEXT)
def test_any_text_survives_the_trip(
    organization: str | None, user: str | None, email: str | None
) -> None:
    session = Session(organization, user, email)
    found = run(sessions().verify(sessions().issue(session)))
    assert found == session
    assert type(found) is Session


def test_the_value_has_only_characters_of_cookies() -> None:
    value = sessions().issue(Session("o" * 128, "u;=, \n\"'", "\u00e9@example.com"))
    assert set(value) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


def test_no_changed_character_is_accepted() -> None:
    value = sessions().issue(SESSION)
    accepted: list[int] = []
    for place, character in enumerate(value):
        changed = value[:place] + ("A" if character != "A" else "B") + value[place + 1 :]
        if run(sessions().verify(changed)) is not None:
            accepted.append(place)
    # base64 without padding: the last character of the signature has unused bits.
    assert set(accepted) <= {len(value) - 1}


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
@example("a.b.c")
@example("\0")
@example("." * 4000)
def test_garbage_is_no_session(value: str) -> None:
    assert run(sessions().verify(value)) is None


def test_an_oversized_value_is_no_session_even_if_well_signed() -> None:
    for numbers, good in ((900, True), (4000, False)):
        session = Session("org_1", "".join(str(n) for n in range(numbers)))
        value = sessions().issue(session)
        assert (len(value) <= 4096) is good
        assert run(sessions().verify(value)) == (session if good else None)


def test_a_cookie_signed_with_another_secret_or_salt_is_refused() -> None:
    assert run(sessions().verify(sessions(NEWER).issue(SESSION))) is None
    for salt in ("itsdangerous", "lockgate.token", "lockgate.session2", ""):
        forged = URLSafeTimedSerializer([SECRET], salt=salt).dumps(list(SESSION))
        assert run(sessions().verify(str(forged))) is None


def test_the_time_cannot_be_changed() -> None:
    payload, _, signature = sessions().issue(SESSION).split(".")
    for stamp in ("", ".", ".aaaaaa", ".______", ".0"):
        assert run(sessions().verify(f"{payload}{stamp}.{signature}")) is None


def test_secrets_rotate_as_a_list_the_newest_first() -> None:
    old = sessions(SECRET).issue(SESSION)
    both = sessions(NEWER, SECRET)
    assert run(both.verify(old)) == SESSION
    new = both.issue(SESSION)
    assert run(sessions(NEWER).verify(new)) == SESSION
    assert run(sessions(SECRET).verify(new)) is None
    assert run(sessions(NEWER).verify(old)) is None


def test_a_session_is_refused_after_its_expiry(monkeypatch: pytest.MonkeyPatch) -> None:
    issued = int(time.time())
    monkeypatch.setattr(time, "time", lambda: issued)
    value = sessions().issue(SESSION)
    for age, good in ((3500, True), (3599, True), (3602, False), (10**9, False)):
        monkeypatch.setattr(time, "time", lambda age=age: issued + age)
        assert (run(sessions().verify(value)) is not None) is good, age


def test_a_session_from_the_future_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    value = sessions().issue(SESSION)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 3600)
    assert run(sessions().verify(value)) is None


@pytest.mark.parametrize("payload", [["org_1"], ["a"] * 9], ids=["fewer fields", "more fields"])
def test_a_signed_payload_of_another_shape_is_no_session(payload: object) -> None:
    """Another version of the service may have signed it with the same secret."""
    value = URLSafeTimedSerializer([SECRET], salt="lockgate.session").dumps(payload)
    assert run(sessions().verify(str(value))) is None


@pytest.mark.parametrize("secrets", [[], ["short"], [SECRET, "short"], [""]])
def test_short_secrets_are_refused_with_the_way_to_make_one(secrets: list[str]) -> None:
    with pytest.raises(ConfigurationError, match=r"secrets\.token_urlsafe") as caught:
        SignedCookie(secrets)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(sessions())
