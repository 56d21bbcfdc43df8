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
from functools import partial
from typing import Any

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
    Gate,
    ImportedKeyFormat,
    MemoryStore,
    Plan,
    PlanBook,
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
from lockgate.options import KeyOptions
from lockgate.services.imports.password_checks import _AT_ONCE, PasswordChecks, PasswordHashes
from lockgate.sessions import Session
from lockgate.web.shadow import Shadow
from tests import patience
from tests.stores.forking import AT_FORK, in_a_child
from tests.stores.making import draft_of, new_key
from tests.web.driving import ask

from ..bench import Bench

PEPPER = b"a pepper of the tests, long enough"
KEYSHIELD_PEPPER = "a pepper of keyshield, long enough too"

DRF = ImportedKeyFormat(
    "drf",
    r"(?P<handle>[A-Za-z0-9]{8})\.[A-Za-z0-9]{32}",
    schemes=["sha512", "django_pbkdf2_sha256", "django_argon2", "django_bcrypt_sha256"],
)
KEYSHIELD_PATTERN = r"ks-(?P<handle>[0-9a-f]{16})-(?P<secret>[A-Za-z0-9]{64})"
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


class Desk(Bench):
    """A gate that takes keys of other systems."""

    def __init__(self, *systems: ImportedKeyFormat, store: Any = None, **fields: Any) -> None:
        super().__init__(store, peppers=[PEPPER], legacy=systems or (DRF, PLAIN, SLOW), **fields)

    def adopt(self, system: str, handle: str, digest: str, **fields: Any) -> ApiKey:
        fields = {"organization": "org_1", "name": "an old key", **fields}
        return run(self.gate.legacy.adopt(system, handle=handle, digest=digest, **fields))

    def adopt_slow(self, *handles: str, **fields: Any) -> ApiKey:
        """Take in keys with slow hashes; return the last."""
        return [self.adopt("slow", one, bcrypt_of(sk(one)), **fields) for one in handles][-1]

    def enter(self, text: str, address: str = "192.0.2.1") -> Principal:
        return self.admit(text, address=address)

    def entering(self, text: str, address: str = "192.0.2.1") -> asyncio.Task[Principal]:
        """Admit in a task of the running event loop."""
        return asyncio.create_task(self.gate.authenticate(text, address=address))

    def kept(self, key: ApiKey) -> ApiKey:
        return run(self.gate.keys.get(key.organization, key.id))


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


def drf(hasher: Any = None, **costs: int) -> tuple[str, str, str]:
    """A new key of djangorestframework-api-key; with a hasher of Django's, of older releases."""
    text, handle, digest = KeyGenerator().generate()
    if hasher is None:
        return text, handle, digest
    vars(hasher).update(costs)
    return text, handle, str(make_password(text, hasher=hasher))


def keyshield(hasher: Any) -> tuple[str, str, str]:
    handle, secret = "0123456789abcdef", "s3cret" * 10 + "abcd"
    return f"ks-{handle}-{secret}", handle, hasher.hash(secret)


def passlib(scheme: str) -> tuple[str, str, str]:
    text, handler = "abcd-" + "s" * 20, getattr(passlib_hash, scheme)
    if scheme == "argon2":
        handler = handler.using(memory_cost=1024, rounds=1)
    else:
        rounds = 4 if "bcrypt" in scheme else 6 if scheme == "scrypt" else 1000
        handler = handler.using(rounds=rounds)
    return text, "abcd", handler.hash(text)


def argon2_itself() -> tuple[str, str, str]:
    text = "abcd-" + "s" * 20
    return text, "abcd", argon2.PasswordHasher(1, 1024).hash(text)


def fast(scheme: str, form: str) -> tuple[str, str, str]:
    text = "pk_abc123_" + "s" * 24
    value = hashlib.sha256(text.encode()).digest()
    if scheme != "sha256":
        value = hmac.digest(b"the key of the other system", text.encode(), "sha512")
    urlsafe = base64.urlsafe_b64encode(value).decode()
    written = {
        "hex": value.hex(),
        "HEX": value.hex().upper(),
        "base64": base64.b64encode(value).decode(),
        "urlsafe": urlsafe,
        "bare": urlsafe.rstrip("="),
        "django": f"sha{len(value) * 8}$${value.hex()}",
    }
    return text, "abc123", written[form]


def own(scheme: str) -> ImportedKeyFormat:
    return ImportedKeyFormat("own", r"(?P<handle>\w{4})-\w{20}", schemes=[scheme])


KEYSHIELD = {
    "bcrypt": lambda secret: hmac.digest(KEYSHIELD_PEPPER.encode(), secret.encode(), "sha256"),
    "argon2": lambda secret: secret + KEYSHIELD_PEPPER,
}
OF_KEYSHIELD = [
    ImportedKeyFormat(
        "keyshield", KEYSHIELD_PATTERN, schemes=[scheme], secret="secret", prepare=prepare
    )
    for scheme, prepare in KEYSHIELD.items()
]
PASSLIB = [
    *("argon2", "bcrypt", "bcrypt_sha256", "pbkdf2_sha256", "pbkdf2_sha512", "scrypt"),
    *("django_pbkdf2_sha256", "django_bcrypt"),
]
FORMS = ["hex", "HEX", "base64", "urlsafe", "bare", "django"]
Case = tuple[ImportedKeyFormat, Callable[[], tuple[str, str, str]], str | None]
HASHES: dict[str, Case] = {
    "drf": (DRF, drf, None),
    "drf pbkdf2": (
        DRF,
        lambda: drf(PBKDF2PasswordHasher(), iterations=1000),
        "django_pbkdf2_sha256",
    ),
    "drf argon2": (
        DRF,
        lambda: drf(Argon2PasswordHasher(), time_cost=1, memory_cost=1024, parallelism=1),
        "django_argon2",
    ),
    "drf bcrypt": (
        DRF,
        lambda: drf(BCryptSHA256PasswordHasher(), rounds=4),
        "django_bcrypt_sha256",
    ),
    "keyshield bcrypt": (
        OF_KEYSHIELD[0],
        lambda: keyshield(BcryptApiKeyHasher(KEYSHIELD_PEPPER, rounds=4)),
        "bcrypt",
    ),
    "keyshield argon2": (
        OF_KEYSHIELD[1],
        lambda: keyshield(Argon2ApiKeyHasher(KEYSHIELD_PEPPER, argon2.PasswordHasher(1, 1024))),
        "argon2",
    ),
    "argon2": (own("argon2"), argon2_itself, "argon2"),
    **{f"passlib {scheme}": (own(scheme), partial(passlib, scheme), scheme) for scheme in PASSLIB},
    **{
        f"{scheme} {form}": (PLAIN, partial(fast, scheme, form), None)
        for scheme in ("sha256", "hmac-sha512")
        for form in FORMS
    },
}


@pytest.mark.parametrize("case", HASHES)
def test_a_key_that_another_system_hashed_is_good_and_moves_on_its_first_use(
    hashed: list[str], case: str
) -> None:
    system, make, slow = HASHES[case]
    desk, (text, handle, digest) = Desk(system), make()
    key = desk.adopt(system.name, handle, digest)
    assert desk.kept(key).scheme.startswith(f"legacy:{system.name}:")
    desk.refuses(KeyNotFound, text[:-1] + ("X" if text[-1] != "X" else "Y"))
    for _ in range(3):
        principal = desk.enter(text)
        assert principal.organization == "org_1"
        assert principal.key is not None and principal.key.id == key.id
        assert is_ours(desk, key)
    assert hashed == ([] if slow is None else [slow] * 2), "a wrong key and the first use"
    assert desk.kept(key).request_count == 3
    assert desk.names == ["key_adopted", "key_rehashed"]


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
    assert desk.enter(text).organization == "org_1"
    desk.refuses(KeyNotFound, "tok_" + "b" * 40)


# --- taking in ---------------------------------------------------------------------------------


DIGESTS = [
    *("", "x", "sha256$$" + "0" * 128, "md5$$" + "0" * 32, "0" * 63, "$2b$12$short"),
    *("pbkdf2_sha256$1$a$b", "$argon2id$v=19$m=65536,t=3,p=4$xx$yy", "$2b$04$" + "\u00e9" * 53),
]


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        *(({"digest": digest}, ["digest"]) for digest in DIGESTS),
        *(({"handle": handle}, ["handle"]) for handle in ("", "h" * 257)),
        *(({"prefix": prefix}, ["prefix"]) for prefix in ("tok\0", "tok\ud800")),
        *([({"system": "nobody"}, ["system"]), ({"organization": ""}, ["organization"])]),
        *(
            [
                ({"name": "\0"}, ["name"]),
                ({"handle": "abc\0"}, ["prefix"]),
                ({"text": "x"}, ["text"]),
            ]
        ),
        *([({"scopes": ["no:such"]}, ["scopes"]), ({"request_count": -1}, ["request_count"])]),
        ({"created_at": datetime(2099, 1, 1)}, ["created_at"]),
        ({"revoked_at": datetime(1960, 1, 1)}, ["revoked_at"]),
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


def test_a_key_is_taken_in_once_and_two_systems_may_use_one_handle() -> None:
    other = ImportedKeyFormat("other", r"o-(?P<handle>[A-Za-z0-9]{8})-\w{8}", schemes=["sha256"])
    with pytest.raises(ConfigurationError, match="same name"):
        Desk(DRF, DRF)
    desk = Desk(DRF, other)
    text, handle, digest = KeyGenerator().generate()
    key = desk.adopt("drf", handle, digest)
    for organization in ("org_1", "org_2"):
        with pytest.raises(HandleTaken):
            desk.adopt("drf", handle, digest, organization=organization)
    theirs = f"o-{handle}-secretxx"
    desk.adopt("other", handle, hashlib.sha256(theirs.encode()).hexdigest(), organization="org_2")
    assert desk.enter(text).organization == "org_1"
    assert desk.enter(theirs).organization == "org_2"
    run(desk.gate.keys.revoke("org_1", key.id))
    with pytest.raises(HandleTaken):
        desk.adopt("drf", handle, digest)
    desk.refuses(KeyRevoked, text)


def test_an_imported_key_keeps_its_expiry() -> None:
    desk = Desk()
    text, handle, digest = KeyGenerator().generate()
    at = datetime.fromtimestamp(desk.clock.now / 1e6, UTC) + timedelta(days=1)
    desk.adopt("drf", handle, digest, expires_at=at)
    assert desk.enter(text).organization == "org_1"
    desk.clock.now += DAY
    desk.refuses(KeyExpired, text)


def test_the_census_counts_imported_keys_that_have_not_moved() -> None:
    desk = Desk()
    keys = [KeyGenerator().generate() for _ in range(3)]
    for _, handle, digest in keys:
        desk.adopt("drf", handle, digest)
    seal = f"seal:{desk.gate.format.peppers.newest}"
    assert run(desk.gate.keys.census()) == {"legacy:drf:sha512": 3, seal: 3}
    desk.enter(keys[0][0])
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
    assert desk.enter(created.text).organization == "org_1"
    with pytest.raises(InvalidFormat):
        desk.enter(created.text[:-1] + ("A" if created.text[-1] != "A" else "B"))
    assert hashed == []


# --- the bounds of slow checks -----------------------------------------------------------------


def sk(handle: str, secret: str = "right") -> str:
    return f"sk_{handle}_{secret}"


def test_k10_unknown_and_wrong_get_the_same_answer_and_unknown_ones_cost_no_hash(
    hashed: list[str],
) -> None:
    desk = Desk()
    desk.adopt_slow("abc123")
    answers: list[tuple[object, ...]] = []
    for text in (sk("abc123", "wrong"), *(sk(f"{number:06}") for number in range(50))):
        refusal: Any = desk.refuses(Refusal, text)
        answers.append((type(refusal), refusal.body(), refusal.headers()))
    assert all(answer == answers[0] for answer in answers)
    assert hashed == ["bcrypt"]


def test_an_address_has_a_budget_of_failures(hashed: list[str]) -> None:
    desk = Desk(plans=ROOMY)
    for number in range(15):  # Right keys are not charged: a company may share one address.
        handle = f"{number:06}"
        desk.adopt_slow(handle)
        assert desk.enter(sk(handle)).organization == "org_1"
    desk.adopt_slow("abc123", "def456")
    hashed.clear()
    for number in range(10):
        desk.refuses(KeyNotFound, sk("abc123", f"wrong{number}"), address="192.0.2.1")
    for number in range(5):
        text = sk("abc123", f"wrongagain{number}")
        refusal: Any = desk.refuses(RateLimitExceeded, text, address="192.0.2.1")
        assert refusal.type == "minute"
    assert len(hashed) == 10
    desk.refuses(RateLimitExceeded, sk("abc123"), address="192.0.2.1")
    assert desk.enter(sk("abc123"), "203.0.113.1").organization == "org_1"
    # Once it is ours, it costs no hash, and no budget decides about it.
    assert desk.enter(sk("abc123")).organization == "org_1"
    desk.refuses(RateLimitExceeded, sk("def456"), address="192.0.2.1")
    desk.clock.now += MINUTE
    assert desk.enter(sk("def456")).organization == "org_1"


@pytest.mark.parametrize("wanted", [KeyRevoked, KeyExpired, RateLimitExceeded])
def test_a_key_that_is_not_admitted_costs_one_hash_only(
    hashed: list[str], wanted: type[Refusal]
) -> None:
    """Otherwise its holder could keep the threads busy without any charge."""
    desk = Desk()
    at = datetime.fromtimestamp(desk.clock.now / 1e6, UTC) + timedelta(days=1)
    key = desk.adopt_slow("abc123", expires_at=at)
    if wanted is KeyRevoked:
        run(desk.gate.keys.revoke("org_1", key.id))
    elif wanted is KeyExpired:
        desk.clock.now += DAY
    else:
        run(desk.gate.admit_session(Session("org_1", "ada"), 10))
    for _ in range(5):
        desk.refuses(wanted, sk("abc123"))
    assert hashed == ["bcrypt"]
    desk.refuses(KeyNotFound, sk("abc123", "wrong"))
    assert hashed == ["bcrypt"]


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


def reached(condition: Callable[[], bool]) -> None:
    patience.until(condition)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def outcomes(tasks: list[asyncio.Task[Principal]]) -> list[str]:
    done = await asyncio.gather(*tasks, return_exceptions=True)
    return [type(d).__name__ for d in done]


async def test_the_same_key_many_times_at_once_is_checked_once(gated: Gated) -> None:
    desk = Desk(plans=ROOMY)
    desk.adopt_slow("abc123")
    tasks = [desk.entering(sk("abc123"), f"a{n}") for n in range(100)]
    await until(lambda: gated.begun == 1)
    for _ in range(10):
        await asyncio.sleep(0.001)
    assert not any(task.done() for task in tasks), "the loop was blocked until the check ended"
    gated.go.set()
    assert await outcomes(tasks) == ["Principal"] * 100
    assert gated.begun == 1
    assert desk.names.count("key_rehashed") == 1


ROOMY = PlanBook([Plan("free", rpm=1000, rph=None, rpd=None, concurrent=1)])


async def test_an_attack_on_one_handle_takes_few_places_and_delays_no_other(gated: Gated) -> None:
    desk = Desk()
    desk.adopt_slow("abc123", "def456")
    places = min(_AT_ONCE, 2) + 8
    attack = [desk.entering(sk("abc123", f"wrong{n}"), f"203.0.113.{n}") for n in range(50)]
    await until(lambda: sum(task.done() for task in attack) == 50 - places)
    owner = desk.entering(sk("def456"))
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
    desk.adopt_slow("abc123")
    checks: Any = desk.gate.legacy._checks
    addresses = [f"203.0.113.{n}" for n in range(30)]
    for address in addresses:
        checks._failures.charge(address)
    attack = [desk.entering(sk("abc123", f"w{a[10:]}x{m}"), a) for a in addresses for m in range(5)]
    await until(lambda: gated.begun == min(_AT_ONCE, 2))
    owner = desk.entering(sk("abc123"))
    # And they go on, while it waits.
    attack += [desk.entering(sk("abc123", f"more{a[10:]}"), a) for a in addresses]
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
    handles = [f"{number:06}" for number in range(20)]
    desk.adopt_slow(*handles)
    tasks = [desk.entering(sk(handle, "wrong"), "203.0.113.1") for handle in handles]
    await until(lambda: sum(task.done() for task in tasks) == 10)
    # They hang up, and are charged all the same.
    for task in tasks:
        task.cancel()
    gated.go.set()
    await outcomes(tasks)
    await until(lambda: gated.begun == 10)
    with pytest.raises((RateLimitExceeded, StoreUnavailable)):
        await desk.entering(sk("000000"), "203.0.113.1")
    await until(lambda: _refusal(desk) is RateLimitExceeded)
    assert (await desk.entering(sk("000000"))).organization == "org_1"


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
    handles = [f"{number:06}" for number in range(80)]
    for handle in handles:
        desk.adopt_slow(handle, organization=f"org_{handle}")
    tasks = [desk.entering(sk(handle), handle) for handle in handles]
    await until(lambda: sum(task.done() for task in tasks) == 16)
    gated.go.set()
    assert sorted(await outcomes(tasks)) == ["Principal"] * 64 + ["StoreUnavailable"] * 16


def test_threads_with_the_same_key_share_one_slow_check(gated: Gated) -> None:
    desk = Desk()
    desk.adopt_slow("abc123")
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(desk.enter, sk("abc123"), f"a{n}") for n in range(8)]
        # A caller after the first check finds the key moved, or starts another check.
        reached(lambda: len(gated.asked) == 8)
        gated.go.set()
        assert {each.result().organization for each in waiting} == {"org_1"}
    assert gated.begun == 1


@pytest.mark.parametrize("shadow", [None, "all"])
async def test_the_headers_describe_the_spent_budget_of_wrong_keys(shadow: Shadow | None) -> None:
    """Also where shadow mode lets it through."""
    desk = Desk()
    desk.adopt_slow("abc123")
    app = AsgiMiddleware(PlainTextResponse("in"), desk.gate, shadow=shadow)
    for number in range(10):
        answer = await ask(app, key=sk("abc123", f"wrong{number}"))
        assert shadow or (answer.status, answer.code) == (401, "KEY_NOT_FOUND")
    answer = await ask(app, key=sk("abc123"))
    assert answer.status == (200 if shadow else 429)
    told = answer.shadow_rate if shadow else answer.rate
    assert told[:2] == (10, 0)
    if not shadow:
        assert answer.code == "RATE_LIMIT_EXCEEDED"
        assert answer.json()["limits"] == {"type": "minute", "limit": 10, "used": 10}
        assert (await ask(app, key=sk("abc123"), client=("203.0.113.9", 1))).status == 200


# --- races ---------------------------------------------------------------------------------------


async def test_k3_a_revocation_during_the_check_wins(gated: Gated) -> None:
    desk = Desk()
    key = desk.adopt_slow("abc123")
    admission = desk.entering(sk("abc123"))
    await until(lambda: gated.begun == 1)
    await desk.gate.keys.revoke("org_1", key.id)
    gated.go.set()
    with pytest.raises(KeyRevoked):
        await admission
    assert (await desk.gate.keys.get("org_1", key.id)).revoked_at is not None


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("verb", ["find", "rehash_if", "admit"])
def test_k3_a_revocation_at_any_step_wins(verb: str, after: bool) -> None:
    """The key is revoked just before, or just after, a call to the store."""
    desk, racing = Desk(), [True]
    key = desk.adopt_slow("abc123")

    async def race(asked: Any, *arguments: Any, **options: Any) -> Any:
        if racing and not after:
            await desk.store.revoke_if_live("org_1", key.id, desk.clock.now)
        value = await asked(*arguments, **options)
        if racing and after:
            await desk.store.revoke_if_live("org_1", key.id, desk.clock.now)
        return value

    desk.store.on(verb, race)
    desk.refuses(KeyRevoked, sk("abc123"))
    racing.clear()
    assert desk.kept(key).revoked_at is not None
    for _ in range(2):
        desk.refuses(KeyRevoked, sk("abc123"))


def test_a_row_that_moved_meanwhile_is_not_moved_back(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    key = desk.adopt_slow("abc123")
    verify = PasswordHashes.verify
    other = Digest("legacy:slow:bcrypt", bcrypt_of("sk_abc123_another").encode())

    def moving(hashes: PasswordHashes, scheme: str, hashed: bytes, digest: str) -> bool:
        kept = desk.kept(key)
        sealed = resealed_key(kept, desk.gate.format.peppers, other).kept
        run(desk.gate.store.rehash_if(kept.handle, kept.kept, sealed))
        return verify(hashes, scheme, hashed, digest)

    monkeypatch.setattr(PasswordHashes, "verify", moving)
    desk.refuses(KeyNotFound, sk("abc123"))
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
        desk.refuses(KeyNotFound, text)
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
        Desk(store=store).enter(text)
    Desk(store=store, key_options=KeyOptions(accept_unsealed=True)).enter(text)
    assert Desk(store=store).enter(text).organization == "org_1"


@pytest.mark.parametrize("verb", ["find", "rehash_if"])
def test_no_imported_key_is_admitted_while_the_store_fails(verb: str) -> None:
    desk = Desk()
    key = desk.adopt_slow("abc123")
    desk.store.failing(verb)
    desk.refuses(StoreUnavailable, sk("abc123"))
    desk.store.mended = True
    assert desk.kept(key).request_count == 0
    assert desk.enter(sk("abc123")).organization == "org_1"


def test_a_key_longer_than_the_72_bytes_of_bcrypt_is_refused(hashed: list[str]) -> None:
    """Keys that agree in their first 72 bytes would all be good."""
    desk = Desk()
    fits, longer = "x" * (72 - len("sk_abc123_")), "x" * 80
    desk.adopt("slow", "abc123", bcrypt_of(sk("abc123", fits)))
    desk.refuses(KeyNotFound, sk("abc123", longer))
    assert desk.enter(sk("abc123", fits)).organization == "org_1"
    old = Desk(
        ImportedKeyFormat("django", r"(?P<handle>\w{4})-\w{1,90}", schemes=["django_bcrypt"])
    )
    fits = "abcd-" + "x" * 67
    old.adopt("django", "abcd", "bcrypt$" + bcrypt_of(fits))
    old.refuses(KeyNotFound, fits + "x")
    assert old.enter(fits).organization == "org_1"


def test_the_key_is_in_no_stored_or_shown_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    desk = Desk()
    secret = "canarycanarycanary"
    desk.adopt("slow", "abc123", bcrypt_of(sk("abc123", secret)))
    token = desk.gate.format.read([f"Bearer {sk('abc123', secret)}".encode()])
    seen = [repr(token), repr(vars(desk.gate.store)), repr(desk.gate.legacy)]
    desk.enter(sk("abc123", secret))
    with pytest.raises(KeyNotFound) as caught:
        desk.enter(sk("abc123", secret + "x"))
    seen += [repr(vars(desk.gate.store)), repr(desk.told), caplog.text, repr(vars(caught.value))]
    assert [text for text in seen if secret in text] == []


B64 = ImportedKeyFormat("b64", r"k-(?P<handle>\w{4})-[\w/+=:]{12}", schemes=["sha256"])


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("{}", "<redacted>"),
        ("/jobs/{}/x", "/jobs/<redacted>/x"),
        ("/jobs/{}/x?key={}", "/jobs/<redacted>/x?key=<redacted>"),
        ("/jobs;key={}", "/jobs;key=<redacted>"),
        ("/jobs&a:{},b", "/jobs&a:<redacted>,b"),
        ("key {}, '{}'", "key <redacted>, '<redacted>'"),
        ("k-abcd-ab/cd:ef+gh=", "<redacted>"),
        ("x 'k-abcd-ab/cd:ef+gh='", "x '<redacted>'"),
        ("/jobs/k-abcd-abcd:ef+gh==", "/jobs/<redacted>"),
    ],
)
def test_a_key_in_a_text_is_blotted_out_K11(text: str, left: str) -> None:
    redact = Desk(SLOW, B64).gate.format.redact
    assert redact(text.replace("{}", sk("abc123", "canary"))) == left


# --- errors at construction ------------------------------------------------------------------


async def test_closing_refuses_waiting_and_later_callers_and_cancels_none(gated: Gated) -> None:
    desk = Desk(key_options=KeyOptions(cap=None))
    handles = [f"{number:06}" for number in range(10)]
    desk.adopt_slow(*handles)
    tasks = [desk.entering(sk(handle), handle) for handle in handles[:9]]
    await until(lambda: len(gated.asked) == 9)
    await until(lambda: gated.begun > 0)
    await desk.gate.close()
    gated.go.set()
    assert set(await outcomes(tasks)) == {"Principal", "StoreUnavailable"}
    assert await outcomes([desk.entering(sk(handles[9]))]) == ["StoreUnavailable"]


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
def test_a_forked_process_checks_in_its_own_threads() -> None:
    desk = Desk()
    desk.adopt_slow("abc123", "def456")
    desk.enter(sk("abc123"))

    def enter() -> bytes:
        return desk.enter(sk("def456")).organization.encode()

    assert in_a_child(enter) == b"org_1"
    run(desk.gate.close())
