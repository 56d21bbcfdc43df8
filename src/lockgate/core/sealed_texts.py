"""Sealed texts: what a client is given and hands back, such as the id of a hold or a cursor.

A text carries what any process needs to go on, so it must come back as it was: else a client
moves the units of its hold to another period. The seal is HMAC-SHA-256 under a key derived from a
pepper, cut to 128 bits (RFC 2104, 5). It hides nothing.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from hmac import compare_digest
from typing import Final

_SIZE: Final = 16
"""Bytes of a seal."""
_TEXT: Final = re.compile(r"[A-Za-z0-9_-]+")


class TextSeal:
    """Seals texts of one kind, and reads those that it sealed.

    Args:
        keys: keyed digests, the newest first: it seals, and all are accepted, so peppers rotate.
            Without any, texts are encoded and not sealed.
    """

    def __init__(self, keys: Sequence[Callable[[bytes], bytes]]) -> None:
        self._keys: Final = tuple(keys)

    def write(self, content: bytes, place: str = "") -> str:
        """Return content as one word of A-Z, a-z, 0-9, ``-`` and ``_``.

        Args:
            content: any bytes.
            place: where the word is valid, such as the list of a cursor; not part of the word.
        """
        seal = self._keys[0](_message(content, place))[:_SIZE] if self._keys else b""
        return urlsafe_b64encode(seal + content).rstrip(b"=").decode()

    def read(self, text: object, place: str = "") -> bytes:
        """Return the content of a word that :meth:`write` returned for this place.

        Raises:
            ValueError: it is another text.
        """
        if not isinstance(text, str) or not _TEXT.fullmatch(text):
            raise ValueError("Not a word that was written here.")
        value = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        if not self._keys:
            return value
        seal, content = value[:_SIZE], value[_SIZE:]
        message = _message(content, place)
        if not any(compare_digest(key(message)[:_SIZE], seal) for key in self._keys):
            raise ValueError("Its seal is not valid.")
        return content

    def __repr__(self) -> str:
        return "<TextSeal>"


def _message(content: bytes, place: str) -> bytes:
    name = place.encode("utf-8", "surrogatepass")
    return len(name).to_bytes(4, "big") + name + content
