"""Weak secrets are refused when a gate is constructed."""

import secrets

import pytest

from lockgate import Gate
from lockgate.core.weak_secrets import PUBLISHED, refuse_weak
from lockgate.errors import ConfigurationError
from lockgate.options import KeyOptions
from lockgate.sessions import SignedCookie
from lockgate.sessions.agent_cookie import AgentCookie

GUESSABLE = ["", "short", "x" * 15, "x" * 64, "abcd" * 16, "1234123412341234", *sorted(PUBLISHED)]


@pytest.mark.parametrize("secret", GUESSABLE)
def test_a_guessable_secret_is_refused_wherever_one_is_given(secret: str) -> None:
    for build in (
        lambda: Gate(brand="acme", peppers=[secret.encode()]),
        lambda: Gate(brand="acme", peppers=[secrets.token_bytes(32), secret.encode()]),
        lambda: SignedCookie([secret]),
        lambda: SignedCookie([secrets.token_urlsafe(32), secret]),
        lambda: AgentCookie([secret]),
    ):
        with pytest.raises(ConfigurationError, match=r"make one with secrets\.token_") as caught:
            build()
        assert len(secret) < 6 or secret not in str(caught.value)


def test_published_secrets_with_blanks_and_text_that_is_no_utf_8_are_refused() -> None:
    for secret in PUBLISHED:
        with pytest.raises(ConfigurationError, match="published"):
            refuse_weak("pepper", f" {secret}\n".encode(), "...")
    secret = "from the environment: \udcff"
    with pytest.raises(ConfigurationError, match="UTF-8") as caught:
        SignedCookie([secret])
    assert secret not in str(caught.value)
    assert caught.value.__context__ is None, "it is not kept in the error"


@pytest.mark.parametrize(
    "written",
    ["{}\n", "{}\r\n", " {}", "\t{}", "{} ", "{}\u00a0", "\n{}\n", "\ufeff{}", "{}\u200b"],
)
def test_a_secret_with_white_space_around_it_is_refused_and_not_repeated_D53(written: str) -> None:
    good = secrets.token_urlsafe(32)
    secret = written.format(good)
    for build in (
        lambda: Gate(brand="acme", peppers=[secret.encode()]),
        lambda: Gate(brand="acme", peppers=[good.encode(), secret.encode()]),
        lambda: Gate(brand="acme", peppers=[], key_options=KeyOptions(next_pepper=secret.encode())),
        lambda: SignedCookie([secret]),
        lambda: AgentCookie([good, secret]),
    ):
        with pytest.raises(ConfigurationError, match="begins or ends with white space") as caught:
            build()
        assert good not in str(caught.value)


@pytest.mark.parametrize("white", [b"\n", b" ", b"\r\n"])
def test_random_bytes_are_used_as_they_are_whatever_they_end_with_D53(white: bytes) -> None:
    random = b"\x91\x00\xfe\x88\xc3\x28\xa0\xa1\xe2\x28\xa1\xf0\x28\x8c\xbc\x00"
    refuse_weak("pepper", white + random + white, "...")


def test_random_secrets_and_those_with_blanks_inside_are_accepted_D53() -> None:
    refuse_weak("pepper", b"correct horse battery staple", "...")
    for make in (secrets.token_bytes, secrets.token_hex, secrets.token_urlsafe):
        for _ in range(200):
            refuse_weak("pepper", make(16), "...")
