"""How keys of other systems look, and that no text keeps their patterns busy."""

from __future__ import annotations

import pickle
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate import ConfigurationError
from lockgate.core.digests import Peppers
from lockgate.core.imported_keys import ImportedKeyFormat, ImportedToken
from lockgate.core.key_format import KeyFormat
from lockgate.errors import InvalidFormat

PEPPERS = Peppers([b"a pepper of the tests, long enough"])


def legacy(pattern: str = r"pk_(?P<handle>[a-z]{4})_\w{8}", **fields: Any) -> ImportedKeyFormat:
    return ImportedKeyFormat(
        **{"name": "other", "pattern": pattern, "schemes": ["sha256"], **fields}
    )


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?P<handle>[A-Za-z0-9]{8})\.[A-Za-z0-9]{32}",
        r"(?P<handle>\w+)-\w+",
        r"(?:live|test)_(?P<handle>[0-9a-f]{16})_[!-~]{20,60}",
        r"(?P<handle>[]a-z[]{4})\)\+\{[)*+]{4}x?",
        r"(?P<handle>[^-]{4})-[^]]*",
        r"sk.(?P<handle>.{4})(a|b)c",
    ],
)
def test_patterns_that_are_quick(pattern: str) -> None:
    found = legacy(pattern)
    for text in ("a" * 256, "(" * 256, "a-" * 128, "-" * 255 + "a", "\\" * 256, "a" * 255 + "\n"):
        started = time.perf_counter()
        found.looks_like(text)
        assert time.perf_counter() - started < 0.5


AROUND = [
    *(r"(?P<handle>a)(?=b)b", r"(?P<handle>a)(?!b)b", r"(?<=a)(?P<handle>a)", r"(?P<handle>a)\1"),
    *(r"(?P<handle>a)(?P=handle)", r"(?i)(?P<handle>a)", r"(?P<handle>a)(?#x)"),
]
REPEATED = [
    *(r"(?P<handle>(a+)+)b", r"(?P<handle>(a|a)*)b", r"(?P<handle>(?:a|aa){30})b", r"*a"),
    *(r"(?P<handle>(a?){30})b", r"(?P<handle>a)?b", r"(?P<handle>a){4}b"),
]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        *((pattern, "repeats a group") for pattern in REPEATED),
        *((pattern, "around or back") for pattern in AROUND),
        (r"(?P<handle>a*)a*a*b", "3 repeats of no fixed length"),
        (r"(?P<handle>a{1,9})[ab]?\w+", "3 repeats of no fixed length"),
        *((pattern, "pattern of 'other'") for pattern in (r"(?P<handle>a", r"[a", r"(*a)")),
        *((pattern, "no group 'handle'") for pattern in (r"pk_(?P<name>[a-z]{4})", r"pk_[a-z]{4}")),
    ],
)
def test_patterns_that_are_refused(pattern: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        legacy(pattern)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        *(
            ({"schemes": wrong}, "a list of some of")
            for wrong in ([], ["plaintext"], ["md5_crypt"])
        ),
        ({"schemes": "sha256"}, "schemes is .* give a list of text"),
        ({"schemes": ["sha256", "hmac-sha256"], "hmac_key": b"k"}, "look alike"),
        ({"schemes": ["hmac-sha256"]}, "hmac_key"),
        ({"schemes": ["sha256"], "hmac_key": b"k"}, "hmac_key"),
        ({"secret": "secret"}, "no group 'secret'"),
        ({"handle": "prefix"}, "no group 'prefix'"),
        *(
            ({"name": name}, "1 to 20 of a-z")
            for name in ("", "Other", "1st", "a" * 21, "a:b", "a b", "a\n")
        ),
    ],
)
def test_inconsistent_arguments_are_refused_with_the_reason(
    fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        legacy(**fields)


def test_stored_handles_and_schemes_fit_every_store() -> None:
    longest = ImportedKeyFormat("a" * 20, r"(?P<handle>\w{4})", schemes=["django_bcrypt_sha256"])
    assert len(longest.kept_scheme("django_bcrypt_sha256")) <= 64
    for handle in ("abcd", "\u00e9\ud800", "x" * 256, "a b"):
        kept = longest.kept_handle(handle)
        assert len(kept) == 44
        assert kept.isascii() and kept.isprintable() and " " not in kept
        assert not KeyFormat("acme").generate().handle.startswith(kept[0])


@given(st.binary(max_size=300))
def test_any_header_gives_a_token_or_the_refusal(value: bytes) -> None:
    format = KeyFormat("acme", others=[legacy(r"(?P<handle>\w+)-\w+")])
    for header in (value, b"Bearer " + value):
        try:
            token = format.read([header])
        except InvalidFormat:
            continue
        assert isinstance(token, ImportedToken)
        assert len(header) <= 256


@pytest.mark.parametrize(
    "header",
    [
        *(b"pk_abcd_12345678", b"Api-Key pk_abcd_12345678", b"Basic pk_abcd_12345678"),
        *(b"Bearer pk_abcd_12345678x", b"Bearer xpk_abcd_12345678", b"Bearer pk_abcd_12345678\n"),
        *(b"Bearer pk_abcd_1234567\xc3\xa9", b"Bearer pk_abcd_12345678 pk_abcd_12345678"),
        *(b"Bearer " + b" " * 250 + b"pk_abcd_12345678", b"Bearer", b"Bearer "),
    ],
)
def test_headers_without_an_imported_key_are_refused(header: bytes) -> None:
    format = KeyFormat("acme", others=[legacy()])
    with pytest.raises(InvalidFormat):
        format.read([header])
    assert format.read([b" bearer  pk_abcd_12345678\t"]).handle == legacy().kept_handle("abcd")


def test_the_first_system_that_fits_a_key_counts() -> None:
    first = ImportedKeyFormat("first", r"(?P<handle>\w{4})-\w{4}", schemes=["sha256"])
    second = ImportedKeyFormat("second", r"(?P<handle>\w{4})-\w+", schemes=["sha256"])
    format = KeyFormat("acme", others=[first, second])
    tokens = [format.read([b"Bearer abcd-" + b"x" * length]) for length in (4, 5)]
    assert [t.legacy.name for t in tokens if isinstance(t, ImportedToken)] == ["first", "second"]


def test_an_unmatched_group_is_no_handle_and_no_secret() -> None:
    assert legacy(r"k(?P<handle>a|)x").read("kx", PEPPERS) is None
    either = legacy(r"(?P<handle>\w{4})-((?P<secret>s\w{3})|none)", secret="secret")
    assert either.read("abcd-none", PEPPERS) is None
    assert either.read("abcd-sabc", PEPPERS) is not None


def test_a_token_does_not_show_itself() -> None:
    token = legacy().read("pk_abcd_12345678", PEPPERS)
    assert token is not None
    assert "12345678" not in repr(token) + str(token)
    with pytest.raises(TypeError):
        pickle.dumps(token)
