"""The names of Redis keys, and their slots in a Cluster.

All names of an organization hold the hash of its id in braces, the hash tag by which a Cluster puts
them into one slot. So an id may contain any characters and never reaches another organization's
keys (D36, W8).
"""

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from redis.crc import key_slot

from ...errors import ConfigurationError
from .transport.commands import Call, Script, invocation

ORGANIZATION: Final = ("organization",)
KEYS: Final = ("organization", "live", "created", "ended")
"""The names that ``write_key`` of ``key_records.lua`` takes."""
KEYS_AND_WINDOWS: Final = (*KEYS, "windows")
DEFAULT_PREFIX: Final = "lockgate"
RECORD: Final = b"key "
USAGE: Final = b"use "
REMOVED: Final = b"0"
"""The value at the handle of a removed key: Redis shares the objects of small numbers."""
_PREFIX: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_GLOB: Final = re.compile(r"[*?\[\]^\\-]")
"""Characters with a meaning in a pattern of ``SCAN``."""
_SIXTEEN_BYTES: Final = 16


class Place(NamedTuple):
    """The names of one organization, and their slot."""

    slot: int
    organization: bytes
    """A hash: the plan, the account, and each key's record and usage. The copies of a cache have
    another one."""
    windows: bytes
    """A string (``sliding_window.lua``)."""
    live: bytes
    """A sorted set: unrevoked keys by expiry (``key_records.lua``)."""
    created: bytes
    """A sorted set: all keys, newest first."""
    ended: bytes
    """A sorted set: revoked keys by their end."""
    slots: bytes
    """A hash: the slots of jobs in one field, as a budget (``hold.lua``)."""
    limits: bytes
    """A hash: the cells of named limits, and the budgets of holds, by field (``fields.lua``)."""
    usage: bytes
    """A hash: usage histories of the organization and its keys (``usage.lua``)."""

    @property
    def removal(self) -> str:
        """How to give up windows and slots that are unreadable."""
        names = b" ".join((self.windows, self.limits, self.slots)).decode()
        return f"send Redis DEL {names}: windows and slots then begin anew, keys and plans stay"

    def call(self, script: Script, *values: bytes) -> Call:
        """Return a call of a script on the names that it takes."""
        return invocation(script, self.slot, [getattr(self, n) for n in script.names], *values)


class Names:
    """The names of one store.

    Args:
        prefix: the start of all names; stores with different prefixes share no data.
        copies: whether keys and plans are copies of another store's. They have names of their own,
            so that no key of a store under the same prefix is taken for a copy, nor the reverse.

    Raises:
        ConfigurationError: the prefix has a character that is not allowed, or more than 64.
    """

    def __init__(self, prefix: str, *, copies: bool = False) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ConfigurationError(
                f"The prefix {prefix!r} cannot start a name: use 1 to 64 of A-Z, a-z, 0-9 and _.:-"
            )
        self._prefix: Final = prefix.encode()
        self._copies: Final = copies
        self.pattern: Final = self._prefix + b":{*}"
        """Matches the names of all organizations' hashes."""
        self.change_counter: Final = self._prefix + b":change_counter"
        """A string: a number that every change to keys or plans replaces."""
        self.reviews: Final = self._prefix + b":reviews"
        """A sorted set: organizations of unclaimed accounts by the latest known use."""
        self.recalls: Final = b"%b:{%b}:recalls" % (self._prefix, self.change_counter)
        """A stream, on the server of the change counter: the organizations whose quota leases were
        recalled lately."""
        self.acknowledged: Final = self._prefix + b":acknowledged"
        """A string, written to learn how many replicas have acknowledged all earlier writes."""
        self.place = lru_cache(4096)(self._place)

    def for_copies(self) -> "Names":
        """Return the names of a cache under the same prefix."""
        return Names(self._prefix.decode(), copies=True)

    def caught_up(self, arrangement: bytes) -> bytes:
        """A string: the change counter of the primary store up to which copies are valid."""
        return b"%b:caught-up:%b" % (self._prefix, arrangement)

    def handle(self, handle: str) -> bytes:
        """A string: the claim of a handle; :data:`REMOVED` once its key is removed."""
        kind = b"copy" if self._copies else b"handle"
        return b"%b:%b:%b" % (self._prefix, kind, write(handle))

    def handles(self, start: str) -> bytes:
        """Match the names of handles that begin with a text."""
        return self.handle(_GLOB.sub(r"\\\g<0>", start)) + b"*"

    def token(self, handle: str) -> bytes:
        """A string: the organization of the account with this token's handle."""
        return b"%b:token:%b" % (self._prefix, write(handle))

    def email(self, billing_email: str) -> bytes:
        """A sorted set: organizations of unclaimed accounts with this e-mail, by creation."""
        return b"%b:unclaimed:%b" % (self._prefix, _hash(billing_email))

    def user(self, user: str) -> bytes:
        """A sorted set: organizations that this user may have claimed, by claim."""
        return b"%b:claimed:%b" % (self._prefix, _hash(user))

    def _place(self, organization: str) -> Place:
        place = place_of(b"%b:{%b}" % (self._prefix, _hash(organization)))
        if self._copies:
            return place._replace(organization=place.organization + b":copies")
        return place


def place_of(hash: bytes) -> Place:
    """Return the names of an organization, by the name of its hash."""
    suffixes = (
        *(b":windows", b":live", b":created", b":ended"),
        *(b":slots", b":limits", b":usage"),
    )
    return Place(key_slot(hash), hash, *(hash + suffix for suffix in suffixes))


def fields_of(id: str) -> tuple[bytes, bytes]:
    """Return the fields of a key's record and usage in the hash of its organization."""
    return RECORD + write(id), USAGE + write(id)


def slot_of(name: bytes) -> int:
    """Return the slot of a name (Redis Cluster specification)."""
    return int(key_slot(name))


def _hash(text: str) -> bytes:
    return blake2b(write(text), digest_size=_SIXTEEN_BYTES).hexdigest().encode()


def write(text: str) -> bytes:
    """Encode an opaque text; a lone surrogate is a character like any other (D36)."""
    return text.encode("utf-8", "surrogatepass")


def read(value: bytes) -> str:
    """Decode an opaque text."""
    return value.decode("utf-8", "surrogatepass")
