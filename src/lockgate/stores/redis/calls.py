"""Calls: a script or a command with its arguments, written as Redis reads them (RESP)."""

import os
from collections.abc import Iterable
from hashlib import sha1
from importlib.resources import files
from itertools import count
from os import urandom
from struct import Struct
from typing import Final, NamedTuple

_FOLDER: Final = files("lockgate.stores.redis") / "scripts"
_TOLD: Final = Struct("<Bq")
_SINCE: Final = Struct("<d2s")
ASKING: Final = b"*1\r\n$6\r\nASKING\r\n"


def arguments(*values: bytes) -> bytes:
    """Arguments as they are sent, each by its length: whatever is in one, it ends nowhere else."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(value), value) for value in values])


def number(value: int | None) -> bytes:
    """A whole number as an argument; None is an empty one."""
    return b"" if value is None else b"%d" % value


class _Ids:
    """Ids of requests: this process's own, then a number."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin anew, as whoever was forked must."""
        self._own = urandom(4)
        self._numbers = count(int.from_bytes(urandom(4)))

    def __call__(self) -> bytes:
        # What differs between a process's own comes first: so they are compared the quickest.
        return (next(self._numbers) & 0xFFFFFFFF).to_bytes(4, "little") + self._own


request_id: Final = _Ids()
"""Gives the id of a new request: eight bytes."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=request_id.renew)


class Script:
    """A script: it runs as one step on the server, whatever comes.

    Args:
        name: of its file; whatever it builds upon comes before it.
    """

    def __init__(self, *names: str) -> None:
        body = "".join((_FOLDER / f"{name}.lua").read_text("utf-8") for name in names).encode()
        sha = sha1(body, usedforsecurity=False).hexdigest().encode()
        self.by_digest: Final = arguments(b"EVALSHA", sha)
        self.whole: Final = arguments(b"EVAL", body)


class Call(NamedTuple):
    """One call to the server that has a slot of the key space."""

    slot: int
    size: int
    """How many arguments there are, what is called included."""
    rest: bytes
    """The arguments after what is called."""
    script: Script | None = None
    repeatable: bool = False
    """Whether it may be sent again when nobody knows if it took effect."""
    since: int | None = None
    """For a request with an id of its own: an instant of that server's before it was sent first, or
    0 when it is. The arguments end with it, as a number in eight bytes."""
    whole: bool = False
    """Send the script itself: the server does not know it by its digest."""
    asking: bool = False
    """Say before that the slot is on its way to that server."""

    @property
    def written(self) -> bytes:
        """The call as it is sent."""
        script = self.script
        start = b"" if script is None else script.whole if self.whole else script.by_digest
        written = b"*%d\r\n%b%b" % (self.size, start, self.rest)
        if self.since is not None:
            written += _SINCE.pack(self.since, b"\r\n")
        return ASKING + written if self.asking else written

    def again(self, since: int) -> "Call":
        """The call as it is to be sent again: it was sent first after that instant."""
        return self._replace(since=None if self.since is None else max(1, since), asking=False)


def told_in(reply: bytes | None) -> int:
    """The instant that a server told in its reply to a request; 0: there is none."""
    return _TOLD.unpack_from(reply)[1] if reply else 0


def command(slot: int, *values: bytes, repeatable: bool = False) -> Call:
    """A plain command."""
    return Call(slot, len(values), arguments(*values), repeatable=repeatable)


def invocation(
    script: Script, slot: int, keys: Iterable[bytes], *values: bytes, repeatable: bool = False
) -> Call:
    """A call of a script, which may use these keys only."""
    keys = tuple(keys)
    rest = arguments(b"%d" % len(keys), *keys, *values)
    return Call(slot, 3 + len(keys) + len(values), rest, script, repeatable)
