"""Calls: a script or a command with its arguments, written as Redis reads them (RESP)."""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha1
from importlib.resources import files
from itertools import count
from os import urandom
from struct import Struct
from typing import Final, NamedTuple

_FOLDER: Final = files("lockgate.stores.redis") / "scripts"
_INCLUDE: Final = re.compile(r"^( *)-- include: (\w+\.lua)\n", re.MULTILINE)
_TOLD: Final = Struct("<Bq")
_SINCE: Final = Struct("<d2s")
_ASKING: Final = b"*1\r\n$6\r\nASKING\r\n"


def arguments(*values: bytes) -> bytes:
    """Encode arguments, each by its length: no byte in one can end it."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(value), value) for value in values])


def number(value: int | None) -> bytes:
    """Encode a whole number as an argument; None becomes an empty one."""
    return b"" if value is None else b"%d" % value


class _Ids:
    """Ids of requests: whole numbers of eight bytes that count up from a random one.

    They are sent with the lowest byte first, so the ids of one process differ in the first byte and
    compare quickly.
    """

    next: Callable[[], int]
    """Returns the id of a new request."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin anew at another random number, as a forked process must."""
        self.next = count(int.from_bytes(urandom(8)) >> 1).__next__  # It never reaches 2**64.


request_ids: Final = _Ids()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=request_ids.renew)


def _source(file: str, included: set[str]) -> str:
    """Read a script, with each file that an ``-- include:`` names in its place.

    Once for all that follows; but where the line is indented, for its block alone.
    """
    included.add(file)

    def source_of(line: re.Match[str]) -> str:
        block, name = line[1], line[2]
        if block:
            return _source(name, {*included})
        return "" if name in included else _source(name, included)

    return _INCLUDE.sub(source_of, (_FOLDER / file).read_text())


_ONE_KEY: Final = _source("one_key.lua", set()).encode()


class Script:
    """A Lua script, which Redis runs as one step.

    Args:
        file: in the folder ``scripts``, with the files that it includes.
        verb: the function of the file to call, where the file only defines functions.
        names: the names of an organization that it takes (``key_names.py``).
        repeatable: whether a call may be sent again when its outcome is unknown.
        is_change: whether the function changes a key or a plan: the script then also returns the
            quota leases that are out (``change.lua``), and its names end with the windows.
    """

    def __init__(
        self,
        file: str,
        verb: str | None = None,
        names: Sequence[str] = (),
        *,
        repeatable: bool = False,
        is_change: bool = False,
    ) -> None:
        source = _source(file, set())
        if is_change:
            source += f"return with_leases({verb})\n"
        elif verb is not None:
            source += f"return {verb}()\n"
        body = source.encode()
        sha = sha1(body, usedforsecurity=False).hexdigest().encode()
        self.names: Final = names
        self.repeatable: Final = repeatable
        self.body: Final = body
        self.by_digest: Final = arguments(b"EVALSHA", sha)
        self.whole: Final = arguments(b"EVAL", body)

    def start(self, size: int) -> bytes:
        """Return the start of a call with ``size`` arguments, ``EVALSHA`` included."""
        return b"*%d\r\n%b" % (size, self.by_digest)


class Invocation(NamedTuple):
    """A script with its arguments."""

    script: Script
    keys: tuple[bytes, ...]
    values: tuple[bytes, ...]


class Call(NamedTuple):
    """One call to the server that has a slot of the key space."""

    slot: int
    text: bytes
    """The bytes to send."""
    script: Script | None = None
    """The script that is called by its digest, which the server may not know."""
    repeatable: bool = False
    """Whether it may be sent again when its outcome is unknown."""
    is_request: bool = False
    """Whether it has an id. The text ends with a number of eight bytes: an instant of that server's
    before the call was sent first, or 0 the first time."""
    replies: int = 1
    invocation: Invocation | None = None
    """The script and its arguments, if it has several keys. None: it has one key, or its caller can
    make one call for each key instead."""

    def whole(self) -> "Call":
        """Return the call with the script itself."""
        assert self.script is not None, "only a script has a digest"
        text = self.text.replace(self.script.by_digest, self.script.whole, 1)
        return self._replace(text=text, script=None)

    def divisible(self) -> "Call":
        """Return the call of a caller that makes one for each key if a slot moves."""
        return self._replace(invocation=None)

    def by_one_key(self) -> "Call":
        """Return the call of a script that names only its first key to Redis.

        While a slot is imported, a node runs a script with several keys only if it has all of them,
        and one with a single key in any case. The sender must know that none is elsewhere.
        """
        assert self.invocation is not None, "only a script has keys"
        script, (first, *keys), values = self.invocation
        values = b"%d" % len(keys), *keys, *values
        call = command(self.slot, b"EVAL", _ONE_KEY + script.body, b"1", first, *values)
        return self._replace(text=call.text, script=None, replies=1)

    def asking(self) -> "Call":
        """Return the call to the server that the slot is being moved to."""
        return self._replace(text=_ASKING + self.plain().text, replies=2)

    def plain(self) -> "Call":
        """Return the call to the server that has the slot."""
        return self._replace(text=self.text.removeprefix(_ASKING), replies=1)

    def again(self, since: int) -> "Call":
        """Return the call to send again, which was sent first after the instant ``since``."""
        call = self.plain()
        if not self.is_request:
            return call
        text = call.text[: -_SINCE.size] + _SINCE.pack(max(1, since), b"\r\n")
        return call._replace(text=text)


def told_in(reply: bytes | None) -> int:
    """Return the instant in a server's reply to a request; 0: no reply."""
    return _TOLD.unpack_from(reply)[1] if reply else 0


def command(slot: int, *values: bytes, repeatable: bool = False) -> Call:
    """Return a plain command."""
    text = b"*%d\r\n%b" % (len(values), arguments(*values))
    return Call(slot, text, repeatable=repeatable)


def words(*values: str | bytes) -> Call:
    """Return a plain command to any server, given as text."""
    return command(0, *(value if isinstance(value, bytes) else value.encode() for value in values))


def invocation(script: Script, slot: int, keys: Iterable[bytes], *values: bytes) -> Call:
    """Return a call of a script, which may use these keys only."""
    keys = tuple(keys)
    invoked = Invocation(script, keys, values) if len(keys) > 1 else None
    start = script.start(3 + len(keys) + len(values))
    rest = arguments(b"%d" % len(keys), *keys, *values)
    return Call(slot, start + rest, script, script.repeatable, invocation=invoked)
