"""What each request did in a served application, in a log that its attacker reads.

Every request carries an id (:data:`ID`), and so does every line of the log: a handler that runs
after its client has gone, or while another request is answered, is told as its own request's.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ID: Final = "x-attack-id"
"""The header with a request's id. Answers of the application carry it too: others are the
server's own."""

LOST: Final = 0
"""The id of every request that came without one: it lost its headers on the way, and so its
credential."""

ORGANIZATIONS = ("weak", "models", "jobs", "full")
"""An organization for each key, so that a charge identifies its key."""

_current: ContextVar[int] = ContextVar("request", default=LOST)


@dataclass
class Run:
    """What one request did in the application."""

    entered: int = 0
    """How often it came to the application: more than once where the attacker sent it again."""
    left: int = 0
    faults: int = 0
    """How many exceptions left the guarded application."""
    handlers: Counter[str] = field(default_factory=Counter)
    """How often each handler ran."""
    charged: Counter[str] = field(default_factory=Counter)
    """The units that each organization was charged."""
    lines: int = 0
    """How much the log says of it."""


class RunLog:
    """The application's side: appends a line for everything that a request does.

    Args:
        path: of the log, which exists.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)

    def loaded(self, pid: int) -> None:
        """Record that a process serves from now on; one before it has ended."""
        self._write(LOST, "loaded", pid)

    @contextmanager
    def request(self, id: str, broken: Sequence[Exception] = ()) -> Iterator[None]:
        """Attribute everything in the block, and in tasks and threads of it, to one request.

        Args:
            id: the value of the request's header; a value other than digits is ignored.
            broken: why the server could not send the answer; then no exception is a fault.
        """
        token = _current.set(int(id) if id.isascii() and id.isdigit() else LOST)
        self._write(_current.get(), "entered")
        try:
            yield
        except Exception:
            if not broken:
                self._write(_current.get(), "fault")
            raise
        finally:
            self._write(_current.get(), "left")
            _current.reset(token)

    def ran(self, handler: str) -> None:
        self._write(_current.get(), "ran", handler)

    def charged(self, organization: str, units: int) -> None:
        self._write(_current.get(), "charged", organization, units)

    def _write(self, *words: object) -> None:
        # One write of a short line: lines of several threads do not mix.
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


class Record:
    """The attacker's side: reads the log.

    Args:
        path: of the log, which exists.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._rest = b""
        self._runs: dict[int, Run] = {}
        self._last = LOST
        self.pid = 0
        """Of the process that serves."""
        self.hung: set[int] = set()
        """The requests that never left the application."""
        self.patience = 10.0
        """Seconds after which a request counts as hanging."""

    def close(self) -> None:
        self._file.close()

    def new_id(self) -> int:
        """An id for a request, which no other one to this application has."""
        self._last += 1
        return self._last

    def run(self, id: int) -> Run:
        """Return the present record of a request."""
        self._read()
        return self._runs.setdefault(id, Run())

    def settled(self, id: int) -> Run:
        """Return the record of a request once the application has returned, or it hangs."""
        run = self.run(id)
        deadline = time.monotonic() + self.patience
        while run.entered > run.left and id not in self.hung:
            if time.monotonic() > deadline:
                self.hung.add(id)
            time.sleep(0.0002)
            self._read()
        return run

    def _read(self) -> None:
        *lines, self._rest = (self._rest + self._file.readall()).split(b"\n")
        for line in lines:
            id, what, *words = line.decode().split(" ")
            run = self._runs.setdefault(int(id), Run())
            run.lines += 1
            match what:
                case "loaded":
                    self.pid = int(words[0])
                    for unfinished in self._runs.values():
                        unfinished.left = unfinished.entered
                case "entered":
                    run.entered += 1
                case "left":
                    run.left += 1
                case "fault":
                    run.faults += 1
                case "ran":
                    run.handlers[words[0]] += 1
                case _:
                    run.charged[words[0]] += int(words[1])
