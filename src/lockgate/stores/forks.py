"""Forks: a child process has copies of its parent's connections and none of its threads.

Two that write to one connection read each other's answers, and an answer says who comes in. So
whatever holds a connection, or counts its threads, is told in the child before anything else runs.
"""

import logging
import os
from typing import Final, Protocol
from weakref import WeakSet


class Forked(Protocol):
    """What has to begin anew in a child process."""

    def forked(self) -> None:
        """Begin anew, and leave to the parent what is the parent's."""


logger: Final = logging.getLogger("lockgate")

_told: WeakSet[Forked] = WeakSet()


def tell_of_forks(one: Forked) -> None:
    """From now on, tell it in every child process."""
    _told.add(one)


def _tell() -> None:
    for one in list(_told):
        try:
            one.forked()
        except Exception:  # It is no reason to leave out the others.
            name = type(one).__name__
            logger.exception("%s may still share its parent's connections: end this process.", name)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell)
