"""Temporary files in memory: on a disk, each commit of SQLite waits for it and costs CPU time.

The tests make some 100 MB of them. The data of PostgreSQL and MariaDB, gigabytes, stay on the disk,
which these servers are told not to wait for.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_MEMORY: Final = Path("/dev/shm")
_NEEDED: Final = 2**30
"""Bytes: containers often have 64 MB there."""


def keep_in_memory() -> None:
    """Make temporary files in memory, in this process and those that it starts.

    They stay where they were if `TMPDIR` names a folder, or if the system has too little memory.
    """
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK):
        return
    if shutil.disk_usage(_MEMORY).free >= _NEEDED:
        os.environ["TMPDIR"] = str(_MEMORY)
        tempfile.tempdir = None  # It is read anew.


def on_disk() -> str | None:
    """Return the folder for large temporary files; None: that of all."""
    return "/tmp" if tempfile.gettempdir() == str(_MEMORY) else None
