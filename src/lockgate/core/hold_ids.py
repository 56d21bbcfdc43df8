"""The id of a hold, by which any process settles it: its organization, its budgets, and a random
part."""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from secrets import token_hex
from typing import Final, NamedTuple, Self

from .holds import PREFIX
from .limits import NAME, WINDOWS_AT_MOST
from .plans import is_id

_SECRET: Final = re.compile(r"[0-9a-f]{32}")
_FIELD: Final = re.compile(rf"{NAME.pattern} [1-9][0-9]{{0,4}}( [!-~]{{1,64}})?")
_LONGEST: Final = 4096


class HoldId(NamedTuple):
    """The parts of a hold's id."""

    secret: str
    """32 hexadecimal digits, impossible to guess."""
    organization: str
    fields: tuple[str, ...]
    """The fields of its budgets."""

    @classmethod
    def new(cls, organization: str, fields: tuple[str, ...]) -> Self:
        """Return the id of a new hold."""
        return cls(token_hex(16), organization, fields)

    def __str__(self) -> str:
        """Return the id as one word of A-Z, a-z, 0-9, ``-`` and ``_``."""
        fields = [field.removeprefix(PREFIX) for field in self.fields]
        # Unescaped: two escaped surrogates would be read as one character.
        text = json.dumps([self.secret, self.organization, *fields], ensure_ascii=False)
        return urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).rstrip(b"=").decode()

    @classmethod
    def read(cls, text: object) -> Self:
        """Return the parts of an id.

        Raises:
            ValueError: it is malformed.
        """
        if not isinstance(text, str) or len(text) > _LONGEST:
            raise ValueError("A hold's id is a text of up to 4096 characters.")
        value = urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("utf-8", "surrogatepass")
        try:
            parts = json.loads(value)
        except RecursionError:
            raise ValueError("A hold's id is one list.") from None
        match parts:
            case [str(secret), str(organization), *fields] if (
                _SECRET.fullmatch(secret)
                and is_id(organization)
                and len(fields) <= WINDOWS_AT_MOST
                and all(isinstance(field, str) and _FIELD.fullmatch(field) for field in fields)
            ):
                return cls(secret, organization, tuple(f"{PREFIX}{field}" for field in fields))
            case _:
                raise ValueError("A hold's id names an organization and its budgets.")
