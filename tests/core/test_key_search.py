"""From the texts that people have of a key to a search, and which texts hold a secret."""

from __future__ import annotations

import pytest

from lockgate.core.api_keys import ApiKey
from lockgate.core.imported_keys import ImportedKeyFormat
from lockgate.core.key_format import KeyFormat
from lockgate.core.key_search import KeySearch, holds_secret, matches, read_search

FORMAT = KeyFormat("acme")
OTHER = ImportedKeyFormat("old", r"sk_(?P<handle>[a-z0-9]{6})_[a-z0-9]{20}", schemes=["sha256"])
ID = "3f1c7d1e-6a50-4f0e-9f8a-2f9b8f2f0a11"
NAMED = ApiKey(
    id=ID,
    handle="51c0a8f0",
    organization="org_1",
    name="Worker in Stra\N{LATIN SMALL LETTER SHARP S}e",
    prefix="acme_live_51c0a",
    scopes=("*",),
    scheme="sha256",
    digest=b"",
    seal=None,
    created_at=0,
    expires_at=None,
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("acme_live_51c0a", KeySearch(handle="51c0a")),
        ("acme_live_51c0a...", KeySearch(handle="51c0a")),
        (" acme_live_51c0a\N{HORIZONTAL ELLIPSIS}\n", KeySearch(handle="51c0a")),
        ("acme_live_5", KeySearch(handle="5")),
        ("acme_live_51c0a8f0_b8e5", KeySearch(handle="51c0a8f0")),
        ("acme_live_51c0a8f0b8e5", KeySearch(handle="51c0a8f0")),
        (ID, KeySearch(id=ID)),
        (ID.upper(), KeySearch(id=ID)),
        ("sk_abc123", KeySearch(prefix="sk_abc123")),
        ("acme_live_*", KeySearch(prefix="acme_live_*")),
        ("acme_test_51c0a", KeySearch(prefix="acme_test_51c0a")),
        ("", KeySearch(prefix="")),
    ],
)
def test_a_text_becomes_a_search(text: str, wanted: KeySearch) -> None:
    assert read_search(text, FORMAT)[0] == wanted


def test_a_text_holds_a_secret_from_the_first_character_after_the_handle_on() -> None:
    format = KeyFormat("acme", others=[OTHER])
    key = format.generate()
    for length in range(len(key.text) + 1):
        hidden = key.text[len("acme_live_XXXXXXXX") : length].strip("_")
        assert holds_secret(f"a {key.text[:length]}", format) is bool(hidden)
    assert holds_secret("acme_dashboard_51c0a8f0_b", format)
    assert holds_secret(KeyFormat("acme", "test").generate().text[:20], format)
    assert holds_secret(KeyFormat("other").generate().text, format)
    assert holds_secret("sk_abc123_" + "q" * 20, format)
    for text in (ID, "sk_abc123", key.prefix, f"{key.prefix}...", "", "org_1"):
        assert not holds_secret(text, format)


SHARP = "stra\N{LATIN SMALL LETTER SHARP S}e"


@pytest.mark.parametrize("text", ["", "Work", "WORKER", SHARP, "STRASSE"])
def test_a_key_matches_a_part_of_its_name_in_any_case_or_the_beginning_of_its_prefix(
    text: str,
) -> None:
    assert matches(NAMED, text)
    for prefix in ("acme_live_", "acme_live_51c0a"):
        assert matches(NAMED, prefix)
        assert not matches(NAMED, prefix[1:])
        assert not matches(NAMED, f"{prefix}8f")
