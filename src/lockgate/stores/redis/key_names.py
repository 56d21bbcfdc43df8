"""Names of what is kept, and where in the key space of a Cluster it lies.

All that belongs to an organization has the hash of its id in braces, the tag by which a Cluster
puts it in one slot. So an id can hold whatever it likes, and reach nobody else's (D36, W8).
"""

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from redis.crc import key_slot

from ...errors import ConfigurationError

DEFAULT_PREFIX: Final = "lockgate"
RECORD: Final = b"key "
USAGE: Final = b"use "
REMOVED: Final = b"0"
"""What the handle of a removed key holds: a number that Redis keeps no copy of."""
_PREFIX: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_SIXTEEN_BYTES: Final = 16


class Place(NamedTuple):
    """The names of what is kept of one organization, and their slot."""

    slot: int
    organization: bytes
    """A hash: the plan, the account, and each key's record and usage."""
    windows: bytes
    """A string: see ``sliding_window.lua``."""
    live: bytes
    """A sorted set: keys that are not revoked, by when they expire; see ``key_records.lua``."""
    created: bytes
    """A sorted set: all keys, newest first."""
    ended: bytes
    """A sorted set: revoked keys, by when they ended."""
    leases: bytes
    """A hash: see ``leases.lua``."""
    deadlines: bytes
    """A sorted set: jobs that hold a slot, by when they let go of it."""

    @property
    def keys(self) -> tuple[bytes, bytes, bytes, bytes]:
        """The names that ``key_records.lua`` takes."""
        return self.organization, self.live, self.created, self.ended


class Names:
    """The names of one store.

    Args:
        prefix: what all of them start with; stores with different ones share nothing.

    Raises:
        ConfigurationError: the prefix cannot be one.
    """

    def __init__(self, prefix: str) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ConfigurationError(
                f"The prefix {prefix!r} cannot start a name: use 1 to 64 of A-Z, a-z, 0-9 and _.:-"
            )
        self._prefix: Final = prefix.encode()
        self.pattern: Final = self._prefix + b":{*}"
        """Matches the names of all organizations' hashes."""
        self.change_counter: Final = self._prefix + b":epoch"
        """A string: another one after every change to keys or plans."""
        self.reviews: Final = self._prefix + b":reviews"
        """A sorted set: organizations of unclaimed accounts, by since when they may be unused."""
        self.acknowledged: Final = self._prefix + b":acknowledged"
        """A string: written to see how many replicas have all that was written before."""
        self.place = lru_cache(4096)(self._place)

    def caught_up(self, arrangement: bytes) -> bytes:
        """A string: up to which epoch of the truth copies are right, on servers so arranged."""
        return b"%b:caught-up:%b" % (self._prefix, arrangement)

    def handle(self, handle: str) -> bytes:
        """A string: whose key has this handle; :data:`REMOVED` where it had one."""
        return b"%b:handle:%b" % (self._prefix, write(handle))

    def token(self, handle: str) -> bytes:
        """A string: whose account has a token with this handle."""
        return b"%b:token:%b" % (self._prefix, write(handle))

    def email(self, billing_email: str) -> bytes:
        """A sorted set: organizations whose unclaimed accounts may have this e-mail, by when they
        were created."""
        return b"%b:unclaimed:%b" % (self._prefix, _hash(billing_email))

    def user(self, user: str) -> bytes:
        """A sorted set: organizations whose accounts this user may have claimed, by when."""
        return b"%b:claimed:%b" % (self._prefix, _hash(user))

    def _place(self, organization: str) -> Place:
        return place_of(b"%b:{%b}" % (self._prefix, _hash(organization)))


def place_of(hash: bytes) -> Place:
    """The names of what is kept of an organization, by that of its hash."""
    suffixes = b":windows", b":live", b":created", b":ended", b":leases", b":deadlines"
    return Place(key_slot(hash), hash, *(hash + suffix for suffix in suffixes))


def fields_of(id: str) -> tuple[bytes, bytes]:
    """The names of a key's record and of its usage, in the hash of its organization."""
    return RECORD + write(id), USAGE + write(id)


def slot_of(name: bytes) -> int:
    """The slot of a name (Redis Cluster specification)."""
    return int(key_slot(name))


def _hash(text: str) -> bytes:
    return blake2b(write(text), digest_size=_SIXTEEN_BYTES).hexdigest().encode()


def write(text: str) -> bytes:
    """An opaque text as bytes; a lone surrogate is a character like any other (D36)."""
    return text.encode("utf-8", "surrogatepass")


def read(value: bytes) -> str:
    """The text that :func:`write` wrote."""
    return value.decode("utf-8", "surrogatepass")
