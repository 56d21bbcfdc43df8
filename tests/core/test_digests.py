"""Digests of keys, and their peppers (D3)."""

import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate.core.digests import Peppers
from lockgate.errors import ConfigurationError

PEPPER = b"0123456789abcdef" * 2


# Fewer than 5 distinct bytes would be refused.
STRONG = st.binary(min_size=11, max_size=200).map(b"5 of \xff".__add__)


@given(STRONG, st.binary(max_size=300))
def test_a_digest_is_the_standard_hmac(pepper: bytes, secret: bytes) -> None:
    peppers = Peppers([pepper])
    wanted = hmac.new(pepper, secret, hashlib.sha256).digest()
    assert peppers.digest(secret) == (peppers.scheme, wanted, None)
    assert peppers.scheme.startswith("hmac-sha256:")
    plain = hashlib.sha256(secret).digest()
    assert Peppers().digest(secret) == ("sha256", plain, None)
    assert Peppers([pepper], accept_plain=True).digesters["sha256"](secret) == plain


@pytest.mark.parametrize("length", [16, 63, 64, 65, 128])
def test_a_digest_is_the_standard_hmac_at_the_block_size(length: int) -> None:
    pepper = bytes(range(length))
    wanted = hmac.new(pepper, b"secret", hashlib.sha256).digest()
    assert Peppers([pepper]).digest(b"secret").value == wanted


@pytest.mark.parametrize(
    "peppers", [PEPPER, PEPPER.decode(), [PEPPER.decode()]], ids=["bytes", "str", "list of str"]
)
def test_peppers_are_a_list_of_bytes(peppers: Any) -> None:
    """One alone would be read as a list of its letters."""
    with pytest.raises(ConfigurationError, match="list of bytes"):
        Peppers(peppers)


@given(STRONG, st.text(max_size=20), st.text(max_size=300))
def test_a_pseudonym_is_the_standard_hmac_with_the_subkey_of_its_purpose_and_oldest_pepper(
    pepper: bytes, purpose: str, text: str
) -> None:
    peppers = Peppers([PEPPER, pepper])
    label = f"lockgate: pseudonym: {purpose}".encode()
    key = hmac.new(pepper, label, hashlib.sha256).digest()
    wanted = hmac.new(key, text.encode(), hashlib.sha512).hexdigest()
    assert Peppers().pseudonym(purpose, text) == hashlib.sha512(text.encode()).hexdigest()
    assert peppers.pseudonym(purpose + "s", text) != wanted
    assert [peppers.pseudonym(purpose, text) for _ in range(2)] == [wanted] * 2


def test_peppers_show_only_their_names() -> None:
    peppers = Peppers([PEPPER])
    assert repr(peppers) == f"<Peppers {peppers.scheme}>"
    shown = f"{peppers} {[peppers]}"
    assert PEPPER.decode() not in shown
    assert PEPPER.hex()[:8] not in shown
