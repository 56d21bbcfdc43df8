"""The settings of leak reports."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, TypeAlias

from ...core.arguments import checks_arguments
from ...errors import ConfigurationError
from ..host_calls import SignerKeys


class LeakedKey(NamedTuple):
    """A key of this service that was found in public, and the place."""

    organization: str
    id: str
    name: str
    prefix: str
    url: str
    """Where it was found, without any key; may be empty. It is not verified."""
    source: str
    """The kind of place, such as ``commit``; may be empty."""
    was_live: bool
    """Whether the key was neither revoked nor expired when the report came."""
    revoked: bool
    """Whether it is revoked now."""


OnLeak: TypeAlias = Callable[[Sequence[LeakedKey]], object | Awaitable[object]]
"""A plain or ``async`` function that takes the leaked keys of one report."""


@checks_arguments
@dataclass(frozen=True, kw_only=True)
class LeakReports:
    """Takes reports of leaked keys: ``Gate(features=[LeakReports(...)])``.

    Args:
        keys: returns the public keys of the senders: a plain or ``async`` function that returns
            what https://api.github.com/meta/public_keys/secret_scanning answers, parsed. It runs in
            a thread, once an hour and for an unknown signer at most once a minute; lockgate itself
            calls no other host.
        revoke: whether a reported key is revoked at once; False: it is only told.
        on_leak: takes the :class:`LeakedKey` of each reported key: a plain or ``async`` function,
            called once for a report that has any, in a thread. A report may come twice, to two
            processes or after a failure.
        timeout: seconds that ``keys`` and ``on_leak`` may take.
    """

    keys: SignerKeys
    revoke: bool = False
    on_leak: OnLeak | None = None
    timeout: float = 5.0

    def __post_init__(self) -> None:
        """Refuse what is no function, and a timeout that is not positive."""
        if not 0 < self.timeout < inf:
            raise ConfigurationError(f"timeout is {self.timeout}: use seconds, more than 0.")
