"""Keys that were admitted lately."""

import pytest

from lockgate import gate as module
from lockgate.core.key_format import HEADER_LENGTH, NewKey
from lockgate.gate import VerifiedKeyCache
from tests.stores.making import NOW, draft_of, new_key, token_of


def shown(key: NewKey) -> bytes:
    return f"Bearer {key.text}".encode()


def remember(known: VerifiedKeyCache, key: NewKey) -> None:
    known.remember(shown(key), token_of(key), draft_of(key).created(NOW))


def test_only_an_admitted_key_is_found_and_only_by_its_exact_header() -> None:
    known, key = VerifiedKeyCache(), new_key()
    assert known.find([shown(key)]) is None
    remember(known, key)
    token = known.find([shown(key)])
    assert token is not None
    assert token.handle == key.handle
    assert known.find([]) is None
    assert known.find([shown(key), shown(key)]) is None
    assert known.find([shown(key) + b" "]) is None
    assert known.find([shown(new_key())]) is None
    for _ in range(2):
        known.forget(shown(key))
        assert known.find([shown(key)]) is None
    long = shown(key) + b" " * HEADER_LENGTH
    known.remember(long, token_of(key), draft_of(key).created(NOW))
    assert known.find([long]) is None


def test_a_found_token_matches_only_the_admitted_digest() -> None:
    known, key = VerifiedKeyCache(), new_key()
    remember(known, key)
    row = draft_of(key).created(NOW)
    token = known.find([shown(key)])
    assert token is not None
    assert token.matches(row.scheme, row.digest)
    assert not token.matches("sha512", row.digest)
    assert not token.matches(row.scheme, bytes(32))
    assert not token.compare_with_dummy()
    assert token.fresh_digest() is None


def test_no_key_is_kept() -> None:
    known, key = VerifiedKeyCache(), new_key()
    remember(known, key)
    token = known.find([shown(key)])
    kept = [known._tokens, *(getattr(token, name) for name in ("_secret", "matched", "handle"))]
    assert key.text not in repr(kept)
    assert key.text[-20:] not in repr(kept)


def test_a_full_memory_keeps_the_keys_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgetting all at once would lock out every key behind an address that is being flooded."""
    monkeypatch.setattr(module, "_KNOWN_AT_MOST", 20)
    known, busy = VerifiedKeyCache(), new_key()
    remember(known, busy)
    for _ in range(100):
        for _ in range(2):
            remember(known, new_key())
        assert known.find([shown(busy)]) is not None
        assert len(known._tokens) <= 20
