"""The file of SQLite that a process has open: whether its path still names it.

SQLite goes on with a file that was deleted or replaced: its calls succeed, and what they write is
lost with the last process. They do not see the changes that other processes make at that path.
"""

import os
import shutil
import stat
from contextlib import suppress
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final

from ..answers import StoreError, StoreWarning
from ..runtime.log_hints import MinutelyLog

_TRUSTED: Final = 1.0
"""Seconds for which charges rely on a check."""
_LITTLE: Final = 32 * 2**20
"""Bytes left on the disk under which it is reported: the write-ahead log alone takes 4 MB."""


class ReplacedFile(StoreError):
    """The path of SQLite's file names another file, or none; the message is the remedy."""

    def __init__(self, file: str, *, exists: bool) -> None:
        super().__init__(
            f"The SQLite file {file} was {'replaced' if exists else 'deleted or moved'} while this "
            "process had it open. What it writes would be lost, so requests get 503. Stop every "
            "process that uses the file, then move it back, or delete the files -wal and -shm "
            "beside it and restore a backup, then start them."
        )


class OpenedFile:
    """Compares a path with the file that this process has opened there.

    Args:
        file: the path; no regular file: nothing is compared.
    """

    def __init__(self, file: Path) -> None:
        self._file = str(file.absolute())  # The working directory may change.
        self._log = MinutelyLog()
        self.forget()

    def forget(self) -> None:
        """Compare with the file that is opened next, after every connection was closed."""
        self._opened: tuple[int, int] | None = None
        self.trusted_until = -inf
        """Monotonic seconds; charges check the file from then on."""

    def warnings(self) -> list[StoreWarning]:
        """Return a warning if the file's disk is almost full; none if it cannot be told."""
        try:
            left = shutil.disk_usage(os.path.dirname(self._file)).free
        except OSError:
            return []
        if left >= _LITTLE:
            return []
        text = (
            f"The disk of the SQLite file {self._file} has {left / 2**20:.1f} MB left: requests "
            "get 503 when it is full, so make room."
        )
        return [StoreWarning("disk", text)]

    def remember(self) -> None:
        """Remember which file the path names, after a connection has opened it."""
        if self._opened is None:
            with suppress(OSError):
                found = os.stat(self._file)
                if stat.S_ISREG(found.st_mode):
                    self._opened = found.st_dev, found.st_ino

    def check(self) -> None:
        """Check that the path names the file that was remembered, if one was.

        Raises:
            ReplacedFile: it names another file, or none. The log says so once a minute. Calls
                succeed again as soon as the file is back.
        """
        opened = self._opened  # Another thread may forget it meanwhile.
        if opened is None:
            return
        try:
            found = os.stat(self._file)
        except FileNotFoundError:
            found = None
        except OSError:
            return  # As of a folder that this user may not search any more.
        if found is None or (found.st_dev, found.st_ino) != opened:
            problem = ReplacedFile(self._file, exists=found is not None)
            self._log.error(str(problem))
            raise problem
        self.trusted_until = monotonic() + _TRUSTED
