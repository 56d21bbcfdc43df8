"""Process hooks: call objects back in the child after a fork, and when the process ends.

A child process has copies of its parent's connections and locks, and none of its threads. Two
processes that write to one connection read each other's replies, and a reply decides about a
caller; a lock that a thread of the parent held is never released. So every holder of a connection
or of a thread count is called first in the child, and locks are free there.
"""

import atexit
import logging
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from threading import Lock
from typing import Any, Final, Protocol
from weakref import WeakSet


class Forked(Protocol):
    """An object that starts afresh in a child process."""

    def forked(self) -> None:
        """Start afresh, and leave connections and pending work to the parent."""


class Ending(Protocol):
    """An object with something to write before the process ends."""

    def ended(self) -> None:
        """Write the pending data, without an event loop and without starting a thread."""


logger: Final = logging.getLogger("lockgate")

_forked: Final[WeakSet[Forked]] = WeakSet()
_ending: Final[WeakSet[Ending]] = WeakSet()
_locks: Final[WeakSet[Any]] = WeakSet()


def after_fork_in_child(one: Forked) -> None:
    """Call ``one.forked()`` in every child process from now on."""
    _forked.add(one)


def at_process_end(one: Ending) -> None:
    """Call ``one.ended()`` when this process ends, or a child that is forked from it."""
    _ending.add(one)
    _hook_multiprocessing()


def ends_without_hooks() -> bool:
    """Return whether SIGTERM ends this process at once: nothing handles it."""
    return signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@cache
def _hook_multiprocessing() -> None:
    """Have the children of :mod:`multiprocessing` call the hooks: they end by ``os._exit``.

    A forked child drops all finalizers and then calls what is registered for after the fork.
    """
    from multiprocessing import util  # It takes 5 ms to import, for stores that need none of it.

    def finalize(end: Callable[[], None]) -> None:
        util.Finalize(None, end, exitpriority=0)

    finalize(_at_end)
    util.register_after_fork(_at_end, finalize)


def own_lock() -> Lock:
    """Return a lock of this process: free in every child, which has no thread that held it."""
    lock = Lock()
    _locks.add(lock)
    return lock


def _after_fork() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()
    for one in list(_forked):
        try:
            one.forked()
        except Exception:  # The other objects are called all the same.
            name = type(one).__name__
            logger.exception("%s may still share its parent's connections: end this process.", name)


@atexit.register
def _at_end() -> None:
    for one in list(_ending):
        with suppress(Exception):  # The other objects are called all the same.
            one.ended()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
