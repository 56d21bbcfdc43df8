"""Weak secrets are refused when a gate is constructed."""

import secrets

import pytest

from lockgate import Gate
from lockgate.core.weak_secrets import PUBLISHED, refuse_weak
from lockgate.errors import ConfigurationError
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


def test_a_published_secret_is_refused_with_the_blanks_that_a_file_leaves_around_it() -> None:
    for secret in PUBLISHED:
        with pytest.raises(ConfigurationError, match="published"):
            refuse_weak("pepper", f" {secret}\n".encode(), "...")


def test_text_that_is_no_utf_8_is_refused_and_not_kept_in_the_error() -> None:
    secret = "from the environment: \udcff"
    with pytest.raises(ConfigurationError, match="UTF-8") as caught:
        SignedCookie([secret])
    assert secret not in str(caught.value)
    assert caught.value.__context__ is None


def test_random_secrets_are_accepted() -> None:
    for make in (
        lambda: secrets.token_bytes(16),
        lambda: secrets.token_bytes(32),
        lambda: secrets.token_hex(16),
        lambda: secrets.token_urlsafe(32),
    ):
        for _ in range(200):
            refuse_weak("pepper", make(), "...")
