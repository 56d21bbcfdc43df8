"""E-mail addresses: what is one, and when two are the same (D14)."""

from typing import Final
from unicodedata import is_normalized

_LONGEST: Final = 320
"""Characters that are looked at: no address has more than 254, and letters may be composed."""


def read_email(value: str) -> tuple[str, list[str]]:
    """Normalise an address and say what is wrong with it, if anything.

    Normalised is: Unicode in its composed form (NFC), an international domain in its own letters,
    all in lower case. Dots, plus signs and letters that merely look alike stay what they are: only
    the mailbox's own provider knows whether they make another address.
    """
    from email_validator import EmailNotValidError, validate_email  # 40 ms, for those who register

    try:
        if len(value) > _LONGEST:
            raise EmailNotValidError
        found = validate_email(value, check_deliverability=False, strict=True)
    except EmailNotValidError:  # Its own words may repeat what was sent, which may be anything.
        return "", ["Use a plain e-mail address with a dotted domain, such as ada@example.com."]
    return found.normalized.lower(), []


def is_same_email(verified: str | None, billing_email: str) -> bool:
    """Whether an address that an identity provider has verified is an account's billing e-mail.

    One that has to be composed first is not: letters are then exchanged for others, such as the
    Kelvin sign for a K, and the provider did not verify that address.
    """
    if verified is None or not is_normalized("NFC", verified):
        return False
    email, problems = read_email(verified)
    return not problems and email == billing_email
