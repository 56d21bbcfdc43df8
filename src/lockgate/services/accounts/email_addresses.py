"""E-mail addresses: validate, normalise and compare (D14)."""

from importlib import import_module
from typing import Final
from unicodedata import is_normalized

from ...errors import ConfigurationError

_LONGEST: Final = 320
"""The longest input, in characters: an address has at most 254, more before normalisation."""
_LONGEST_MAILBOX: Final = 64
"""The longest part before the ``@``, in characters, before and after normalisation (RFC 5321,
4.5.3.1.1). From 2.3 on email-validator leaves this to its callers."""


def check_installed() -> None:
    """Check that addresses can be validated.

    Raises:
        ConfigurationError: email-validator is not installed.
    """
    try:
        import_module("email_validator")  # Takes 40 ms.
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"Registration(...) needs {missing.name}: pip install 'lockgate[registration]'."
        ) from missing


def read_email(value: str) -> tuple[str, list[str]]:
    """Return a normalised address and its problems, of which a valid address has none.

    Normalised: Unicode in its composed form (NFC), an international domain in Unicode, all in lower
    case. Dots, plus signs and look-alike letters are kept: only the mailbox's provider decides
    whether they make another address.
    """
    from email_validator import EmailNotValidError, validate_email

    try:
        if len(value) > _LONGEST:
            raise EmailNotValidError
        found = validate_email(value, check_deliverability=False)
        mailboxes = value.rpartition("@")[0], found.local_part
        if max(map(len, mailboxes)) > _LONGEST_MAILBOX:
            raise EmailNotValidError
    except EmailNotValidError:  # Its message may repeat the input, which may be a secret.
        return "", ["Use a plain e-mail address with a dotted domain, such as ada@example.com."]
    return found.normalized.lower(), []


def is_same_email(verified: str | None, billing_email: str) -> bool:
    """Return whether an identity provider's verified address is an account's billing e-mail.

    False for an address that normalisation to NFC changes: it replaces letters, such as the Kelvin
    sign by a K, and the provider did not verify that address.
    """
    if verified is None or not is_normalized("NFC", verified):
        return False
    email, problems = read_email(verified)
    return not problems and email == billing_email
