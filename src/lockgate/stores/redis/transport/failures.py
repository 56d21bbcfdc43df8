"""Replies and failures of Redis: whether a call took effect, and the StoreError to raise."""

import re
from collections.abc import Callable
from typing import Any, Final, NoReturn, cast

from redis.connection import DefaultParser
from redis.exceptions import (
    AskError,
    ClusterCrossSlotError,
    ClusterDownError,
    ConnectionError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from ...answers import PartUnavailable, StoreError, UnreadableState
from .commands import Call

Reply = Any
"""The reply to a call: an int, bytes, a list of such, None; or the exception that it met."""
_IN_SCRIPTS: Final[dict[str, type[ResponseError]]] = {
    "READONLY": ReadOnlyError,
    "OOM": OutOfMemoryError,
    "NOPERM": NoPermissionError,
}
_WRAPPED: Final = re.compile(rf"^Error running script .*: -({'|'.join(_IN_SCRIPTS)}) (.*)")
_SPOILED: Final = re.compile(r"(?<!@)user_script:\d+: |WRONGTYPE")
"""Errors that Lua raises itself, and commands for a key of another type. An error of a command that
a script called has no "user_script" before it, or one after "@" (Redis 6.2)."""
NO_HOST: Final = {None, b"", b"?", "", "?"}
"""How a node of a Cluster says that it knows no host of itself or of another node."""

_OF_CLUSTERS: Final[dict[str, Callable[[str], Exception]]] = {
    "ASK": AskError,
    "CLUSTERDOWN": ClusterDownError,
    "CROSSSLOT": ClusterCrossSlotError,
    "MASTERDOWN": MasterDownError,
    "MOVED": MovedError,
    "TRYAGAIN": TryAgainError,
}
"""Errors that redis-py's parser names to its cluster clients only, before version 6."""
_parsed = cast(Callable[[str], Exception], DefaultParser.parse_error)  # pyright: ignore[reportUnknownMemberType] - it has no types


class Refused(StoreError):
    """The server refused a call, which took no effect."""


class NotSent(ConnectionError):
    """There was no connection, so the call took no effect; the cause says why."""

    def __init__(self, cause: Exception) -> None:
        Exception.__init__(self, type(cause).__qualname__)
        self.__cause__ = cause


class Forgotten(TimeoutError):
    """A connection that had been idle gave no answer: the network may have forgotten it, and other
    idle ones too."""


class Lost(Exception):
    """A request was sent and its reply is lost, so its outcome is unknown (D33).

    Args:
        cause: the failure of the connection.
        seen: the latest reply to a request that the server had given before this one was sent.
    """

    def __init__(self, cause: Exception, seen: bytes) -> None:
        super().__init__(type(cause).__qualname__)
        self.cause: Final = cause
        self.seen: Final = seen


class SlotUnavailable(RedisError, PartUnavailable):
    """A Cluster does not serve one slot at present; see the cause. The call had no effect."""


class Split(SlotUnavailable):
    """A slot is being moved, and no single node has all keys of one call.

    Args:
        call: as it was to be sent.
    """

    def __init__(self, call: Call) -> None:
        Exception.__init__(self, type(self).__qualname__)
        self.call: Final = call


def reraise(
    failure: Exception, organization: str | None = None, removal: str | None = None
) -> NoReturn:
    """Raise a :class:`StoreError` for an exception of redis-py; raise any other unchanged (G7).

    Args:
        failure: the exception.
        organization: the organization of the call's Redis keys. A script error, or a Redis key of
            another type, means that its state is unreadable.
        removal: how to give up that state.
    """
    if not isinstance(failure, RedisError) or isinstance(failure, StoreError):
        raise failure
    if organization is not None and _SPOILED.search(str(failure)):
        raise UnreadableState(organization, "what Redis keeps of it", removal) from failure
    raise (Refused if isinstance(failure, ResponseError) else StoreError) from failure


def is_short_of_replicas(failure: Exception) -> bool:
    """Return whether a server refused a change for want of replicas (``min-replicas-to-write``)."""
    return isinstance(failure, ResponseError) and "NOREPLICAS" in str(failure)


def error_reply(host: str, text: str) -> Exception:
    """Return the exception that stands for an error in a reply.

    A redirection without a host means the host that answered, at the port that it names (Redis 7,
    `cluster-preferred-endpoint-type unknown-endpoint`). Errors of commands in scripts are unwrapped
    from the words that Redis before 7 puts around them.

    Args:
        host: the server that answered; empty: a Unix socket.
        text: the error as it was received.
    """
    code, _, words = text.partition(" ")
    of_clusters = _OF_CLUSTERS.get(code)
    error = _parsed(text) if of_clusters is None else of_clusters(words)
    if isinstance(error, AskError):
        redirection: Any = error  # Its fields have no types.
        if redirection.host in NO_HOST:
            redirection.host = host
        return error
    found = _WRAPPED.search(str(error)) if isinstance(error, ResponseError) else None
    return error if found is None else _IN_SCRIPTS[found[1]](found[2])
