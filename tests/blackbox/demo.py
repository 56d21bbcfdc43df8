"""Start and stop the demo, and talk to it as a client does: over the wire, and in no other way.

Every answer that passes through a `Client` is held to the form that the documents give to every
answer (`Answer.check`): never a 5xx, the rate headers once each, an error body of exactly the
documented fields. A test then states only what is its own.
"""

from __future__ import annotations

import http.client
import itertools
import json
import math
import os
import queue
import re
import secrets
import signal
import socket
import ssl
import string
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit

import httpx
from hypothesis import HealthCheck, settings

from tests.tracing import untraced

from .forks import ForkedProcess

# --- documented values --------------------------------------------------------------------

PLANS: Mapping[str, Mapping[str, int]] = {
    "free": {"rpm": 10, "rph": 100, "rpd": 500, "concurrent": 2},
    "starter": {"rpm": 30, "rph": 500, "rpd": 5_000, "concurrent": 5},
    "creator": {"rpm": 60, "rph": 1_500, "rpd": 20_000, "concurrent": 10},
    "enterprise": {"rpm": 100_000, "rph": 1_000_000, "rpd": 10_000_000, "concurrent": 100},
}
ANONYMOUS_RPM = 1_000

CODES: Mapping[int, frozenset[str]] = {
    400: frozenset({"VALIDATION_ERROR"}),
    401: frozenset(
        {
            "MISSING_AUTH",
            "INVALID_FORMAT",
            "KEY_NOT_FOUND",
            "KEY_REVOKED",
            "KEY_EXPIRED",
            "SESSION_REQUIRED",
            "SESSION_INVALID",
            "TOKEN_NOT_ACCEPTED",
        }
    ),
    403: frozenset(
        {
            "INSUFFICIENT_SCOPE",
            "CROSS_SITE_REQUEST",
            "NO_ORGANIZATION",
            "CLAIM_REFUSED",
            "REGISTRATION_REFUSED",
            "AGENTS_ONLY",
        }
    ),
    404: frozenset({"NOT_FOUND"}),
    405: frozenset({"METHOD_NOT_ALLOWED"}),
    409: frozenset({"KEY_LIMIT_REACHED"}),
    413: frozenset({"PAYLOAD_TOO_LARGE"}),
    415: frozenset({"UNSUPPORTED_MEDIA_TYPE"}),
    429: frozenset({"RATE_LIMIT_EXCEEDED", "CONCURRENT_LIMIT_EXCEEDED"}),
}
RATE_HEADERS = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

KEYS = "/api/v1/api-keys"
MODELS = "/api/v1/models"
STATUS = "/api/v1/account/rate-limits"
JOBS = "/api/v1/jobs"
REGISTER = "/api/v1/auth/bot-register"
SIGN_IN = "/api/v1/auth/bot-sign-in"
SIGN_OUT = "/api/v1/auth/bot-sign-out"
CLAIM = "/api/v1/auth/claim"
PUBLIC = ("/health", "/capabilities", "/openapi.json")

# --- keys, made by the rule of D1 ---------------------------------------------------------

BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
FULL_KEY = re.compile(r"acme_live_[0-9A-Za-z]{8}_[0-9A-Za-z]{43}")
SECRET = re.compile(rb"acme_(live|dashboard)_[0-9A-Za-z]{8}_[0-9A-Za-z]{43}")


def checksum(head: str) -> str:
    """The last 6 characters of a key whose other characters are `head`."""
    number = zlib.crc32(head.encode())
    digits = ""
    for _ in range(6):
        number, digit = divmod(number, 62)
        digits = BASE62[digit] + digits
    return digits


def random_text(length: int) -> str:
    return "".join(secrets.choice(BASE62) for _ in range(length))


def made_up_key(
    *,
    brand: str = "acme",
    environment: str = "live",
    prefix: str | None = None,
    random: str | None = None,
) -> str:
    """An unknown key with a valid checksum."""
    prefix = random_text(8) if prefix is None else prefix
    random = random_text(37) if random is None else random
    head = f"{brand}_{environment}_{prefix}_{random}"
    return head + checksum(head)


# --- an answer ----------------------------------------------------------------------------


def parse(text: bytes) -> Any:
    """JSON as RFC 8259 has it: UTF-8, no NaN."""

    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text.decode("utf-8"), parse_constant=refuse)


@dataclass(frozen=True, slots=True)
class Answer:
    method: str
    status: int
    headers: tuple[tuple[str, str], ...]  # names in lower case
    body: bytes

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name.lower()]

    def one(self, name: str) -> str:
        """The value of a header that must be there exactly once."""
        values = self.all(name)
        assert len(values) == 1, f"{name}: {values} in {self}"
        return values[0]

    def json(self) -> Any:
        return parse(self.body)

    @property
    def code(self) -> str:
        code = self.json()["code"]
        assert isinstance(code, str)
        return code

    @property
    def limit(self) -> int:
        return int(self.one("x-ratelimit-limit"))

    @property
    def remaining(self) -> int:
        return int(self.one("x-ratelimit-remaining"))

    @property
    def reset(self) -> int:
        return int(self.one("x-ratelimit-reset"))

    @property
    def by_the_server(self) -> bool:
        """The HTTP server refused the bytes: no application, hence no gate, ever saw them."""
        return self.status in (400, 414, 431) and not self.all(RATE_HEADERS[0])

    @property
    def is_page(self) -> bool:
        return self.all("content-type") == ["text/html; charset=utf-8"]

    def is_error(self, status: int, code: str) -> Answer:
        assert self.status == status, self
        if self.method != "HEAD":
            assert self.code == code, self
        return self

    def is_ok(self, status: int = 200) -> Answer:
        assert self.status == status, self
        return self

    def is_success(self) -> Answer:
        assert 200 <= self.status < 300, self
        return self

    def check(self) -> Answer:
        """What holds for every answer, whatever was asked."""
        assert 200 <= self.status < 500, self
        self._check_rate_headers()
        if self.method == "HEAD" or self.status == 204:
            assert self.body == b"", self
        elif self.is_page:
            assert "no-store" in self._tokens("cache-control"), self
        elif self.status >= 400:
            self._check_error_body()
        elif self.status < 300 and self.method != "OPTIONS":
            self._check_json()
        if self.status in (401, 403, 429) or self._hands_out_a_secret:  # D38
            assert "no-store" in self._tokens("cache-control"), self
        self._check_challenge()
        if self.status == 405:  # D17
            assert self._tokens("allow"), self
            assert self.method not in self._tokens("allow"), self
        return self

    def _tokens(self, name: str) -> set[str]:
        return {token.strip() for value in self.all(name) for token in value.split(",")} - {""}

    @property
    def allow(self) -> set[str]:
        return self._tokens("allow")

    def _check_rate_headers(self) -> None:  # D23, D24, G2
        names = [name for name, _ in self.headers if "ratelimit" in name.replace("-", "")]
        assert sorted(names) == sorted(RATE_HEADERS), self
        for name in RATE_HEADERS:
            assert re.fullmatch(r"[0-9]+", self.one(name)), self
        assert self.remaining <= self.limit, self
        assert -2 <= self.reset - time.time() <= 62, self
        if self.status == 429:
            assert re.fullmatch(r"[1-9][0-9]*", self.one("retry-after")), self
        else:
            assert not self.all("retry-after"), self

    @property
    def _hands_out_a_secret(self) -> bool:
        return bool(self.all("set-cookie") or SECRET.search(self.body))

    @property
    def challenge(self) -> dict[str, str]:
        """The parameters of `WWW-Authenticate: Bearer ...`."""
        value = self.one("www-authenticate")
        assert re.fullmatch(r'Bearer( [a-z_]+="[^"]*"(, ?[a-z_]+="[^"]*")*)?', value), value
        return dict(re.findall(r'([a-z_]+)="([^"]*)"', value))

    def _check_challenge(self) -> None:  # D11, D16, RFC 6750 3
        if self.status not in (401, 403):
            assert not self.all("www-authenticate"), self
        elif self.is_page:
            assert self.all("www-authenticate") == (["Bearer"] if self.status == 401 else []), self
        elif self.method == "HEAD":  # Its code is not to be seen.
            assert len(self.all("www-authenticate")) <= 1, self
        elif self.status == 401:
            no_token = self.code in {"MISSING_AUTH", "SESSION_REQUIRED", "SESSION_INVALID"}
            assert self.challenge == ({} if no_token else {"error": "invalid_token"}), self
        elif self.code == "INSUFFICIENT_SCOPE":
            assert self.challenge.keys() == {"error", "scope"}, self
            assert self.challenge["error"] == "insufficient_scope", self
            assert self.challenge["scope"] in self.json()["error"], self
        else:
            assert not self.all("www-authenticate"), self

    def _check_json(self) -> Any:
        assert self.one("content-type").split(";")[0].strip().lower() == "application/json", self
        return self.json()

    def _check_error_body(self) -> None:  # D16, D17
        body = self._check_json()
        assert isinstance(body, dict), self
        assert isinstance(body["error"], str) and body["error"].strip(), self
        assert body["code"] in CODES.get(self.status, frozenset()), self
        extra = body.keys() - {"error", "code"}
        match body["code"]:
            case "VALIDATION_ERROR":
                assert extra == {"details"}, self
                assert isinstance(body["details"], list) and body["details"], self
                for detail in body["details"]:
                    assert detail.keys() == {"field", "message"}, self
                    assert isinstance(detail["field"], str), self
                    assert isinstance(detail["message"], str) and detail["message"], self
            case "RATE_LIMIT_EXCEEDED" | "CONCURRENT_LIMIT_EXCEEDED":
                assert extra == {"retryAfter", "limits"}, self
                assert type(body["retryAfter"]) is int, self
                assert str(body["retryAfter"]) == self.one("retry-after"), self  # D22
                limits = body["limits"]
                assert limits.keys() == {"type", "limit", "used"}, self
                assert type(limits["limit"]) is int and type(limits["used"]) is int, self
                if body["code"] == "CONCURRENT_LIMIT_EXCEEDED":
                    assert limits["type"] == "concurrent", self
                else:
                    assert limits["type"] in ("minute", "hour", "day"), self
                    # Registration has other limits; responses carry the anonymous plan's headers.
                    own = limits["type"] != "minute" and self.limit == ANONYMOUS_RPM
                    assert self.remaining == 0 or own, self
            case _:
                assert not extra, self


def refused(answer: Answer, limit: int) -> int:
    """Check a refusal by the minute (D16, D22), and return the seconds to wait."""
    answer.is_error(429, "RATE_LIMIT_EXCEEDED")
    body = answer.json()
    assert body["limits"] == {"type": "minute", "limit": limit, "used": limit}
    assert 1 <= body["retryAfter"] <= 60
    assert answer.limit == limit and answer.remaining == 0
    assert answer.reset >= math.floor(time.time())
    seconds = body["retryAfter"]
    assert isinstance(seconds, int)
    return seconds


FUZZ = settings(
    max_examples=50,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
"""For properties over the wire."""

# --- a client -----------------------------------------------------------------------------

T = TypeVar("T")
_addresses = itertools.count()
_NO_CONNECTION_KEPT = httpx.Limits(max_keepalive_connections=0)
_KEPT = httpx.Limits(keepalive_expiry=1.0)
"""Servers close a connection after 5 idle seconds: long before that, the client opens another."""
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # unused; by default each client loads the CAs


def next_address() -> str:
    """An unused loopback address: to the demo, a new client."""
    high, low = divmod(next(_addresses), 250)
    return f"127.1.{high}.{low + 1}"


HeaderList: TypeAlias = Sequence[tuple[str | bytes, str | bytes]]


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8")


def wire(
    method: str,
    target: str | bytes,
    headers: HeaderList = (),
    body: bytes = b"",
    *,
    host: str = "demo.invalid",
) -> bytes:
    """One request as bytes, sent exactly as given: no normalising, no folding, no escaping."""
    lines = [b"%s %s HTTP/1.1" % (method.encode(), _bytes(target))]
    names = {_bytes(name).lower() for name, _ in headers}
    if b"host" not in names:
        lines.append(b"Host: " + host.encode())
    lines.append(b"Connection: close")
    if body and not names & {b"content-length", b"transfer-encoding"}:
        lines.append(b"Content-Length: %d" % len(body))
    lines.extend(b"%s: %s" % (_bytes(name), _bytes(value)) for name, value in headers)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class CreatedKey:
    id: str
    key: str


class Client:
    """Speaks to one demo from one loopback address; every answer is checked, and kept."""

    def __init__(self, demo: Demo, source: str | None = None) -> None:
        self.demo = demo
        self.source = next_address() if source is None else source
        self.answers: list[Answer] = []
        self._http = httpx.Client(
            base_url=demo.base_url,
            transport=httpx.HTTPTransport(
                verify=_NO_TLS,
                local_address=self.source,
                limits=_NO_CONNECTION_KEPT if demo.face.hangs_up else _KEPT,
            ),
            timeout=60,
            trust_env=False,
            follow_redirects=False,
        )

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _keep(self, answer: Answer, server_may_refuse: bool) -> Answer:
        self.answers.append(answer)
        if not (server_may_refuse and answer.by_the_server):
            answer.check()
        return answer

    def send(
        self,
        method: str,
        path: str,
        *,
        key: str | None = None,
        session: str | None = None,
        headers: Mapping[str, str] | None = None,
        json_body: object = None,
        content: bytes | None = None,
    ) -> Answer:
        """A plain request. `json_body` and `content` both mean Content-Type: application/json."""
        sent: dict[str, str] = {}
        if key is not None:
            sent["Authorization"] = f"Bearer {key}"
        if session is not None:
            sent["Cookie"] = f"__session={session}"
        if json_body is not None:
            content = json.dumps(json_body).encode()
        if content is not None:
            sent["Content-Type"] = "application/json"
        sent.update(headers or {})
        response = self._http.request(method, path, headers=sent, content=content)
        pairs = tuple(
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in response.headers.raw
        )
        return self._keep(Answer(method, response.status_code, pairs, response.content), False)

    def get(self, path: str, *, key: str | None = None, session: str | None = None) -> Answer:
        return self.send("GET", path, key=key, session=session)

    def raw(self, *parts: bytes, method: str = "GET", server_may_refuse: bool = False) -> Answer:
        """Send these bytes, part after part, on their own connection and read one answer."""
        address = (self.demo.host, self.demo.port)
        with socket.create_connection(address, 60, source_address=(self.source, 0)) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # refused before all of it was read: the answer is there all the same
            with suppress(BrokenPipeError, ConnectionResetError):
                for number, part in enumerate(parts):
                    time.sleep(0.05 if number else 0)  # so that it is read apart
                    sock.sendall(part)
            response = http.client.HTTPResponse(sock, method=method)
            response.begin()
            pairs = tuple((name.lower(), value) for name, value in response.getheaders())
            answer = Answer(method, response.status, pairs, response.read())
        return self._keep(answer, server_may_refuse)

    def exact(
        self,
        method: str,
        target: str | bytes,
        headers: HeaderList = (),
        body: bytes = b"",
        *,
        server_may_refuse: bool = False,
    ) -> Answer:
        """`raw` for a request given in parts."""
        request = wire(method, target, headers, body)
        return self.raw(request, method=method, server_may_refuse=server_may_refuse)

    # the four operations, for tests with another subject

    def post_key(self, session: str | None, body: object) -> Answer:
        return self.send("POST", KEYS, session=session, json_body=body)

    def create(self, org: Organization, **fields: object) -> CreatedKey:
        body = {"name": "a key", **fields}
        answer = self.post_key(org.session_cookie, body).is_ok(201).json()
        return CreatedKey(answer["id"], answer["key"])

    def read(self, org: Organization, key_id: str) -> dict[str, Any]:
        answer = self.get(f"{KEYS}/{key_id}", session=org.session_cookie).is_ok()
        data = answer.json()["data"]
        assert isinstance(data, dict)
        return data

    def keys(self, org: Organization) -> list[dict[str, Any]]:
        data = self.get(KEYS, session=org.session_cookie).is_ok().json()["data"]
        assert isinstance(data, list)
        return data

    def revoke(self, org: Organization, key_id: str) -> Answer:
        return self.send("DELETE", f"{KEYS}/{key_id}", session=org.session_cookie).is_ok()


def at_once(count: int, work: Callable[[int], T]) -> list[T]:
    """Run `work(0..count-1)` in separate threads that start at the same instant."""
    barrier = threading.Barrier(count)

    def start(index: int) -> T:
        barrier.wait(timeout=60)
        return work(index)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))


# --- the process --------------------------------------------------------------------------

SERVING = Path(__file__).with_name("serving.py")
BLINK = 1e-9
"""Days after which a key has expired at once: `serving.py` lets no other such lifetime through."""


@dataclass(frozen=True, slots=True)
class Face:
    """One way to run the demo. `{directory}` in the store's address is a fresh folder."""

    framework: str
    store: str
    shares_store: bool = False  # two demos on the same address see the same keys
    deadline: float = 10.0  # what is tested here is the answers, on machines however busy
    other_server: str = ""  # than the one that the demo comes with: one of `serving.SERVERS`

    @property
    def by_waitress(self) -> bool:
        """Its server reads a body before it asks the application."""
        return self.framework == "flask" and not self.other_server

    @property
    def by_granian_wsgi(self) -> bool:
        """Its server blanks a header that is not ASCII, shows one Content-Type of several, and no
        path but the decoded one."""
        return self.other_server == "granian-wsgi"

    @property
    def folds_slashes(self) -> bool:
        """Werkzeug takes all slashes in front of a path for one, and so does waitress."""
        return self.framework == "flask"

    @property
    def takes_any_case(self) -> bool:
        """To Werkzeug and to Hypercorn a method in lower case is that in upper case."""
        return self.framework == "flask" or self.other_server == "hypercorn"

    @property
    def hangs_up(self) -> bool:
        """Its server closes a connection, and does not say so, where a request was answered before
        its body had come (Hypercorn), or with more than 64 KiB of it unread (gunicorn)."""
        return self.other_server in {"hypercorn", "gunicorn"}

    def arguments(self, directory: str) -> list[str]:
        """Return those of `serving.py`."""
        store = self.store.replace("{directory}", directory)
        tail = ["--store", store, "--framework", self.framework, "--deadline", str(self.deadline)]
        if self.other_server:
            return [self.other_server, *tail]
        return ["lockgate", "demo", "--json", "--port", "0", *tail]


@dataclass(frozen=True, slots=True)
class Organization:
    plan: str
    id: str
    session_cookie: str
    api_key: str


class Demo:
    """A running demo.

    Args:
        face: how it runs.
        traced: whether coverage is measured in it: by one of many.
        forked: whether it may be the fork of a process; otherwise it runs as the command does.
    """

    START_SECONDS = 60.0
    STOP_SECONDS = 30.0

    def __init__(self, face: Face, *, traced: bool = False, forked: bool = True) -> None:
        self.face = face
        self._directory = tempfile.TemporaryDirectory(prefix="lockgate-demo-")
        self._stderr_path = Path(self._directory.name) / "stderr"
        self._lines: queue.Queue[str] = queue.Queue()
        self.stdout: list[str] = []
        self._stderr = ""
        self._asked_to_stop = False
        environment = os.environ if traced else untraced(os.environ)
        environment = {k: v for k, v in environment.items() if not k.startswith("LOCKGATE_")}
        arguments = face.arguments(self._directory.name)
        self.process: subprocess.Popen[str] | ForkedProcess
        if forked and environment == untraced(environment):
            self.process = ForkedProcess(arguments, self._stderr_path, environment)
        else:
            self.process = self._started(arguments, environment)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._announce()
        except BaseException:
            self.kill()
            raise

    def _started(
        self, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        with self._stderr_path.open("wb") as stderr:
            return subprocess.Popen(
                [sys.executable, "-P", str(SERVING), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                encoding="utf-8",
                env=environment,
                process_group=0,  # with the workers that some servers have
            )

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.stdout.append(line)
            self._lines.put(line)
        self._lines.put("")

    def _announce(self) -> None:
        try:
            line = self._lines.get(timeout=self.START_SECONDS)
        except queue.Empty:
            raise AssertionError(f"the demo said nothing: {self.stderr}") from None
        assert line.endswith("\n"), f"the demo ended without its line: {self.stderr}"
        self.announcement: dict[str, Any] = json.loads(line)
        self.base_url: str = self.announcement["base_url"]
        parts = urlsplit(self.base_url)
        assert parts.hostname and parts.port, self.base_url
        self.host, self.port = parts.hostname, parts.port
        self.organizations = {
            plan: Organization(plan, org["id"], org["session_cookie"], org["api_key"])
            for plan, org in self.announcement["organizations"].items()
        }

    def __getitem__(self, plan: str) -> Organization:
        return self.organizations[plan]

    @property
    def stderr(self) -> str:
        if self._stderr_path.exists():
            self._stderr = self._stderr_path.read_text("utf-8", "replace")
        return self._stderr

    def client(self) -> Client:
        return Client(self)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop; its exit code. Slower than promised is a failure."""
        self._asked_to_stop = True
        self.process.send_signal(how)
        try:
            return self.process.wait(self.STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {self.STOP_SECONDS} s") from None
        finally:
            self.kill()

    def crash(self) -> None:
        """Kill it, so that it cannot release any slot."""
        self._asked_to_stop = True
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._reader.join(timeout=60)
        assert isinstance(self.stderr, str)  # read once more before its folder goes
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        ended = self.process.poll() is not None
        if kind is not None or self._asked_to_stop:
            self.kill()
        elif ended:
            self.kill()
            raise AssertionError(f"the demo ended by itself: {self.stderr}")
        else:
            assert self.stop() == 0, self.stderr
