"""API key records: their states, and the validation of new keys (D2, D4, D7, D8)."""

from fractions import Fraction
from math import inf, nan
from typing import Any
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate.core.api_keys import ApiKey, KeyDraft, KeyState, read_lifetime, read_name, read_scopes
from lockgate.core.scopes import DEFAULT_SCOPES, Catalogue
from lockgate.core.timestamps import DAY, SECOND

DIGEST = bytes(range(32))
KEY = ApiKey(
    id="7e8b1ad6-0f0e-4c5b-9d0e-0c1a1f0f4f1e",
    handle="Handle01",
    organization="org_1",
    name="Build",
    prefix="acme_live_Handl",
    scopes=("jobs:read",),
    scheme="sha256",
    digest=DIGEST,
    seal=None,
    created_at=1_000,
    expires_at=None,
)
CATALOGUE = Catalogue.of()


@pytest.mark.parametrize(
    ("expires_at", "revoked_at", "now", "state"),
    [
        (None, None, 10**18, KeyState.ACTIVE),
        (500, None, 499, KeyState.ACTIVE),
        (500, None, 500, KeyState.EXPIRED),
        (500, None, 501, KeyState.EXPIRED),
        (None, 300, 100, KeyState.REVOKED),
        (500, 300, 400, KeyState.REVOKED),
        (500, 300, 600, KeyState.REVOKED),
        (500, 700, 600, KeyState.REVOKED),
        (0, None, 1, KeyState.EXPIRED),
        (None, 0, 1, KeyState.REVOKED),
    ],
)
def test_a_key_is_revoked_or_expired_or_active(
    expires_at: int | None, revoked_at: int | None, now: int, state: KeyState
) -> None:
    """D4: revoked is said before expired, and ``expires_at <= now`` is expired."""
    assert KEY._replace(expires_at=expires_at, revoked_at=revoked_at).state(now) is state


DRAFT = KeyDraft(*KEY[:9], expires_at=None)


@given(st.integers(0, 2**52), st.none() | st.integers(1, 36_500 * DAY))
def test_a_draft_becomes_a_key_at_the_stores_time(now: int, lifetime: int | None) -> None:
    """D30: created in whole milliseconds, as it is shown; it lives for its full time."""
    expires_at = None if lifetime is None else now + lifetime
    key = DRAFT._replace(expires_at=expires_at).created(now)
    assert key[:9] == KEY[:9]
    assert key.created_at == now // 1_000 * 1_000
    assert key.expires_at == expires_at
    assert (key.revoked_at, key.request_count, key.last_used_at) == (None, 0, None)
    assert key.state(now) is KeyState.ACTIVE
    if key.expires_at is not None:
        assert key.state(key.expires_at - 1) is KeyState.ACTIVE
        assert key.state(key.expires_at) is KeyState.EXPIRED


def test_neither_key_nor_draft_shows_its_digest_or_handle() -> None:
    for value in (KEY, DRAFT):
        for shown in (repr(value), str(value), f"{value}", f"{[value]}"):
            assert "Build" in shown
            assert repr(DIGEST) not in shown
            assert "Handl" not in shown


# Names (D8)


KEPT = [
    *("Build", "x", "é" * 100, "日本 🔑", "اسم", "\u06dd", "<script>", "\u0915\u094d\u200d\u0937"),
    *("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\U0001f469\u200d\U0001f4bb"),
    "\u2764\ufe0f\u200d\U0001f525",
]


@pytest.mark.parametrize(
    ("given_name", "stored"),
    [
        *((name, name) for name in KEPT),
        ("  Build server\t\r\n", "Build server"),
        (" " * 500 + "a" * 100 + " " * 500, "a" * 100),
    ],
)
def test_a_name_is_trimmed_and_otherwise_unchanged(given_name: str, stored: str) -> None:
    assert read_name(given_name) == (stored, [])


@pytest.mark.parametrize("name", ["", " ", "\n\t ", "a" * 101, "é" * 101])
def test_a_name_has_1_to_100_characters_unless_more_are_allowed(name: str) -> None:
    _, problems = read_name(name)
    assert problems == ["Use 1 to 100 characters."]
    assert read_name("a" * 200, 200) == ("a" * 200, [])
    assert read_name("a" * 201, 200)[1] == ["Use 1 to 200 characters."]


CONTROLS = [chr(c) for c in (*range(32), *range(0x7F, 0xA0), 0xD800, 0xDBFF, 0xDC00, 0xDFFF)]
DIRECTIONS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.mark.parametrize("control", [*CONTROLS, *DIRECTIONS], ids=lambda c: f"U+{ord(c):04X}")
def test_a_name_has_no_control_characters(control: str) -> None:
    assert read_name(f"a{control}b")[1] == ["Use no control characters."]
    if not control.isspace():
        assert read_name(f"{control}a")[1]
        assert read_name(f"a{control}")[1]


INVISIBLE = (
    *map(chr, (0xAD, 0x180E, 0x200B, *range(0x2060, 0x2065), *range(0x206A, 0x2070))),
    *map(chr, (0xFEFF, 0xFFF9, 0xFFFB, 0xE0001, 0xE0041, 0xE007F)),
    *"\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0",
)


@pytest.mark.parametrize("character", INVISIBLE, ids=lambda c: f"U+{ord(c):04X}")
def test_a_name_has_no_invisible_characters(character: str) -> None:
    """Names that differ only in such a character look the same when a key is revoked by name."""
    for name in (f"a{character}b", f"{character}\u0928", f"\u0928{character}", f"é{character}é"):
        assert read_name(name)[1] == ["Use no invisible characters."]


@pytest.mark.parametrize("joiner", "\u200c\u200d", ids=["ZWNJ", "ZWJ"])
@pytest.mark.parametrize("around", ["a|b", "|\u0928", "\u0928|", "\u0928|b", "\u0928 |\u0928"])
def test_a_joiner_beside_ascii_a_space_or_the_end_is_refused(joiner: str, around: str) -> None:
    assert read_name(around.replace("|", joiner))[1] == ["Use no invisible characters."]
    doubled = f"\u0928{joiner}{joiner}\u0928"
    assert read_name(doubled)[1] == ["Use no invisible characters."]


@given(st.text(st.characters() | st.sampled_from(CONTROLS), max_size=110))
def test_any_name_is_valid_or_has_one_problem(text: str) -> None:
    name, problems = read_name(text)
    assert name == text.strip()
    good = 1 <= len(name) <= 100 and not set(name) & {*DIRECTIONS}
    good = good and not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in name)
    good = good and not any(0xD800 <= ord(c) <= 0xDFFF for c in name)
    good = good and not set(name) & {*"\u2028\u2029", *INVISIBLE}
    if set(name) & {*"\u200c\u200d"} or any(category(c) == "Cf" for c in name):
        return  # They are good in some places.
    assert len(problems) == (not good)


# Scopes (D8)


@given(st.lists(st.sampled_from(DEFAULT_SCOPES), min_size=1, max_size=50))
def test_the_default_scopes_can_be_granted_and_keep_their_order(scopes: list[str]) -> None:
    assert read_scopes(scopes, CATALOGUE) == (tuple(dict.fromkeys(scopes)), [])


@pytest.mark.parametrize(
    ("scopes", "problem"),
    [
        ([], "Give 1 to 50 scopes."),
        (["*"] * 51, "Give 1 to 50 scopes."),
        (["*"] * 10_000, "Give 1 to 50 scopes."),
        (5, "Use a list of scopes, each a text."),
        (None, "Use a list of scopes, each a text."),
        ([5], "Use a list of scopes, each a text."),
        ([b"models:read"], "Use a list of scopes, each a text."),
    ],
    ids=["none", "51", "10,000", "number", "None", "numbers", "bytes"],
)
def test_scopes_are_a_list_of_1_to_50_texts(scopes: Any, problem: str) -> None:
    assert read_scopes(scopes, CATALOGUE)[1] == [problem]


def test_every_unknown_scope_is_named() -> None:
    scopes = ["jobs:read", "jobs:reed", "", "JOBS:READ", " jobs:read", "jobs:reed"]
    _, problems = read_scopes(scopes, CATALOGUE)
    assert problems == [
        "There is no scope 'jobs:reed'.",
        "There is no scope ''.",
        "There is no scope 'JOBS:READ'.",
        "There is no scope ' jobs:read'. Use some of *, account:*, account:read, account:write, "
        "jobs:*, jobs:read, jobs:write, models:*, models:read, models:write, "
        "upload:*, upload:read, upload:write.",
    ]


def test_an_error_lists_only_part_of_a_large_catalogue() -> None:
    _, (problem,) = read_scopes(["nope"], Catalogue.of(f"area{n}:read" for n in range(14)))
    assert problem.count(",") == 40
    assert problem.endswith(", or another that there is.")


def test_an_unknown_scope_is_repeated_in_plain_characters_and_not_whole() -> None:
    _, (problem,) = read_scopes(["\ud800\u202e" + "x" * 100], CATALOGUE)
    assert problem.startswith(r"There is no scope '\ud800\u202e" + "x" * 62 + "'. ")
    assert problem.isascii()


# Lifetimes (D7)


@pytest.mark.parametrize(
    ("days", "micros"),
    [
        (None, None),
        *((days, days * DAY) for days in (1, 1.0, 0.5, 30, 36_500, 36_500.0)),
        (1 / 1440, 60 * SECOND),
    ],
)
def test_days_become_microseconds(days: float | None, micros: int | None) -> None:
    assert read_lifetime(days) == (micros, [])


@pytest.mark.parametrize(
    ("days", "said"),
    [
        *((days, "36500") for days in (0, 0.0, -0.0, -1, -1e-9, 36_500.001, 36_501, 1e308)),
        *((days, "36500") for days in (inf, -inf, nan, True, False, 10**30)),
        *((days, "36500") for days in (10**400, -(10**400))),  # JSON has such numbers (G3).
        *((days, "1/1440") for days in (5e-324, 1e-9, 0.0006944, 0.99999 / 1440)),
    ],
    ids=lambda value: f"{value!s:.20}{len(str(value))}",
)
def test_an_invalid_lifetime_or_one_under_a_minute_is_refused(days: float, said: str) -> None:
    lifetime, (problem,) = read_lifetime(days)
    assert lifetime is None
    assert said in problem


@given(st.floats(min_value=1 / 1440, max_value=36_500))
def test_no_lifetime_is_cut_short(days: float) -> None:
    lifetime, problems = read_lifetime(days)
    assert problems == []
    assert lifetime is not None and lifetime >= 60 * SECOND
    assert Fraction(lifetime) >= Fraction(days * DAY)
    assert Fraction(lifetime) - Fraction(days * DAY) < 1
