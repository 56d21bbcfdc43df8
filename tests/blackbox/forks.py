"""Demos that are forks of one process, which has imported everything: half a second of CPU time
less for each. It is the same code as of the command; `test_lifecycle` starts the command itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from tests.preloaded import forking


class ForkedProcess:
    """As much of `subprocess.Popen` as a demo needs.

    Args:
        arguments: of `serving.py`.
        stderr: the file to write the standard error to.
        environment: of the process.
    """

    def __init__(
        self, arguments: Sequence[str], stderr: Path, environment: Mapping[str, str]
    ) -> None:
        said, out = forking().Pipe(duplex=False)
        work = [*arguments], str(stderr), dict(environment), out
        self._process = forking().Process(target=_serve, args=work)
        self._process.start()
        out.close()
        self.stdout: IO[str] | None = os.fdopen(os.dup(said.fileno()), encoding="utf-8")
        said.close()

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None, "it was started"
        return pid

    def poll(self) -> int | None:
        """Return the exit code; None: it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, or raise `subprocess.TimeoutExpired`."""
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("a forked demo", timeout or 0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _serve(arguments: list[str], stderr: str, environment: dict[str, str], out: Connection) -> None:
    os.setpgid(0, 0)
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(out.fileno(), 1)
    out.close()
    with open(stderr, "ab") as file:
        os.dup2(file.fileno(), 2)
    from .serving import main

    sys.argv = ["serving.py", *arguments]
    main()
