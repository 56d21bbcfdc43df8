"""The text of keys: format, header and matching (D1, D3, D18)."""

import copy
import hashlib
import hmac
import pickle
import re
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from itertools import count

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lockgate.core import key_format as credentials
from lockgate.core.digests import Digester, Peppers
from lockgate.core.key_format import KeyFormat, NewKey, check_handle, handle_from
from lockgate.errors import ConfigurationError, InvalidFormat, MissingAuth

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
PEPPER = b"0123456789abcdef" * 2
WORDS = st.from_regex(r"[a-z][a-z0-9]{1,19}", fullmatch=True)


def text_of(length: int) -> st.SearchStrategy[str]:
    return st.text(ALPHABET, min_size=length, max_size=length)


def base62(number: int, digits: int) -> str:
    """The slow way."""
    text = ""
    for _ in range(digits):
        number, digit = divmod(number, 62)
        text = ALPHABET[digit] + text
    assert number == 0
    return text


def written(brand: str, environment: str, handle: str, random: str) -> str:
    """A key by the letter of D1, made without lockgate."""
    body = f"{brand}_{environment}_{handle}_{random}"
    return body + base62(zlib.crc32(body.encode()), 6)


KEY = written("acme", "live", "Handle01", "r" * 37)
FORMAT = KeyFormat("acme")


def bearer(key: str) -> list[bytes]:
    return [f"Bearer {key}".encode()]


# The format (D1)


def test_a_handle_is_determined_by_bytes_and_its_characters_are_evenly_distributed() -> None:
    drawn = [handle_from(sha256(str(number).encode()).digest()) for number in range(2000)]
    assert len({*drawn}) == 2000
    assert handle_from(sha256(b"0").digest()) == drawn[0]
    assert not [handle for handle in drawn if check_handle(handle)]
    counts = Counter("".join(drawn))
    assert len(counts) == 62 and 180 < min(counts.values()) < max(counts.values()) < 340


@given(WORDS, WORDS, text_of(8), text_of(37))
def test_a_generated_key_is_parsed_back(
    brand: str, environment: str, handle: str, random: str
) -> None:
    parts = {8: handle, 37: random}
    form = KeyFormat(brand, environment, draw=parts.__getitem__)
    key = form.generate()
    assert key == (written(brand, environment, handle, random), handle)
    assert key.prefix == key.text[:15]
    token = form.read(bearer(key.text))
    assert token.handle == handle
    assert token.matches(*form.digest(key)[:2])
    assert re.fullmatch(form.scanner, key.text)


@given(st.binary())
@example(b"")
def test_the_checksum_is_the_crc_in_six_digits(text: bytes) -> None:
    assert credentials.checksum(text).decode() == base62(zlib.crc32(text), 6)


def test_every_change_of_one_character_is_detected() -> None:
    """A CRC-32 sees every error within 32 neighbouring bits."""
    for place, good in enumerate(KEY):
        for other in ALPHABET + "_-. é\n":
            if other != good:
                with pytest.raises(InvalidFormat):
                    FORMAT.read(bearer(KEY[:place] + other + KEY[place + 1 :]))


@given(st.integers(0, len(KEY) - 1))
def test_a_key_with_a_missing_or_extra_character_or_of_another_service_is_detected(
    place: int,
) -> None:
    others = (("acmf", "live"), ("acme", "test"), ("acm", "elive"))
    for wrong in (
        KEY[:place] + KEY[place + 1 :],
        KEY[:place] + KEY[place] + KEY[place:],
        *(written(brand, environment, "Handle01", "r" * 37) for brand, environment in others),
    ):
        with pytest.raises(InvalidFormat):
            FORMAT.read(bearer(wrong))


@pytest.mark.parametrize("word", ["", "a", "A1", "1a", "a" * 21, "a_b", "ab\n", "é1", "a-b", "a b"])
def test_a_word_that_would_spoil_the_format_is_refused(word: str) -> None:
    with pytest.raises(ConfigurationError, match="brand"):
        KeyFormat(word)
    with pytest.raises(ConfigurationError, match="environment"):
        KeyFormat("acme", word)


def test_keys_are_drawn_from_the_systems_randomness(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr("secrets.choice", lambda letters: letters[next(ticks) % len(letters)])
    key = FORMAT.generate()
    assert key.text == written("acme", "live", ALPHABET[:8], ALPHABET[8:45])
    assert next(ticks) == 8 + 37


# For secret scanners


@given(st.text("aZ9_- .\"'\n=é", max_size=5), st.text("aZ9_- .\"'\n=é", max_size=5))
def test_the_scanner_finds_whole_keys_in_text(before: str, after: str) -> None:
    word = r"[0-9A-Za-z_é]"
    alone = not re.search(word + r"\Z", before) and not re.match(word, after)
    found = re.findall(FORMAT.scanner, before + KEY + after)
    assert found == ([KEY] if alone else [])


def test_keys_in_a_text_are_redacted() -> None:
    text = f"GET /?key={KEY} by x{FORMAT.generate().text}_x; {KEY[:-1]}"
    assert FORMAT.redact(text) == (
        "GET /?key=acme_live_<redacted> by xacme_live_<redacted>; acme_live_<redacted>"
    )
    assert FORMAT.redact("nothing") == "nothing"


# The header (D18)


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER ", "bEaReR ", "Bearer    "])
@pytest.mark.parametrize("around", ["", " ", "\t", " \t  "], ids=repr)
def test_the_scheme_may_have_any_case_and_spaces_after_and_around_it(
    scheme: str, around: str
) -> None:
    """RFC 9110, section 5.5."""
    assert FORMAT.read([f"{around}{scheme}{KEY}{around}".encode()]).handle == "Handle01"


def test_no_header_is_missing_authentication() -> None:
    with pytest.raises(MissingAuth):
        FORMAT.read([])


BAD_VALUES = {
    "blank": b"",
    "space": b" ",
    "no scheme": KEY.encode(),
    "no key": b"Bearer",
    "a space for a key": b"Bearer ",
    "no space": f"Bearer{KEY}".encode(),
    "a tab": f"Bearer\t{KEY}".encode(),
    "a colon": f"Bearer: {KEY}".encode(),
    "a line feed before": f"\nBearer {KEY}".encode(),
    "a line feed after": f"Bearer {KEY}\n".encode(),
    "a null after": f"Bearer {KEY}\0".encode(),
    "quotes": f'Bearer "{KEY}"'.encode(),
    "two keys": f"Bearer {KEY}, Bearer {KEY}".encode(),
    "two keys, one scheme": f"Bearer {KEY} {KEY}".encode(),
    "parameters": f"Bearer token={KEY}".encode(),
    "basic": b"Basic dXNlcjpwYXNz",
    "basic with a key": f"Basic {KEY}".encode(),
    "twice bearer": f"Bearer Bearer {KEY}".encode(),
    "latin-1": f"Bearer {KEY[:-1]}é".encode("latin-1"),
    "utf-8": f"Bearer {KEY[:-1]}é".encode(),
    "a no-break space": b"Bearer\xa0" + KEY.encode(),
    "a long s in the scheme": "Bearer ".replace("r", "\u017f").encode() + KEY.encode(),
    "a JWT": b"Bearer eyJhbGciOiJub25lIn0.e30.",
    "over 256 bytes": b"Bearer" + b" " * 256 + KEY.encode(),
    "very long": b"Bearer " + b"a" * 1_000_000,
}


@pytest.mark.parametrize("value", BAD_VALUES.values(), ids=BAD_VALUES)
def test_a_value_other_than_one_bearer_key_is_an_invalid_format_and_not_repeated_K11(
    value: bytes,
) -> None:
    with pytest.raises(InvalidFormat) as caught:
        FORMAT.read([value])
    refusal = caught.value
    told = f"{refusal!r} {refusal} {refusal.body()} {refusal.headers()} {refusal.args}"
    assert "acme" not in told and "Handle01" not in told


def test_256_bytes_are_read_and_257_are_not_nor_two_headers() -> None:
    spaces = b" " * (256 - len("Bearer") - len(KEY))
    assert FORMAT.read([b"Bearer" + spaces + KEY.encode()]).handle == "Handle01"
    for wrong in ([b"Bearer " + spaces + KEY.encode()], bearer(KEY) * 2, [*bearer(KEY), b""]):
        with pytest.raises(InvalidFormat):
            FORMAT.read(wrong)


@given(st.lists(st.binary(max_size=300), max_size=3))
def test_any_header_is_a_key_or_a_refusal(values: list[bytes]) -> None:
    with pytest.raises(InvalidFormat if values else MissingAuth):
        FORMAT.read(values)


# Matching of keys (D3)


def test_peppers_rotate_as_a_list() -> None:
    """K9: a digest by an older pepper, or by none, stays valid until that pepper is dropped."""
    old, new = b"an old pepper, of the tests", b"a new pepper, of the tests"
    key = FORMAT.generate()
    before = KeyFormat("acme", peppers=Peppers([old])).digest(key)
    bare = FORMAT.digest(key)
    both = KeyFormat("acme", peppers=Peppers([new, old], accept_plain=True))
    token = both.read(bearer(key.text))
    assert token.matches(*before[:2])
    assert token.matches(*bare[:2])
    assert token.matches(*both.digest(key)[:2])
    assert token.fresh_digest() == both.digest(key)
    assert both.digest(key) == KeyFormat("acme", peppers=Peppers([new])).digest(key)
    assert len({before.scheme, bare.scheme, both.digest(key).scheme}) == 3
    dropped = KeyFormat("acme", peppers=Peppers([new])).read(bearer(key.text))
    assert not dropped.matches(*before[:2])
    assert not dropped.matches(*bare[:2])


NO_SCHEMES = ["", "sha-256", "md5", "hmac-sha256:", "hmac-sha256:00000000"]
DIGESTS = [b"", bytes(32), hashlib.sha256(KEY.encode()).digest()]


@given(st.text() | st.sampled_from(NO_SCHEMES), st.binary() | st.sampled_from(DIGESTS))
def test_an_unknown_scheme_matches_no_digest(scheme: str, digest: bytes) -> None:
    """A row without a digest, or with a dropped scheme, matches no key."""
    for peppers in (Peppers(), Peppers([PEPPER])):
        token = KeyFormat("acme", peppers=peppers).read(bearer(KEY))
        assert scheme in peppers.digesters or not token.matches(scheme, digest)


@given(st.integers(0, 31), st.integers(1, 255), text_of(37) | st.just("r" * 37))
def test_only_the_right_key_and_digest_match_K1(place: int, flip: int, random: str) -> None:
    """Neither a digest that differs in a byte, nor another key of the same handle."""
    scheme, value, _ = FORMAT.digest(NewKey(KEY, "Handle01"))
    wrong = bytearray(value)
    wrong[place] ^= flip
    token = FORMAT.read(bearer(KEY))
    assert token.matches(scheme, value)
    for other in (bytes(wrong), value[:-1], b""):
        assert not token.matches(scheme, other)
    another = FORMAT.read(bearer(written("acme", "live", "Handle01", random)))
    assert another.matches(scheme, value) == (random == "r" * 37)


@pytest.mark.parametrize("peppers", [Peppers(), Peppers([PEPPER, b"older" * 5])])
def test_where_no_key_is_found_the_same_work_is_done(
    peppers: Peppers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K10, in calls: one digest by the scheme of new keys, one comparison of equal lengths."""
    work: list[tuple[object, ...]] = []

    def counted(scheme: str, digester: Digester) -> Digester:
        def digest(secret: bytes) -> bytes:
            work.append(("digest", scheme, len(secret)))
            return digester(secret)

        return digest

    def compare(a: bytes, b: bytes) -> bool:
        work.append(("compare", len(a), len(b)))
        return hmac.compare_digest(a, b)

    digesters = {scheme: counted(scheme, way) for scheme, way in peppers.digesters.items()}
    monkeypatch.setattr(peppers, "digesters", digesters)
    monkeypatch.setattr(credentials, "compare_digest", compare)
    token = KeyFormat("acme", peppers=peppers).read(bearer(KEY))
    assert not token.matches(peppers.scheme, bytes(range(32)))
    wrong_secret, work[:] = list(work), []
    assert not token.compare_with_dummy()
    assert work == wrong_secret == [("digest", peppers.scheme, len(KEY)), ("compare", 32, 32)]


# No secret in a repr (K2)


def shown(value: object) -> str:
    return " ".join([repr(value), str(value), f"{value}", f"{[value]}", f"{value!a}"])


def test_neither_a_token_nor_a_new_key_shows_itself() -> None:
    made, token = FORMAT.generate(), FORMAT.read(bearer(KEY))
    assert made.text[20:] not in shown(made)
    assert KEY[20:] not in shown(token)
    assert repr(token) == str(token) == f"{token}" == "<Token>"
    assert not hasattr(token, "__dict__")
    calls: tuple[Callable[[], object], ...] = (
        *(
            partial(pickle.dumps, token, protocol)
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
        ),
        lambda: copy.copy(token),
        lambda: copy.deepcopy(token),
        lambda: token.matches("sha256", "no bytes"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - that is the test
    )
    for call in calls:
        with pytest.raises(TypeError) as caught:
            call()
        assert KEY[20:] not in "".join(traceback.format_exception(caught.value))
