"""Forks: a child process has copies of its parent's connections and locks, and none of its threads.

Two that write to one connection read each other's answers, and an answer says who comes in; and
nobody is there to release what a thread held. So whatever holds a connection, or counts its
threads, is told in the child before anything else runs, and locks are free there.
"""

import logging
import os
from threading import Lock
from typing import Any, Final, Protocol
from weakref import WeakSet


class Forked(Protocol):
    """What has to begin anew in a child process."""

    def forked(self) -> None:
        """Begin anew, and leave to the parent what is the parent's."""


logger: Final = logging.getLogger("lockgate")

_told: WeakSet[Forked] = WeakSet()
_locks: WeakSet[Any] = WeakSet()


def after_fork_in_child(one: Forked) -> None:
    """From now on, tell it in every child process."""
    _told.add(one)


def own_lock() -> Lock:
    """A lock of this process: free in every child, which has none of the threads that held it."""
    lock = Lock()
    _locks.add(lock)
    return lock


def _tell() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()
    for one in list(_told):
        try:
            one.forked()
        except Exception:  # It is no reason to leave out the others.
            name = type(one).__name__
            logger.exception("%s may still share its parent's connections: end this process.", name)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell)
