"""Keys that other systems made: hashed by those themselves, good here, moved to ours once (K3)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import argon2
import bcrypt
import pytest
from django.conf import settings
from django.contrib.auth.hashers import (
    Argon2PasswordHasher,
    BCryptSHA256PasswordHasher,
    PBKDF2PasswordHasher,
    make_password,
)
from keyshield.hasher.argon2 import Argon2ApiKeyHasher
from keyshield.hasher.bcrypt import BcryptApiKeyHasher
from passlib import hash as passlib_hash  # type: ignore[import-untyped]
from rest_framework_api_key.crypto import KeyGenerator
from starlette.responses import PlainTextResponse

from lockgate import (
    ConfigurationError,
    Event,
    Gate,
    ImportedKeyFormat,
    MemoryStore,
    Principal,
    Refusal,
    run,
)
from lockgate.asgi import GateMiddleware as AsgiMiddleware
from lockgate.core.api_keys import ApiKey
from lockgate.core.digests import Digest
from lockgate.core.row_seals import resealed_key
from lockgate.core.timestamps import DAY, MINUTE
from lockgate.errors import (
    HandleTaken,
    InvalidFormat,
    InvalidRequest,
    KeyExpired,
    KeyNotFound,
    KeyRevoked,
    RateLimitExceeded,
    StoreUnavailable,
)
from lockgate.options import KeyOptions, StoreOptions
from lockgate.services.imports.password_checks import _AT_ONCE, PasswordChecks, PasswordHashes
from lockgate.web.shadow import Shadow
from lockgate.wsgi import GateMiddleware as WsgiMiddleware
from tests.gates import flat_gate
from tests.stores.forking import AT_FORK, in_a_child
from tests.stores.making import HandClock, draft_of, new_key
from tests.web.driving import ask

PEPPER = b"a pepper of the tests, long enough"
KEYSHIELD_PEPPER = "a pepper of keyshield, long enough too"

DRF = ImportedKeyFormat(
    "drf",
    r"(?P<handle>[A-Za-z0-9]{8})\.[A-Za-z0-9]{32}",
    schemes=["sha512", "django_pbkdf2_sha256", "django_argon2", "django_bcrypt_sha256"],
)
KEYSHIELD_PATTERN = r"ks-(?P<handle>[0-9a-f]{16})-(?P<secret>[A-Za-z0-9]{64})"
KEYSHIELD_BCRYPT = ImportedKeyFormat(
    "keyshield-bcrypt",
    KEYSHIELD_PATTERN,
    schemes=["bcrypt"],
    secret="secret",
    prepare=lambda secret: hmac.digest(KEYSHIELD_PEPPER.encode(), secret.encode(), "sha256"),
)
KEYSHIELD_ARGON2 = ImportedKeyFormat(
    "keyshield-argon2",
    KEYSHIELD_PATTERN,
    schemes=["argon2"],
    secret="secret",
    prepare=lambda secret: secret + KEYSHIELD_PEPPER,
)
PLAIN = ImportedKeyFormat(
    "plain", r"pk_(?P<handle>[a-z0-9]{6})_[A-Za-z0-9]{24}", schemes=["sha256", "hmac-sha512"],
    hmac_key=b"the key of the other system",
)  # fmt: skip
SLOW = ImportedKeyFormat(
    "slow", r"sk_(?P<handle>[a-z0-9]{6})_[A-Za-z0-9]{1,80}", schemes=["bcrypt", "pbkdf2_sha256"]
)


@pytest.fixture(scope="module", autouse=True)
def _django() -> None:
    if not settings.configured:
        settings.configure()


class Desk:
    """A gate that takes keys of other systems, with a clock moved by hand."""

    def __init__(
        self, *systems: ImportedKeyFormat, store: MemoryStore | None = None, **fields: Any
    ) -> None:
        self.clock = HandClock()
        self.told: list[Event] = []
        self.gate = flat_gate(
            store or MemoryStore(),
            brand="acme",
            peppers=[PEPPER],
            legacy=systems or (DRF, PLAIN, SLOW),
            clock=self.clock,
            observer=self.told.append,
            **fields,
        )

    def adopt(self, system: str, handle: str, digest: str, **fields: Any) -> ApiKey:
        fields = {"organization": "org_1", "name": "an old key", **fields}
        return run(self.gate.legacy.adopt(system, handle=handle, digest=digest, **fields))

    def admit(self, text: str, address: str = "192.0.2.1") -> Principal:
        return run(self.gate.authenticate(text, address=address))

    async def admit_async(self, text: str, address: str = "192.0.2.1") -> Principal:
        return await self.gate.authenticate(text, address=address)

    def kept(self, key: ApiKey) -> ApiKey:
        return run(self.gate.keys.get(key.organization, key.id))

    @property
    def names(self) -> list[str]:
        return [event.name for event in self.told]


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes the scheme of every slow check."""
    schemes: list[str] = []
    verify = PasswordHashes.verify

    def noting(self: PasswordHashes, scheme: str, hashed: bytes, digest: str) -> bool:
        schemes.append(scheme)
        return verify(self, scheme, hashed, digest)

    monkeypatch.setattr(PasswordHashes, "verify", noting)
    return schemes


def bcrypt_of(text: str) -> str:
    return bcrypt.hashpw(text.encode(), bcrypt.gensalt(4)).decode()


def is_ours(desk: Desk, key: ApiKey) -> bool:
    return desk.kept(key).scheme == desk.gate.format.peppers.scheme


# --- hashes that the other systems made --------------------------------------------------------


def test_a_key_of_django_rest_framework_api_key(hashed: list[str]) -> None:
    desk = Desk()
    text, handle, digest = KeyGenerator().generate()
    assert digest.startswith("sha512$$")
    key = desk.adopt("drf", handle, digest)
    assert key.prefix == handle
    principal = desk.admit(text)
    assert principal.organization == "org_1"
    assert principal.key is not None and principal.key.id == key.id
    assert is_ours(desk, key)
    assert hashed == []
    with pytest.raises(KeyNotFound):
        desk.admit(f"{handle}.{'x' * 32}")


def cheap(hasher: Any, **costs: int) -> Any:
    """A hasher of Django's, unchanged except for its cost."""
    vars(hasher).update(costs)
    return hasher


@pytest.mark.parametrize(
    "hasher",
    [
        cheap(PBKDF2PasswordHasher(), iterations=1000),
        cheap(Argon2PasswordHasher(), time_cost=1, memory_cost=1024, parallelism=1),
        cheap(BCryptSHA256PasswordHasher(), rounds=4),
    ],
    ids=lambda hasher: str(hasher.algorithm),
)
def test_an_older_drf_key_with_a_django_hash_moves_on_its_first_use(
    hashed: list[str], hasher: Any
) -> None:
    text, handle, _ = KeyGenerator().generate()
    desk = Desk()
    key = desk.adopt("drf", handle, str(make_password(text, hasher=hasher)))
    assert desk.admit(text).organization == "org_1"
    assert is_ours(desk, key)
    for _ in range(3):
        desk.admit(text)
    assert hashed == [f"django_{hasher.algorithm}"]
    assert desk.kept(key).request_count == 4
    assert desk.names == ["key_adopted", "key_rehashed"]


@pytest.mark.parametrize("system", [KEYSHIELD_BCRYPT, KEYSHIELD_ARGON2], ids=lambda s: s.name)
def test_a_key_of_keyshield(hashed: list[str], system: ImportedKeyFormat) -> None:
    hasher = (
        BcryptApiKeyHasher(KEYSHIELD_PEPPER, rounds=4)
        if system is KEYSHIELD_BCRYPT
        else Argon2ApiKeyHasher(KEYSHIELD_PEPPER, argon2.PasswordHasher(1, 1024))
    )
    desk = Desk(system)
    handle, secret = "0123456789abcdef", "s3cret" * 10 + "abcd"
    key = desk.adopt(system.name, handle, hasher.hash(secret))
    with pytest.raises(KeyNotFound):
        desk.admit(f"ks-{handle}-{secret[:-1]}X")
    assert desk.admit(f"ks-{handle}-{secret}").organization == "org_1"
    assert is_ours(desk, key)
    assert len(hashed) == 2


@pytest.mark.parametrize(
    "scheme",
    ["argon2", "bcrypt", "bcrypt_sha256", "pbkdf2_sha256", "pbkdf2_sha512", "scrypt",
     "django_pbkdf2_sha256", "django_bcrypt"],
)  # fmt: skip
def test_a_key_that_passlib_hashed(hashed: list[str], scheme: str) -> None:
    desk = Desk(ImportedKeyFormat("own", r"(?P<handle>\w{4})-\w{20}", schemes=[scheme]))
    text = "abcd-" + "s" * 20
    handler = getattr(passlib_hash, scheme)
    if scheme == "argon2":
        handler = handler.using(memory_cost=1024, rounds=1)
    else:
        rounds = 4 if "bcrypt" in scheme else 6 if scheme == "scrypt" else 1000
        handler = handler.using(rounds=rounds)
    key = desk.adopt("own", "abcd", handler.hash(text))
    assert desk.admit(text).organization == "org_1"
    assert is_ours(desk, key)
    assert hashed == [scheme]


def test_a_key_that_argon2_itself_hashed() -> None:
    desk = Desk(ImportedKeyFormat("own", r"(?P<handle>\w{4})-\w{20}", schemes=["argon2"]))
    text = "abcd-" + "s" * 20
    desk.adopt("own", "abcd", argon2.PasswordHasher(1, 1024).hash(text))
    assert desk.admit(text).organization == "org_1"


@pytest.mark.parametrize("form", ["hex", "HEX", "base64", "urlsafe", "bare", "django"])
@pytest.mark.parametrize("scheme", ["sha256", "hmac-sha512"])
def test_fast_digests_in_every_form(hashed: list[str], scheme: str, form: str) -> None:
    desk = Desk()
    text = "pk_abc123_" + "s" * 24
    value = (
        hashlib.sha256(text.encode()).digest()
        if scheme == "sha256"
        else hmac.digest(b"the key of the other system", text.encode(), "sha512")
    )
    written = {
        "hex": value.hex(),
        "HEX": value.hex().upper(),
        "base64": base64.b64encode(value).decode(),
        "urlsafe": base64.urlsafe_b64encode(value).decode(),
        "bare": base64.urlsafe_b64encode(value).decode().rstrip("="),
        "django": f"sha{len(value) * 8}$${value.hex()}",
    }[form]
    key = desk.adopt("plain", "abc123", written)
    assert desk.kept(key).scheme == f"legacy:plain:{scheme}"
    with pytest.raises(KeyNotFound):
        desk.admit("pk_abc123_" + "t" * 24)
    assert desk.admit(text).key is not None
    assert is_ours(desk, key)
    assert desk.admit(text).organization == "org_1"
    assert hashed == []


def test_a_system_that_found_its_keys_by_their_digest() -> None:
    system = ImportedKeyFormat(
        "digests",
        r"tok_[A-Za-z0-9]{40}",
        schemes=["sha256"],
        handle=lambda found: hashlib.sha256(found[0].encode()).hexdigest(),
    )
    desk = Desk(system)
    text = "tok_" + "a" * 40
    digest = hashlib.sha256(text.encode()).hexdigest()
    key = desk.adopt("digests", digest, digest, prefix="tok_aaaaaaaaaaaaaaaaaaaaaa")
    assert key.prefix == "tok_aaaaaaaaaaa"
    assert desk.admit(text).organization == "org_1"
    with pytest.raises(KeyNotFound):
        desk.admit("tok_" + "b" * 40)


# --- taking in ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"system": "nobody"}, ["system"]),
        ({"digest": ""}, ["digest"]),
        ({"digest": "x"}, ["digest"]),
        ({"digest": "sha256$$" + "0" * 128}, ["digest"]),
        ({"digest": "md5$$" + "0" * 32}, ["digest"]),
        ({"digest": "0" * 63}, ["digest"]),
        ({"digest": "$2b$12$short"}, ["digest"]),
        ({"digest": "pbkdf2_sha256$1$a$b"}, ["digest"]),
        ({"digest": "$argon2id$v=19$m=65536,t=3,p=4$xx$yy"}, ["digest"]),
        ({"digest": "$2b$04$" + "\u00e9" * 53}, ["digest"]),
        ({"handle": ""}, ["handle"]),
        ({"handle": "h" * 257}, ["handle"]),
        ({"organization": ""}, ["organization"]),
        ({"name": "\0"}, ["name"]),
        ({"prefix": "tok\0"}, ["prefix"]),
        ({"prefix": "tok\ud800"}, ["prefix"]),
        ({"handle": "abc\0"}, ["prefix"]),
        ({"scopes": ["no:such"]}, ["scopes"]),
        ({"created_at": datetime(2099, 1, 1)}, ["created_at"]),
        ({"revoked_at": datetime(1960, 1, 1)}, ["revoked_at"]),
        ({"request_count": -1}, ["request_count"]),
        ({"text": "x"}, ["text"]),
        ({"name": "", "digest": "", "handle": ""}, ["digest", "handle", "name"]),
    ],
    ids=repr,
)
def test_invalid_arguments_of_adopt_are_all_named(fields: dict[str, Any], wrong: list[str]) -> None:
    desk = Desk()
    good = {"system": "drf", "handle": "abcdefgh", "digest": "sha512$$" + "0" * 128}
    with pytest.raises(InvalidRequest) as caught:
        desk.adopt(**{**good, **fields})
    assert sorted({problem.field for problem in caught.value.problems}) == wrong


def test_a_key_is_taken_in_once() -> None:
    desk = Desk()
    text, handle, digest = KeyGenerator().generate()
    key = desk.adopt("drf", handle, digest)
    for organization in ("org_1", "org_2"):
        with pytest.raises(HandleTaken):
            desk.adopt("drf", handle, digest, organization=organization)
    run(desk.gate.keys.revoke("org_1", key.id))
    with pytest.raises(HandleTaken):
        desk.adopt("drf", handle, digest)
    with pytest.raises(KeyRevoked):
        desk.admit(text)


def test_two_systems_may_use_one_handle() -> None:
    other = ImportedKeyFormat("other", r"o-(?P<handle>[A-Za-z0-9]{8})-\w{8}", schemes=["sha256"])
    desk = Desk(DRF, other)
    text, handle, digest = KeyGenerator().generate()
    theirs = f"o-{handle}-secretxx"
    desk.adopt("drf", handle, digest, organization="org_1")
    desk.adopt("other", handle, hashlib.sha256(theirs.encode()).hexdigest(), organization="org_2")
    assert desk.admit(text).organization == "org_1"
    assert desk.admit(theirs).organization == "org_2"


def test_an_imported_key_keeps_its_expiry() -> None:
    desk = Desk()
    text, handle, digest = KeyGenerator().generate()
    at = datetime.fromtimestamp(desk.clock.now / 1e6, UTC) + timedelta(days=1)
    desk.adopt("drf", handle, digest, expires_at=at)
    assert desk.admit(text).organization == "org_1"
    desk.clock.now += DAY
    with pytest.raises(KeyExpired):
        desk.admit(text)


def test_the_census_counts_imported_keys_that_have_not_moved() -> None:
    desk = Desk()
    keys = [KeyGenerator().generate() for _ in range(3)]
    for _, handle, digest in keys:
        desk.adopt("drf", handle, digest)
    seal = f"seal:{desk.gate.format.peppers.newest}"
    assert run(desk.gate.keys.census()) == {"legacy:drf:sha512": 3, seal: 3}
    desk.admit(keys[0][0])
    ours = desk.gate.format.peppers.scheme
    assert run(desk.gate.keys.census()) == {"legacy:drf:sha512": 2, seal: 2, ours: 1}


def test_a_native_key_costs_no_slow_hash(
    hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our format is looked at first, and no pattern of another system after it."""
    everything = ImportedKeyFormat("all", r"(?P<handle>[!-~]{4})[!-~]+", schemes=["bcrypt"])
    desk = Desk(everything)
    created = run(desk.gate.keys.create("org_1", "native"))
    monkeypatch.setattr(
        ImportedKeyFormat, "read", lambda *_: pytest.fail("a key of ours was tried")
    )
    assert desk.admit(created.text).organization == "org_1"
    with pytest.raises(InvalidFormat):
        desk.admit(created.text[:-1] + ("A" if created.text[-1] != "A" else "B"))
    assert hashed == []


# --- the bounds of slow checks -----------------------------------------------------------------


def sk(handle: str, secret: str = "right") -> str:
    return f"sk_{handle}_{secret}"


def test_an_unknown_handle_costs_no_hash(hashed: list[str]) -> None:
    desk = Desk()
    for number in range(50):
        with pytest.raises(KeyNotFound):
            desk.admit(sk(f"{number:06}"))
    assert hashed == []


def test_k10_unknown_and_wrong_get_the_same_answer() -> None:
    desk = Desk()
    desk.adopt("slow", "abc123", bcrypt_of(sk("abc123")))
    answers: list[tuple[object, ...]] = []
    for text in (sk("abc123", "wrong"), sk("zzz999")):
        with pytest.raises(Refusal) as caught:
            desk.admit(text)
        answers.append((type(caught.value), caught.value.body(), caught.value.headers()))
    assert answers[0] == answers[1]


def test_an_address_has_a_budget_of_failures(hashed: list[str]) -> None:
    desk = Desk()
    desk.adopt("slow", "abc123", bcrypt_of(sk("abc123")))
    for number in range(10):
        with pytest.raises(KeyNotFound):
            desk.admit(sk("abc123", f"wrong{number}"))
    for number in range(5):
        with pytest.raises(RateLimitExceeded) as caught:
            desk.admit(sk("abc123", f"wrong again{number}".replace(" ", "")))
        assert caught.value.type == "minute"
    assert len(hashed) == 10
    with pytest.raises(RateLimitExceeded):
        desk.admit(sk("abc123"))
    assert desk.admit(sk("abc123"), "203.0.113.1").organization == "org_1"
    # Once it is ours, it costs no hash, and no budget decides about it.
    assert desk.admit(sk("abc123")).organization == "org_1"
    desk.adopt("slow", "def456", bcrypt_of(sk("def456")))
    with pytest.raises(RateLimitExceeded):
        desk.admit(sk("def456"))
    desk.clock.now += MINUTE
    assert desk.admit(sk("def456")).organization == "org_1"


def test_right_keys_are_not_charged_to_their_address(hashed: list[str]) -> None:
    """A company behind one address uses all of its keys in the same minute."""
    desk = Desk(plans=_roomy())
    for number in range(15):
        handle = f"{number:06}"
        desk.adopt("slow", handle, bcrypt_of(sk(handle)))
        assert desk.admit(sk(handle)).organization == "org_1"
    assert len(hashed) == 15


@pytest.mark.parametrize("state", ["revoked", "expired", "spent"])
def test_a_key_that_is_not_admitted_costs_one_hash_only(hashed: list[str], state: str) -> None:
    """Otherwise its holder could keep the threads busy without any charge."""
    desk = Desk()
    at = datetime.fromtimestamp(desk.clock.now / 1e6, UTC) + timedelta(days=1)
    key = desk.adopt("slow", "abc123", bcrypt_of(sk("abc123")), expires_at=at)
    wanted: type[Refusal]
    if state == "revoked":
        run(desk.gate.keys.revoke("org_1", key.id))
        wanted = KeyRevoked
    elif state == "expired":
        desk.clock.now += DAY
        wanted = KeyExpired
    else:
        for _ in range(10):
            run(desk.gate.admit_session(_session()))
        wanted = RateLimitExceeded
    for _ in range(5):
        with pytest.raises(wanted):
            desk.admit(sk("abc123"))
    assert hashed == ["bcrypt"]
    with pytest.raises(KeyNotFound):
        desk.admit(sk("abc123", "wrong"))
    assert hashed == ["bcrypt"]


def _session() -> Any:
    from lockgate.sessions import Session

    return Session("org_1", "ada")


class Gated:
    """Slow checks that the test releases one by one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        self.begun = 0
        self.texts: list[bytes] = []
        """The checked keys, in the order of their checks."""
        self.addresses: list[str] = []
        """The addresses that asked for checks, in order."""
        self.asked: list[Future[bool]] = []
        verify, check = PasswordHashes.verify, PasswordChecks.check

        def waiting(hashes: PasswordHashes, scheme: str, hashed: bytes, digest: str) -> bool:
            self.begun += 1
            self.texts.append(hashed)
            assert self.go.wait(60)
            return verify(hashes, scheme, hashed, digest)

        def noted(checks: PasswordChecks, *asked: Any) -> Future[bool]:
            self.asked.append(check(checks, *asked))
            self.addresses.append(asked[-1])
            return self.asked[-1]

        monkeypatch.setattr(PasswordHashes, "verify", waiting)
        monkeypatch.setattr(PasswordChecks, "check", noted)


@pytest.fixture
def gated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gated]:
    found = Gated(monkeypatch)
    yield found
    found.go.set()


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


async def outcomes(tasks: list[asyncio.Task[Principal]]) -> list[str]:
    done = await asyncio.gather(*tasks, return_exceptions=True)
    return [type(d).__name__ for d in done]


async def test_the_same_key_many_times_at_once_is_checked_once(gated: Gated) -> None:
    desk = Desk(plans=_roomy())
    await desk.gate.legacy.adopt(
        "slow", organization="org_1", name="x", handle="abc123", digest=bcrypt_of(sk("abc123"))
    )
    tasks = [asyncio.create_task(desk.admit_async(sk("abc123"), f"a{n}")) for n in range(100)]
    await until(lambda: gated.begun == 1)
    for _ in range(10):
        await asyncio.sleep(0.001)
    assert not any(task.done() for task in tasks), "the loop was blocked until the check ended"
    gated.go.set()
    assert await outcomes(tasks) == ["Principal"] * 100
    assert gated.begun == 1
    assert desk.names.count("key_rehashed") == 1


def _roomy() -> Any:
    from lockgate import Plan, PlanBook

    return PlanBook([Plan("free", rpm=1000, rph=None, rpd=None, concurrent=1)])


async def test_an_attack_on_one_handle_takes_few_places_and_delays_no_other(gated: Gated) -> None:
    desk = Desk()
    for handle in ("abc123", "def456"):
        digest = bcrypt_of(sk(handle))
        await desk.gate.legacy.adopt(
            "slow", organization="org_1", name="x", handle=handle, digest=digest
        )
    places = min(_AT_ONCE, 2) + 8
    attack = [
        asyncio.create_task(desk.admit_async(sk("abc123", f"wrong{n}"), f"203.0.113.{n}"))
        for n in range(50)
    ]
    await until(lambda: sum(task.done() for task in attack) == 50 - places)
    owner = asyncio.create_task(desk.admit_async(sk("def456"), "192.0.2.1"))
    await until(lambda: "192.0.2.1" in gated.addresses)
    gated.go.set()
    assert await outcomes([owner]) == ["Principal"]
    place = gated.texts.index(sk("def456").encode())
    assert place <= 2 * _AT_ONCE, "it waited for those that had begun, and no other"
    refused = ["StoreUnavailable"] * (50 - places)
    assert sorted(await outcomes(attack)) == ["KeyNotFound"] * places + refused


async def test_wrong_keys_from_other_addresses_do_not_delay_the_right_key_of_a_handle(
    gated: Gated,
) -> None:
    """An address without wrong keys takes precedence over an address with wrong keys."""
    desk = Desk()
    await desk.gate.legacy.adopt(
        "slow", organization="org_1", name="x", handle="abc123", digest=bcrypt_of(sk("abc123"))
    )
    checks: Any = desk.gate.legacy._checks
    for number in range(30):
        checks._failures.charge(f"203.0.113.{number}")
    attack = [
        asyncio.create_task(desk.admit_async(sk("abc123", f"w{n}x{m}"), f"203.0.113.{n}"))
        for n in range(30)
        for m in range(5)
    ]
    await until(lambda: gated.begun == min(_AT_ONCE, 2))
    owner = asyncio.create_task(desk.admit_async(sk("abc123"), "192.0.2.1"))
    for number in range(30):  # And they go on, while it waits.
        attack.append(
            asyncio.create_task(
                desk.admit_async(sk("abc123", f"more{number}"), f"203.0.113.{number}")
            )
        )
    await until(lambda: "192.0.2.1" in gated.addresses)
    gated.go.set()
    assert await outcomes([owner]) == ["Principal"]
    assert gated.texts.index(sk("abc123").encode()) <= 2 * _AT_ONCE
    assert set(await outcomes(attack)) <= {"KeyNotFound", "StoreUnavailable", "RateLimitExceeded"}


def test_a_check_that_waits_gives_way_to_an_address_with_fewer_failures(gated: Gated) -> None:
    checks = PasswordChecks(PasswordHashes(["bcrypt"]), None)
    digest = bcrypt_of("right").encode()

    def check(text: str, address: str) -> Future[bool]:
        return checks.check("handle", "bcrypt", text.encode(), digest, address)

    for number in range(40):
        for _ in range(number % 5 + 1):
            checks._failures.charge(f"a{number}")
    asked = [(number % 5, check(f"{number}", f"a{number}")) for number in range(40)]
    owner = check("right", "owner")
    assert check("right", "a1") is owner, "the same key is checked once"
    left = [failures for failures, future in asked if not future.done()]
    assert len(left) <= min(_AT_ONCE, 2) + 7
    assert left.count(0) >= 7, "those with the fewest failures are left"
    gated.go.set()
    assert owner.result(60) is True
    checks.close()


async def test_an_address_cannot_outrun_its_budget(gated: Gated) -> None:
    desk = Desk()
    for number in range(20):
        handle = f"{number:06}"
        await desk.gate.legacy.adopt(
            "slow", organization="org_1", name="x", handle=handle, digest=bcrypt_of(sk(handle))
        )
    tasks = [
        asyncio.create_task(desk.admit_async(sk(f"{n:06}", "wrong"), "203.0.113.1"))
        for n in range(20)
    ]
    await until(lambda: sum(task.done() for task in tasks) == 10)
    # They hang up, and are charged all the same.
    for task in tasks:
        task.cancel()
    gated.go.set()
    await outcomes(tasks)
    await until(lambda: gated.begun == 10)
    with pytest.raises((RateLimitExceeded, StoreUnavailable)):
        await desk.admit_async(sk("000000"), "203.0.113.1")
    await until(lambda: _refusal(desk) is RateLimitExceeded)
    assert (await desk.admit_async(sk("000000"), "192.0.2.1")).organization == "org_1"


def _refusal(desk: Desk) -> type[Exception]:
    """An address with a spent budget is refused without a hash: its budget is read first."""
    checks: Any = desk.gate.legacy._checks
    try:
        checks._refuse_spent("203.0.113.1")
    except Refusal as refusal:
        return type(refusal)
    return Exception


async def test_no_more_than_some_checks_wait(gated: Gated) -> None:
    desk = Desk(key_options=KeyOptions(cap=None))
    for number in range(80):
        handle = f"{number:06}"
        await desk.gate.legacy.adopt(
            "slow", organization=f"org_{number}", name="x", handle=handle,
            digest=bcrypt.hashpw(sk(handle).encode(), bcrypt.gensalt(4)).decode(),
        )  # fmt: skip
    tasks = [asyncio.create_task(desk.admit_async(sk(f"{n:06}"), f"a{n}")) for n in range(80)]
    await until(lambda: sum(task.done() for task in tasks) == 16)
    gated.go.set()
    assert sorted(await outcomes(tasks)) == ["Principal"] * 64 + ["StoreUnavailable"] * 16


def test_threads_with_the_same_key_share_one_slow_check(gated: Gated) -> None:
    desk = Desk()
    desk.adopt("slow", "abc123", bcrypt_of(sk("abc123")))
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(desk.admit, sk("abc123"), f"a{n}") for n in range(8)]
        # A caller after the first check finds the key moved, or starts another check.
        deadline = time.monotonic() + 60
        while len(gated.asked) < 8:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        gated.go.set()
        assert {each.result().organization for each in waiting} == {"org_1"}
    assert gated.begun == 1


@pytest.fixture(params=["memory", "sqlite"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/keys.db?mode=rwc"


def test_every_store_and_both_colours(store_url: str, hashed: list[str]) -> None:
    """Through the faces: the first request moves the key, the others cost no hash."""
    gate = Gate(
        store_url,
        brand="acme",
        peppers=[PEPPER],
        key_options=KeyOptions(legacy=[SLOW, DRF]),
        store_options=StoreOptions(deadline=30),
    )
    for handle in ("abc123", "def456"):
        adopted = gate.legacy.adopt(
            "slow", organization="org_1", name="x", handle=handle, digest=bcrypt_of(sk(handle))
        )
        run(adopted)
    by_thread = [wsgi_status(gate, sk("abc123", secret)) for secret in ("wrong", "right", "right")]
    assert by_thread == ["401", "200", "200"]

    async def by_loop() -> list[int]:
        app = AsgiMiddleware(PlainTextResponse("in"), gate)
        secrets = ("wrong", "right", "right")
        statuses = [(await ask(app, key=sk("def456", secret))).status for secret in secrets]
        await gate.close()
        return statuses

    assert asyncio.run(by_loop()) == [401, 200, 200]
    assert hashed == ["bcrypt"] * 4


def wsgi_status(gate: Gate, key: str) -> str:
    def service(_: Any, start: Any) -> list[bytes]:
        start("200 OK", [])
        return []

    statuses: list[str] = []
    environ: dict[str, Any] = {"HTTP_AUTHORIZATION": f"Bearer {key}"}
    setup_testing_defaults(environ)
    WsgiMiddleware(service, gate)(environ, lambda status, *_: statuses.append(status[:3]))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - nothing is written
    return statuses[0]


def test_a_spent_address_gets_429_with_its_budget_in_the_headers() -> None:
    desk = Desk()
    desk.adopt("slow", "abc123", bcrypt_of(sk("abc123")))
    app = AsgiMiddleware(PlainTextResponse("in"), desk.gate)

    async def answers() -> None:
        for number in range(10):
            answer = await ask(app, key=sk("abc123", f"wrong{number}"))
            assert (answer.status, answer.code) == (401, "KEY_NOT_FOUND")
        answer = await ask(app, key=sk("abc123"))
        assert (answer.status, answer.code) == (429, "RATE_LIMIT_EXCEEDED")
        assert answer.json()["limits"] == {"type": "minute", "limit": 10, "used": 10}
        assert answer.rate[:2] == (10, 0)
        other = await ask(app, key=sk("abc123"), client=("203.0.113.9", 1))
        assert other.status == 200

    asyncio.run(answers())


@pytest.mark.parametrize("shadow", [None, "all"])
def test_the_headers_describe_the_spent_budget_of_wrong_keys(shadow: Shadow | None) -> None:
    """Also where shadow mode lets it through."""
    desk = Desk()
    desk.adopt("slow", "abc123", bcrypt_of(sk("abc123")))
    app = AsgiMiddleware(PlainTextResponse("in"), desk.gate, shadow=shadow)

    async def answers() -> None:
        for number in range(10):
            await ask(app, key=sk("abc123", f"wrong{number}"))
        answer = await ask(app, key=sk("abc123"))
        assert answer.status == (200 if shadow else 429)
        told = answer.shadow_rate if shadow else answer.rate
        assert told[:2] == (10, 0)

    asyncio.run(answers())


# --- races ---------------------------------------------------------------------------------------


async def test_k3_a_revocation_during_the_check_wins(gated: Gated) -> None:
    desk = Desk()
    key = await desk.gate.legacy.adopt(
        "slow", organization="org_1", name="x", handle="abc123", digest=bcrypt_of(sk("abc123"))
    )
    admission = asyncio.create_task(desk.admit_async(sk("abc123")))
    await until(lambda: gated.begun == 1)
    await desk.gate.keys.revoke("org_1", key.id)
    gated.go.set()
    with pytest.raises(KeyRevoked):
        await admission
    assert (await desk.gate.keys.get("org_1", key.id)).revoked_at is not None
    assert desk.gate.legacy is not None


@pytest.mark.parametrize("verb", ["find", "rehash_if", "admit"])
def test_k3_a_revocation_at_any_step_wins(verb: str) -> None:
    """The key is revoked just before, and just after, each call to the store."""
    for after in (False, True):

        class Racing(MemoryStore):
            pass

        desk = Desk(store=Racing())
        key = desk.adopt("slow", "abc123", bcrypt_of(sk("abc123")))
        original = getattr(desk.gate.store, verb)
        calls: list[str] = []

        async def racing(
            *arguments: Any,
            original: Any = original,
            calls: list[str] = calls,
            desk: Desk = desk,
            key: ApiKey = key,
            after: bool = after,
            **options: Any,
        ) -> object:
            calls.append(verb)
            if not after:
                await desk.gate.store.revoke_if_live("org_1", key.id, desk.clock.now)
            value = await original(*arguments, **options)
            if after:
                await desk.gate.store.revoke_if_live("org_1", key.id, desk.clock.now)
            return value

        setattr(desk.gate.store, verb, racing)
        with pytest.raises(KeyRevoked):
            desk.admit(sk("abc123"))
        setattr(desk.gate.store, verb, original)
        assert calls
        assert desk.kept(key).revoked_at is not None
        for _ in range(2):
            with pytest.raises(KeyRevoked):
                desk.admit(sk("abc123"))


def test_a_row_that_moved_meanwhile_is_not_moved_back(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    key = desk.adopt("slow", "abc123", bcrypt_of(sk("abc123")))
    verify = PasswordHashes.verify
    other = Digest("legacy:slow:bcrypt", bcrypt_of("sk_abc123_another").encode())

    def moving(hashes: PasswordHashes, scheme: str, hashed: bytes, digest: str) -> bool:
        kept = desk.kept(key)
        sealed = resealed_key(kept, desk.gate.format.peppers, other).kept
        run(desk.gate.store.rehash_if(kept.handle, kept.kept, sealed))
        return verify(hashes, scheme, hashed, digest)

    monkeypatch.setattr(PasswordHashes, "verify", moving)
    with pytest.raises(KeyNotFound):
        desk.admit(sk("abc123"))
    assert desk.kept(key).digest == other.value


@pytest.mark.parametrize("slow", [False, True])
def test_k1_a_row_without_a_valid_seal_is_refused_with_any_digest(
    slow: bool, hashed: list[str]
) -> None:
    """Else a writer of the database would mint keys in the form of another system."""
    desk = Desk()
    text = sk("abc123") if slow else "pk_abc123_" + "s" * 24
    scheme = "legacy:slow:bcrypt" if slow else "legacy:plain:sha256"
    digest = bcrypt_of(text).encode() if slow else hashlib.sha256(text.encode()).digest()
    token = desk.gate.format.parse(text)
    forged = draft_of(new_key(), scopes=("*",))._replace(
        handle=token.handle, scheme=scheme, digest=digest
    )
    run(desk.gate.store.insert(forged, None))
    for _ in range(2):
        with pytest.raises(KeyNotFound):
            desk.admit(text)
    assert hashed == [], "an unsealed row costs no hash"
    assert desk.names == ["key_row_rejected"]
    assert desk.told[0].fields["reason"] == "unsealed"


def test_k9_an_imported_row_without_a_seal_moves_where_that_is_asked_for() -> None:
    store = MemoryStore()
    text, before = sk("abc123"), Gate(store, brand="acme", key_options=KeyOptions(legacy=[SLOW]))
    adopting = before.legacy.adopt(
        "slow", organization="org_1", name="x", handle="abc123", digest=bcrypt_of(text)
    )
    assert run(adopting).seal is None
    with pytest.raises(KeyNotFound):
        Desk(store=store).admit(text)
    Desk(store=store, key_options=KeyOptions(accept_unsealed=True)).admit(text)
    assert Desk(store=store).admit(text).organization == "org_1"


@pytest.mark.parametrize("verb", ["find", "rehash_if"])
def test_no_imported_key_is_admitted_while_the_store_fails(verb: str) -> None:
    desk = Desk()
    key = desk.adopt("slow", "abc123", bcrypt_of(sk("abc123")))
    original = getattr(desk.gate.store, verb)

    async def failing(*_: object, **__: object) -> None:
        raise OSError("gone")

    setattr(desk.gate.store, verb, failing)
    with pytest.raises(StoreUnavailable):
        desk.admit(sk("abc123"))
    setattr(desk.gate.store, verb, original)
    assert desk.kept(key).request_count == 0
    assert desk.admit(sk("abc123")).organization == "org_1"


def test_a_key_longer_than_the_72_bytes_of_bcrypt_is_refused(hashed: list[str]) -> None:
    """Keys that agree in their first 72 bytes would all be good."""
    desk = Desk()
    fits, longer = "x" * (72 - len("sk_abc123_")), "x" * 80
    desk.adopt("slow", "abc123", bcrypt_of(sk("abc123", fits)))
    with pytest.raises(KeyNotFound):
        desk.admit(sk("abc123", longer))
    assert desk.admit(sk("abc123", fits)).organization == "org_1"
    old = Desk(
        ImportedKeyFormat("django", r"(?P<handle>\w{4})-\w{1,90}", schemes=["django_bcrypt"])
    )
    fits = "abcd-" + "x" * 67
    old.adopt("django", "abcd", "bcrypt$" + bcrypt_of(fits))
    with pytest.raises(KeyNotFound):
        old.admit(fits + "x")
    assert old.admit(fits).organization == "org_1"


def test_the_key_is_in_no_stored_or_shown_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    desk = Desk()
    secret = "canarycanarycanary"
    desk.adopt("slow", "abc123", bcrypt_of(sk("abc123", secret)))
    token = desk.gate.format.read([f"Bearer {sk('abc123', secret)}".encode()])
    seen = [repr(token), repr(vars(desk.gate.store)), repr(desk.gate.legacy)]
    desk.admit(sk("abc123", secret))
    with pytest.raises(KeyNotFound) as caught:
        desk.admit(sk("abc123", secret + "x"))
    seen += [repr(vars(desk.gate.store)), repr(desk.told), caplog.text, repr(vars(caught.value))]
    assert [text for text in seen if secret in text] == []


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("{}", "<redacted>"),
        ("/jobs/{}/x", "/jobs/<redacted>/x"),
        ("/jobs/{}/x?key={}", "/jobs/<redacted>/x?key=<redacted>"),
        ("/jobs;key={}", "/jobs;key=<redacted>"),
        ("/jobs&a:{},b", "/jobs&a:<redacted>,b"),
        ("key {}, '{}'", "key <redacted>, '<redacted>'"),
    ],
)
def test_a_key_in_a_text_is_blotted_out(text: str, left: str) -> None:
    assert Desk().gate.format.redact(text.replace("{}", sk("abc123", "canary"))) == left


def test_a_key_with_separators_in_it_is_redacted_whole() -> None:
    other = ImportedKeyFormat("b64", r"k-(?P<handle>\w{4})-[\w/+=:]{12}", schemes=["sha256"])
    redact = Desk(other).gate.format.redact
    assert redact("k-abcd-ab/cd:ef+gh=") == "<redacted>"
    assert redact("x 'k-abcd-ab/cd:ef+gh='") == "x '<redacted>'"
    assert redact("/jobs/k-abcd-abcd:ef+gh==") == "/jobs/<redacted>"


# --- errors at construction ------------------------------------------------------------------


def test_two_systems_of_one_name() -> None:
    with pytest.raises(ConfigurationError, match="same name"):
        Desk(DRF, DRF)


def test_closing_lets_the_threads_end(hashed: list[str]) -> None:
    desk = Desk()
    desk.adopt("slow", "abc123", bcrypt_of(sk("abc123")))
    desk.admit(sk("abc123"))
    run(desk.gate.close())
    desk.adopt("slow", "def456", bcrypt_of(sk("def456")))
    with pytest.raises(StoreUnavailable):
        desk.admit(sk("def456"))


async def test_closing_refuses_waiting_callers_and_cancels_none(gated: Gated) -> None:
    desk = Desk(key_options=KeyOptions(cap=None))
    for number in range(9):
        handle = f"{number:06}"
        await desk.gate.legacy.adopt(
            "slow", organization="org_1", name="x", handle=handle, digest=bcrypt_of(sk(handle))
        )
    tasks = [asyncio.create_task(desk.admit_async(sk(f"{n:06}"), f"a{n}")) for n in range(9)]
    await until(lambda: len(gated.asked) == 9)
    await until(lambda: gated.begun > 0)
    await desk.gate.close()
    gated.go.set()
    assert set(await outcomes(tasks)) == {"Principal", "StoreUnavailable"}


def test_closing_does_not_deadlock_with_a_check_that_begins(
    gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller takes our lock, then the pool's; closing takes the pool's, then ours."""
    checks = PasswordChecks(PasswordHashes(["bcrypt"]), None)
    digest = bcrypt_of(sk("abc123")).encode()
    begins, refuse = threading.Event(), PasswordChecks._refuse_spent

    def check(number: int) -> None:
        checks.check(f"{number}", "bcrypt", b"a key", digest, f"a{number}")

    for number in range(9):
        check(number)

    def slowly(self: PasswordChecks, address: str) -> None:
        refuse(self, address)
        begins.set()
        time.sleep(0.2)

    monkeypatch.setattr(PasswordChecks, "_refuse_spent", slowly)
    threads = [
        threading.Thread(target=suppressed, args=(check, 9), daemon=True),
        threading.Thread(target=checks.close, daemon=True),
    ]
    threads[0].start()
    assert begins.wait(60)
    threads[1].start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def suppressed(call: Callable[[int], None], argument: int) -> None:
    with suppress(RuntimeError):  # The pool takes nothing any more.
        call(argument)


@AT_FORK
def test_a_forked_process_checks_in_its_own_threads(hashed: list[str]) -> None:
    desk = Desk()
    for handle in ("abc123", "def456"):
        desk.adopt("slow", handle, bcrypt_of(sk(handle)))
    desk.admit(sk("abc123"))

    def admit() -> bytes:
        return desk.admit(sk("def456")).organization.encode()

    assert in_a_child(admit) == b"org_1"
    run(desk.gate.close())
