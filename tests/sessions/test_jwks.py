"""Keys fetched from a provider on loopback, while it rotates, fails, hangs and lies."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey, Key, OctKey

from lockgate import Event, Gate, run
from lockgate.asgi import protect
from lockgate.core.timestamps import MINUTE
from lockgate.events import Events
from lockgate.options import WebOptions
from lockgate.sessions.jwks import FetchedKeys, NoSigningKeys
from lockgate.sessions.jwt import JwtSessions
from tests.stores.tls import certificate
from tests.web.driving import Bench, ask, say
from tests.web.test_sessions import KEYS, Face, by_asgi, by_wsgi

from .provider import AUDIENCE, EC, ISSUER, Provider, jwks, mint, provider

NEWER = ECKey.generate_key("P-256", parameters={"kid": "newer", "use": "sig", "alg": "ES256"})


class Monotonic:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def idp() -> Iterator[Provider]:
    with provider() as found:
        yield found


class Desk:
    """The keys of a provider, by a clock moved by hand."""

    def __init__(self, url: str, **fields: Any) -> None:
        self.clock = Monotonic()
        self.told: list[Event] = []
        settings = {"max_age": 600, "stale_for": 3600, "cool_down": 30, "timeout": 60, **fields}
        events = Events(self.told.append)
        self.keys = FetchedKeys(url, ["ES256"], **settings, events=events, clock=self.clock)

    def give_up_after(self, seconds: float) -> None:
        """Have callers and fetches give up, of a provider that hangs from now on."""
        for waiting in (self.keys, self.keys._keys):
            waiting._timeout = seconds

    def find(self, kid: str | None = "ec") -> str | None:
        """The kid of the key that is found; the way it goes without an event loop."""
        found = run(self.keys.find(kid, "ES256"))
        return None if found is None else found.key_id

    async def peek(self, kid: str | None = "ec") -> str | None:
        """The same in an event loop."""
        found = await self.keys.find(kid, "ES256")
        return None if found is None else found.key_id


def test_keys_are_fetched_once_and_again_when_they_are_old(idp: Provider) -> None:
    desk = Desk(idp.url)
    assert [desk.find() for _ in range(5)] == ["ec"] * 5
    desk.clock.now += 599
    assert desk.find() == "ec"
    assert idp.asked == 1
    desk.clock.now += 1
    assert desk.find() == "ec"
    assert idp.asked == 2
    assert [event.name for event in desk.told] == ["signing_keys_fetched"] * 2


def test_only_keys_in_memory_are_at_hand(idp: Provider) -> None:
    desk = Desk(idp.url)
    assert not desk.keys.at_hand("ec", "ES256")
    assert idp.asked == 0
    desk.find()
    for kid, algorithm, at_hand in (
        ("ec", "ES256", True),
        (None, "ES256", True),
        ("newer", "ES256", False),
        ("ec", "RS256", False),
    ):
        assert desk.keys.at_hand(kid, algorithm) is at_hand
    desk.clock.now += 600 + 3599
    assert desk.keys.at_hand("ec", "ES256")
    desk.clock.now += 1
    assert not desk.keys.at_hand("ec", "ES256")
    assert idp.asked == 1


@pytest.mark.parametrize("face", [by_asgi, by_wsgi])
def test_d24_a_session_is_admitted_from_a_spent_address_once_the_keys_are_cached(
    idp: Provider, face: Face
) -> None:
    verifier = JwtSessions(idp.url, issuer=ISSUER, audience=AUDIENCE, timeout=60)
    bench = Bench(sessions=verifier, anonymous=2)
    cookie = ("cookie", f"__session={mint()}")
    while face(bench, "GET", "/x", [], b"") == 401:
        pass
    assert face(bench, "GET", KEYS, [cookie], b"") == 429
    assert idp.asked == 0
    bench.clock.now += MINUTE
    assert face(bench, "GET", KEYS, [cookie], b"") == 200
    while face(bench, "GET", "/x", [], b"") == 401:
        pass
    assert face(bench, "GET", KEYS, [cookie], b"") == 200
    unknown = ("cookie", f"__session={mint(NEWER)}")
    assert face(bench, "GET", KEYS, [unknown], b"") == 429
    assert idp.asked == 1


def test_the_provider_changes_its_keys(idp: Provider) -> None:
    desk = Desk(idp.url)
    assert desk.find() == "ec"
    desk.clock.now += 30
    idp.keys = [EC, NEWER]
    assert desk.find("newer") == "newer"
    assert desk.find() == "ec"
    assert idp.asked == 2
    # A key that the provider removes is valid until the next fetch, and no longer.
    idp.keys = [NEWER]
    assert desk.find() == "ec"
    desk.clock.now += 600
    assert desk.find() is None
    assert desk.find("newer") == "newer"


def test_unknown_kids_cause_one_fetch_per_cool_down(idp: Provider) -> None:
    desk = Desk(idp.url)
    assert desk.find() == "ec"
    for minute in range(3):
        for number in range(200):
            assert desk.find(f"made up {minute} {number}") is None
            assert desk.find(None) == "ec"
        desk.clock.now += 30
    # The first of them came within the cool-down of the first fetch.
    assert idp.asked == 3
    idp.answers(b"", 500)
    for second in range(90):  # Also one after the other, of a provider that fails.
        desk.clock.now += 1
        assert desk.find(f"made up {second}") is None
    assert idp.asked == 6


def test_a_token_without_kid_never_leads_to_a_fetch(idp: Provider) -> None:
    desk = Desk(idp.url)
    idp.keys = [EC, NEWER]
    for _ in range(5):
        assert desk.find(None) is None
        desk.clock.now += 60
    assert idp.asked == 1


# --- one fetch for all ----------------------------------------------------------------------


def test_threads_that_need_the_keys_share_a_fetch(idp: Provider) -> None:
    desk = Desk(idp.url)
    entered = threading.Event()

    def slowly(request: BaseHTTPRequestHandler) -> None:
        entered.set()
        time.sleep(0.1)
        idp.serve_keys(request)

    idp.answer = slowly
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda n: desk.find("ec" if n % 2 else f"made up {n}"), range(64)))
    assert entered.is_set()
    assert found == [None, "ec"] * 32
    assert idp.asked == 1


async def test_tasks_that_need_the_keys_share_a_fetch_and_block_no_loop(idp: Provider) -> None:
    desk = Desk(idp.url)
    idp.answer = idp.hang
    waiting = [asyncio.create_task(desk.peek()) for _ in range(50)]
    for _ in range(20):
        await asyncio.sleep(0.005)
    # A blocked loop would not come here before the provider hangs up.
    assert not idp.let_go.is_set()
    assert not any(task.done() for task in waiting)
    for task in waiting[:25]:
        task.cancel()
    idp.answer = idp.serve_keys
    idp.let_go.set()
    # The hanging response fails: waiting callers get the failure, and no other is cancelled.
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(f) for f in found] == [asyncio.CancelledError] * 25 + [NoSigningKeys] * 25
    desk.clock.now += 5
    assert await desk.peek() == "ec"
    assert idp.asked == 2


# --- a provider that fails --------------------------------------------------------------------

SHARED: Key = OctKey.generate_key(256, parameters={"kid": "ec"})
GOOD = json.dumps(jwks(EC)).encode()
FAILURES: dict[str, Callable[[Provider], None]] = {
    "error": lambda idp: idp.answers(GOOD, 500),
    "moved": lambda idp: idp.answers(GOOD, 302, Location=idp.url),
    "garbage": lambda idp: idp.answers(b"\xff\xfe\x00garbage"),
    "no set": lambda idp: idp.answers(b"[]"),
    "no keys": lambda idp: idp.answers(b'{"keys": []}'),
    "a shared secret": lambda idp: idp.answers(
        json.dumps({"keys": [SHARED.as_dict(private=True)]}).encode()
    ),
    "deep": lambda idp: idp.answers(b'{"keys":' + b"[" * 100_000),
    "huge": lambda idp: idp.answers(json.dumps({**jwks(EC), "x": "x" * 300_000}).encode()),
    "padded": lambda idp: idp.answers(GOOD + b" " * 300_000),
    "cut": lambda idp: idp.answers(b'{"keys": [', Content_Length="1000"),
    "compressed": lambda idp: idp.answers(b"\x1f\x8b\x08", Content_Encoding="gzip"),
}


@pytest.mark.parametrize("how", FAILURES)
def test_a_provider_that_fails_is_asked_again_and_its_keys_serve_until_they_are_stale(
    idp: Provider, how: str
) -> None:
    desk = Desk(idp.url)
    FAILURES[how](idp)
    for _ in range(100):
        with pytest.raises(NoSigningKeys):
            desk.find()
    assert idp.asked == 1
    assert [event.name for event in desk.told] == ["signing_keys_failed"]
    idp.answer = idp.serve_keys
    desk.clock.now += 5
    assert desk.find() == "ec"
    FAILURES[how](idp)
    for _ in range(10):
        desk.clock.now += 360
        assert desk.find() == "ec"
    assert desk.find("made up") is None
    # 600 s of age and 3600 s of patience are over.
    desk.clock.now += 600
    for _ in range(3):
        with pytest.raises(NoSigningKeys):
            desk.find()
    desk.clock.now += 5
    idp.answer = idp.serve_keys
    assert desk.find() == "ec"


def test_keys_that_the_provider_has_withdrawn_serve_no_longer(idp: Provider) -> None:
    """A stolen key is useless where the provider publishes other keys, of any kind."""
    desk = Desk(idp.url)
    assert desk.find() == "ec"
    idp.keys = [ECKey.generate_key("P-384", parameters={"kid": "other", "use": "sig"})]
    desk.clock.now += 601
    for _ in range(3):
        with pytest.raises(NoSigningKeys):
            desk.find()
    assert idp.asked == 2
    assert desk.told[-1].fields == {"error": "Withdrawn"}
    idp.keys = [EC]
    desk.clock.now += 5
    assert desk.find() == "ec"


def test_a_refused_connection_raises_no_signing_keys(idp: Provider) -> None:
    idp.close()
    desk = Desk(idp.url)
    with pytest.raises(NoSigningKeys):
        desk.find()
    (event,) = desk.told
    assert event.fields == {"error": "ConnectionRefusedError"}


@pytest.mark.parametrize("how", ["hang", "drip"])
def test_a_provider_whose_answer_never_ends_is_abandoned_at_the_timeout(
    idp: Provider, how: str
) -> None:
    """Waiting callers and the fetching thread give up in time."""
    desk = Desk(idp.url)
    assert desk.find() == "ec"
    desk.give_up_after(0.2)
    idp.answer = getattr(idp, how)
    desk.clock.now += 601
    started = time.monotonic()
    assert desk.find() == "ec"
    assert time.monotonic() - started < 20
    fetching = [t for t in threading.enumerate() if t.name == "lockgate-jwks"]
    for thread in fetching:
        thread.join(20)
        assert not thread.is_alive()
    # While the fetch fails, known keys serve without waiting.
    waits: list[float] = []
    for _ in range(20):
        desk.clock.now += 31
        before = time.monotonic()
        assert desk.find() == "ec"
        waits.append(time.monotonic() - before)
        for thread in [t for t in threading.enumerate() if t.name == "lockgate-jwks"]:
            thread.join(0.02)
    assert sorted(waits)[10] < 0.2, "a busy machine delays some, and a wait for the fetch all"


def test_a_fetch_without_its_thread_is_abandoned(
    idp: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a process that was forked while its parent fetched."""
    desk = Desk(idp.url, timeout=0.05)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", lambda self: None)
        with pytest.raises(NoSigningKeys):
            desk.find()
    desk.clock.now += 100
    with pytest.raises(NoSigningKeys):
        desk.find()
    later = time.monotonic() + 100
    monkeypatch.setattr(time, "monotonic", lambda: later)
    for waiting in (desk.keys, desk.keys._keys):  # This fetch is real: a busy machine may be slow.
        monkeypatch.setattr(waiting, "_timeout", 20)
    assert desk.find() == "ec"


def test_a_thread_that_cannot_start_fails_the_fetch_only(
    idp: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(idp.url)

    def full(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", full)
        with pytest.raises(RuntimeError):
            desk.find()
    desk.clock.now += 30
    assert desk.find() == "ec"


def test_a_token_that_no_key_can_verify_causes_no_fetch(idp: Provider) -> None:
    verifier = JwtSessions(idp.url, issuer=ISSUER, audience=AUDIENCE, timeout=60)
    secret = OctKey.generate_key(256, parameters={"kid": "ec"})
    others = [mint(secret, "HS256"), mint(header={"typ": "logout+jwt"}), mint(padding="x" * 4000)]
    for token in (*others, "garbage", "a.b.c"):
        assert run(verifier.verify(token)) is None
    assert idp.asked == 0


# --- the whole way ----------------------------------------------------------------------------


async def test_g4_without_keys_the_answer_is_503(
    idp: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[Event] = []
    names: dict[str, Any] = {"issuer": ISSUER, "audience": AUDIENCE}
    verifier = JwtSessions(idp.url, **names, timeout=60, cool_down=0, observer=told.append)
    options = WebOptions(public_url=AUDIENCE)
    gate = Gate(brand="acme", sessions=verifier, web_options=options, observer=told.append)
    app = protect(say, gate)

    async def call(token: str) -> tuple[int, str]:
        answer = await ask(app, path=KEYS, session=token)
        return answer.status, "" if answer.status == 200 else answer.code

    idp.answers(b"", 500)
    token = mint()
    assert await call(token) == (503, "STORE_UNAVAILABLE")
    # A token outside the allow-list is refused without a key.
    assert await call("garbage") == (401, "SESSION_INVALID")
    assert [event.name for event in told][:3] == ["signing_keys_failed", "store_failed", "refused"]
    assert told[1].fields == {"error": "NoSigningKeys"}
    idp.answer = idp.serve_keys
    assert await call(token) == (200, "")
    assert await call(token[:-4] + "AAAA") == (401, "SESSION_INVALID")
    for part in token.split("."):
        assert part not in repr(told) + caplog.text
    # The provider changes its keys, and the same verifier serves threads.
    assert await call(mint(NEWER)) == (401, "SESSION_INVALID")
    idp.keys = [NEWER]
    assert await call(mint(NEWER)) == (200, "")
    assert await call(mint()) == (401, "SESSION_INVALID")
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(lambda: run(verifier.verify(mint(NEWER)))).result() is not None


def test_a_failure_is_logged_without_the_providers_answer(
    idp: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    idp.answers(b'{"keys": "canary"}')
    with pytest.raises(NoSigningKeys):
        Desk(idp.url).find()
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "signing_keys_failed error='ValueError'" in record.getMessage()
    assert "canary" not in caplog.text


# --- TLS --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "trusted", "good"),
    [("127.0.0.1", True, True), ("127.0.0.2", True, False), ("127.0.0.1", False, False)],
    ids=["good", "another host", "unknown issuer"],
)
def test_over_tls_the_certificate_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, trusted: bool, good: bool
) -> None:
    shown = certificate(tmp_path, address)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(shown.file))
    with provider(shown.shown()) as idp:
        desk = Desk(idp.url)
        if good:
            assert desk.find() == "ec"
        else:
            with pytest.raises(NoSigningKeys):
                desk.find()
            (event,) = desk.told
            assert event.fields == {"error": "SSLCertVerificationError"}
