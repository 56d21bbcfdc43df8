"""Forms of pages: their fields, and the token that binds each to its session (CSRF)."""

import hmac
import secrets
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final
from urllib.parse import parse_qs, urlencode

from itsdangerous import BadData, BadSignature, TimestampSigner, URLSafeTimedSerializer

from ..core.digests import Peppers
from ..core.key_format import handle_from
from ..errors import Forbidden, InvalidRequest, Problem
from ..sessions import Session

FIELDS_AT_MOST: Final = 200
TOKEN_FIELD: Final = "form_token"  # noqa: S105 - the name of a field
LIFETIME: Final = 12 * 3600
"""Seconds for which a page's form can be sent."""


_PERSON_LENGTH: Final = 64


class FormOutdated(Forbidden):
    """The token of a form is missing, too old, or of another session."""

    code = "FORM_OUTDATED"
    default_message = "This form is out of date: open the page again, and send it from there."


class Form:
    """The fields of a form that was sent.

    Args:
        body: ``application/x-www-form-urlencoded``, in UTF-8.

    Raises:
        InvalidRequest: it is not in UTF-8, or has too many fields.
    """

    def __init__(self, body: bytes = b"") -> None:
        try:
            self._fields: Mapping[str, Sequence[str]] = parse_qs(
                body.decode(),
                keep_blank_values=True,
                max_num_fields=FIELDS_AT_MOST,
                errors="strict",
            )
        except ValueError:
            raise InvalidRequest(
                [Problem("", "The form is not readable: send it again.")]
            ) from None

    def one(self, name: str, default: str = "") -> str:
        """Return the only value of a field; the default if it is missing or comes twice."""
        values = self._fields.get(name, ())
        return values[0] if len(values) == 1 else default

    def all(self, name: str) -> tuple[str, ...]:
        """Return every value of a field."""
        return tuple(self._fields.get(name, ()))

    def fields(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return all fields with their values, sorted by name."""
        return sorted((name, tuple(values)) for name, values in self._fields.items())

    def lines(self, name: str) -> list[str]:
        """Return the lines of a field that are not blank."""
        return [line.strip() for line in self.one(name).splitlines() if line.strip()]


class FormTokens:
    """Makes and checks the tokens of forms.

    A token is signed with its own secret, derived from the gate's oldest pepper: so every
    process accepts it, and no secret is added. A gate without peppers draws one for this process.
    It names the person and not their cookie, which identity providers replace every minute.

    Args:
        peppers: the peppers of the gate.
    """

    def __init__(self, peppers: Peppers) -> None:
        drawn = peppers.pseudonym("dashboard", "forms") if peppers.seals else secrets.token_hex()
        self._secret: Final = sha256(f"handles: {drawn}".encode()).digest()
        self._signer = TimestampSigner(drawn, salt="lockgate.dashboard", digest_method=sha256)
        self._drafts = URLSafeTimedSerializer(
            drawn, salt="lockgate.drafts", signer_kwargs={"digest_method": sha256}
        )

    def write(self, session: Session) -> str:
        """Return a new token for a session. No two tokens are the same."""
        return self._signer.sign(_person(session) + secrets.token_hex(16).encode()).decode()

    def check(self, token: str, session: Session) -> None:
        """Check the token of a form that was sent.

        Raises:
            FormOutdated: it is not a token of this session from the last :data:`LIFETIME` seconds.
        """
        person = self._person_of(token)
        if person is None or not secrets.compare_digest(person, _person(session)):
            raise FormOutdated

    def _person_of(self, token: str) -> bytes | None:
        """Return the person that a token is for; None: it is none, or too old."""
        try:
            return self._signer.unsign(token, max_age=LIFETIME)[:_PERSON_LENGTH]
        except BadSignature:
            return None

    def write_draft(
        self, token: str, place: str, fields: Mapping[str, Sequence[str]]
    ) -> str | None:
        """Return fields of a form as a text for the person that its token is for.

        Args:
            token: the token of the form.
            place: the page that the form is on.
            fields: its values by name.

        Returns:
            A text for a cookie; None: the token is no token of the last :data:`LIFETIME` seconds.
        """
        person = self._person_of(token)
        if person is None:
            return None
        return str(self._drafts.dumps([person.decode(), place, {**fields}]))

    def read_draft(self, text: str, session: Session, place: str, max_age: int) -> Form | None:
        """Return the fields of :meth:`write_draft`; None: they are another person's, of another
        page, or older than ``max_age`` seconds."""
        try:
            person, at, fields = self._drafts.loads(text, max_age=max_age)
        except BadData:
            return None
        is_theirs = secrets.compare_digest(person.encode(), _person(session))
        return Form(urlencode(fields, doseq=True).encode()) if is_theirs and at == place else None

    def handle(self, form: Form, organization: str) -> str:
        """Return the handle of the key that a form creates for an organization.

        The same form with the same values has the same handle, so its second insert is refused. It
        is a keyed hash, so no person can choose it; the secret part of the key is random.

        Args:
            form: the submitted form, its token already checked.
            organization: the id of the organization.
        """
        sent = f"{organization!r} {form.fields()!r}".encode("utf-8", "surrogatepass")
        return handle_from(hmac.digest(self._secret, sent, "sha512"))


def _person(session: Session) -> bytes:
    named = repr((session.organization, session.user, session.agent))
    return sha256(named.encode("utf-8", "surrogatepass")).hexdigest().encode()
