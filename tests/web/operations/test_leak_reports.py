"""Reports of leaked keys: signatures, revocation, notices and limits of the operation."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from passlib import hash as passlib_hash  # type: ignore[import-untyped]
from starlette.applications import Starlette

from lockgate import ConfigurationError, Gate, ImportedKeyFormat, LeakedKey, LeakReports
from lockgate.asgi import GateMiddleware
from lockgate.core.changes import Actor
from lockgate.core.timestamps import DAY, MINUTE
from lockgate.services.keys.new_keys import CreatedKey
from lockgate.starlette import operations
from lockgate.stores.memory.store import MemoryStore
from lockgate.web.operations.leak_reports import REPORT_LIMIT
from lockgate.web.operations.openapi import describe

from ..applications import EVERY, bearer, gate_of, protected
from ..driving import Answer, Bench, ask
from .leak_senders import PATH, URL, Published, Sender, report


class CountingStore(MemoryStore):
    """Counts the calls of every verb; fails on request."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.fails_from: int | None = None

    async def find(self, handle: str) -> Any:
        self.calls.append("find")
        if self.fails_from is not None and len(self.calls) >= self.fails_from:
            raise OSError("the server is away")
        return await super().find(handle)


class Desk:
    """An application that takes reports of leaked keys, and one known sender."""

    def __init__(
        self,
        *,
        revoke: bool = True,
        store: CountingStore | None = None,
        sender: Sender | None = None,
        **fields: Any,
    ) -> None:
        self.sender = sender or Sender()
        self.published = Published(self.sender)
        self.leaks: list[list[LeakedKey]] = []
        settings: dict[str, Any] = {
            "keys": self.published,
            "on_leak": self.hear,
            "timeout": 60,  # A busy machine may take long to call a function of the host.
            "revoke": revoke,
        }
        settings |= {name: fields.pop(name) for name in settings if name in fields}
        self.store = store or CountingStore()
        reports = LeakReports(**settings)
        self.bench = Bench(store=self.store, leak_reports=reports, sessions=None, **fields)
        self.gate = self.bench.gate
        self.app = GateMiddleware(Starlette(routes=operations(self.gate)), self.gate)

    def hear(self, leaks: Sequence[LeakedKey]) -> None:
        self.leaks.append(list(leaks))

    async def create(self, organization: str = "org_1") -> CreatedKey:
        created = await self.gate.keys.create(organization, f"a key of {organization}")
        self.bench.told.clear()
        return created

    async def send(self, body: bytes, sender: Sender | None = None, **fields: Any) -> Answer:
        headers = (sender or self.sender).headers(body)
        return await ask(self.app, "POST", PATH, body=body, **{"headers": headers, **fields})

    async def is_live(self, created: CreatedKey) -> bool:
        key = await self.gate.keys.get(created.key.organization, created.key.id)
        return key.revoked_at is None

    def events(self, name: str) -> list[dict[str, object]]:
        return [dict(event.fields) for event in self.bench.told if event.name == name]


def labels(answer: Answer) -> list[str]:
    assert answer.status == 200, answer.body
    return [entry["label"] for entry in answer.json()]


# --- effects of a report ------------------------------------------------------------------------


async def test_a_reported_key_is_revoked_and_the_host_gets_its_place() -> None:
    desk = Desk()
    created = await desk.create()
    answer = await desk.send(report(created.text))
    assert answer.json() == [
        {
            "token_hash": hashlib.sha256(created.text.encode()).hexdigest(),
            "token_type": "acme_api_key",
            "label": "true_positive",
        }
    ]
    assert answer.one("cache-control") == "no-store"
    assert not await desk.is_live(created)
    key = created.key
    leak = LeakedKey("org_1", key.id, key.name, key.prefix, URL, "content", True, True)
    assert desk.leaks == [[leak]]
    told = {"organization": "org_1", "id": created.key.id, "url": URL, "source": "content"}
    assert desk.events("key_leaked") == [{**told, "was_live": True, "revoked": True}]
    assert desk.events("key_revoked") == [{"organization": "org_1", "id": created.key.id}]
    latest = (await desk.gate.changes.list("org_1")).changes[0]
    assert (latest.action, latest.key) == ("key_revoked", created.key.id)
    assert latest.actor == Actor("scanner", "first", "192.0.2.1")
    refused = await ask(desk.app, "GET", "/x", key=created.text)
    assert refused.code == "KEY_REVOKED"


async def test_a_reported_key_stays_live_by_default_and_the_host_gets_a_notice() -> None:
    assert not LeakReports(keys=Published()).revoke
    desk = Desk(revoke=False)
    created = await desk.create()
    assert labels(await desk.send(report(created.text))) == ["true_positive"]
    assert await desk.is_live(created)
    assert [(leak.was_live, leak.revoked) for leak in desk.leaks[0]] == [(True, False)]


async def test_a_report_that_is_sent_again_changes_nothing_more() -> None:
    desk = Desk()
    created = await desk.create()
    body = report("x", created.text)
    first = await desk.send(body)
    key = await desk.gate.keys.get("org_1", created.key.id)
    desk.store.calls.clear()
    desk.bench.told.clear()
    again = await desk.send(body)
    assert again.body == first.body
    assert labels(again) == ["false_positive", "true_positive"]
    assert (desk.store.calls, desk.events("key_leaked"), len(desk.leaks)) == ([], [], 1)
    assert await desk.gate.keys.get("org_1", created.key.id) == key
    other = Desk(
        store=desk.store, sender=desk.sender
    )  # Nor at another process, which tells the host of it.
    assert labels(await other.send(body)) == ["false_positive", "true_positive"]
    assert other.events("key_revoked") == []
    assert [(leak.was_live, leak.revoked) for leak in other.leaks[0]] == [(False, True)]


async def test_keys_that_do_not_exist_are_false_positives_that_revoke_and_tell_nothing() -> None:
    desk = Desk()
    unknown = Gate(brand="acme").format.generate().text
    other = Gate(brand="other").format.generate().text
    created = await desk.create()
    typo = created.text[:-1] + ("0" if created.text[-1] != "0" else "1")
    # A wrong secret behind the known handle.
    draws = {8: created.key.handle, 37: "r" * 37}
    forged = type(desk.gate.format)("acme", draw=draws.__getitem__).generate().text
    tokens = [unknown, other, typo, forged, "", "x" * 5000, "\0", f"Bearer {created.text}"]
    assert labels(await desk.send(report(*tokens))) == ["false_positive"] * len(tokens)
    assert await desk.is_live(created)
    assert desk.leaks == []
    assert desk.events("key_leaked") == []


async def test_one_key_in_many_places_is_looked_up_once_with_a_notice_for_each() -> None:
    """Fields that a sender adds are ignored, others may be absent, and text that UTF-8 cannot hold
    keeps no other token from being taken."""
    desk = Desk()
    created = await desk.create()
    places = [{"token": created.text, "type": "t", "url": f"https://x/{n}"} for n in range(5)]
    entries: list[Any] = [
        *places,
        {"token": created.text, "type": "t", "url": None, "commit": {"sha": "x"}},
        {"token": created.text, "type": "t"},
        {"token": created.text, "type": "t", "url": "x\ud800"},
        {"token": "\ud800", "type": "\ud800", "url": "\ud800"},
    ]
    answer = await desk.send(json.dumps(entries).encode())
    assert labels(answer) == [*["true_positive"] * 8, "false_positive"]
    assert desk.store.calls == ["find"]
    assert [leak.url[-1:] for leak in desk.leaks[0]] == [*"01234", "", "", "?"]
    assert {leak.source for leak in desk.leaks[0]} == {""}
    assert len(desk.events("key_revoked")) == 1


async def test_expired_and_revoked_keys_are_true_positives_and_not_live() -> None:
    desk = Desk()
    expired = await desk.gate.keys.create("org_1", "expired", expires_in_days=1)
    revoked = await desk.create()
    await desk.gate.keys.revoke("org_1", revoked.key.id)
    desk.bench.clock.now += 2 * DAY
    body = report(expired.text, revoked.text)
    assert labels(await desk.send(body)) == ["true_positive"] * 2
    told = [(leak.was_live, leak.revoked) for leak in desk.leaks[0]]
    assert told == [(False, False), (False, True)]


async def test_a_report_revokes_no_other_key_of_any_organization() -> None:
    desk = Desk()
    leaked, kept, other = [await desk.create(f"org_{number}") for number in (1, 1, 2)]
    rotated = await desk.gate.keys.rotate("org_1", leaked.key.id)
    assert labels(await desk.send(report(leaked.text))) == ["true_positive"]
    assert [await desk.is_live(key) for key in (leaked, kept, other)] == [False, True, True]
    successor = await desk.gate.keys.get("org_1", rotated.successor.id)
    assert successor.revoked_at is None
    await desk.send(report(kept.text, other.text))
    assert [leak.organization for leak in desk.leaks[1]] == ["org_1", "org_2"]


async def test_a_leaked_imported_key_is_revoked() -> None:
    fast = ImportedKeyFormat("old", r"old_(?P<handle>\w{8})_\w{16}", schemes=["sha256"])
    slow = ImportedKeyFormat("slow", r"slow_(?P<handle>\w{8})_\w{16}", schemes=["pbkdf2_sha256"])
    desk = Desk(legacy=[fast, slow])
    texts = ["old_handle01_0123456789abcdef", "slow_handle02_0123456789abcdef"]
    digests = [
        hashlib.sha256(texts[0].encode()).hexdigest(),
        passlib_hash.pbkdf2_sha256.using(rounds=10).hash(texts[1]),  # pyright: ignore[reportAttributeAccessIssue] - libpass has no stubs
    ]
    adopted = []
    for text, digest in zip(texts, digests, strict=True):
        kind, handle, _ = text.split("_")
        old = {"organization": "org_1", "name": "old", "handle": handle, "digest": digest}
        adopted.append(await desk.gate.legacy.adopt(kind, **old))
    wrong = "slow_handle02_ffffffffffffffff"
    answer = await desk.send(report(wrong, *texts))
    assert labels(answer) == ["false_positive", "true_positive", "true_positive"]
    found = [await desk.gate.keys.get("org_1", key.id) for key in adopted]
    assert all(key.revoked_at for key in found)


# --- signatures ---------------------------------------------------------------------------------


Fields = list[tuple[str, str]]
CHANGES: dict[str, Callable[..., Fields]] = {
    "no signer": lambda kind, _, signature: [kind, signature],
    "no signature": lambda kind, signer, _: [kind, signer],
    "an API key": lambda kind, *_: [kind],
    "two signers": lambda kind, signer, signature: [kind, signer, signer, signature],
    "two signatures": lambda kind, signer, signature: [kind, signer, signature, signature],
    "unknown signer": lambda kind, signer, signature: [kind, (signer[0], "unknown"), signature],
    "an empty signer": lambda kind, signer, signature: [kind, (signer[0], ""), signature],
    "a signer outside ASCII": lambda kind, signer, sign: [kind, (signer[0], "\xff"), sign],
    "no base64": lambda kind, signer, sign: [kind, signer, (sign[0], "*" + sign[1][1:])],
    "no DER": lambda kind, signer, sign: [kind, signer, (sign[0], "AAAA" + sign[1][4:])],
    "an empty signature": lambda kind, signer, sign: [kind, signer, (sign[0], "")],
    "a long signature": lambda kind, signer, sign: [kind, signer, (sign[0], sign[1] + "A" * 8000)],
    "the signature of another key": lambda kind, signer, _: [
        *(kind, signer),
        Sender().headers(report("x"))[2],
    ],
}


@pytest.mark.parametrize("how", CHANGES)
async def test_a_report_without_a_known_signature_is_refused_and_asks_no_store(how: str) -> None:
    desk = Desk()
    created = await desk.create()
    body = report(created.text)
    headers = CHANGES[how](*desk.sender.headers(body))
    key: dict[str, Any] = {"key": created.text} if how == "an API key" else {}
    answer = await desk.send(body, headers=headers, **key)
    assert (answer.status, answer.code) == (401, "REPORT_NOT_ACCEPTED")
    assert answer.one("www-authenticate") == "Bearer"
    assert desk.store.calls == []
    assert await desk.is_live(created)
    address = {"code": "REPORT_NOT_ACCEPTED", "address": "192.0.2.1"}
    assert desk.events("leak_report_refused") == [address]


async def test_a_changed_body_is_refused() -> None:
    desk = Desk()
    created = await desk.create()
    body = report(created.text)
    for wrong in (body + b" ", body.replace(b"content", b"Content"), b"[]", b""):
        answer = await desk.send(wrong, headers=desk.sender.headers(body))
        assert answer.code == "REPORT_NOT_ACCEPTED"
    assert await desk.is_live(created)


async def test_keys_of_other_curves_and_faulty_ones_are_ignored_also_of_an_async_function() -> None:
    desk = Desk()
    wide = Sender("wide", ec.SECP256K1())
    body = report("x")
    faulty: list[Any] = [{}, {"key_identifier": "x", "key": "no PEM"}, None, 7]
    entries = [*faulty, wide.entry, desk.sender.entry]

    async def published() -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"public_keys": entries}

    desk = Desk(keys=published)
    assert (await desk.send(body, wide)).code == "REPORT_NOT_ACCEPTED"
    sender = Sender("first")
    entries.append(sender.entry)
    desk = Desk(keys=published)
    assert (await desk.send(body, sender)).status == 200


async def test_a_report_that_github_signed_is_accepted() -> None:
    """The sample for Python in GitHub's documentation of 2022, with the key of that time."""
    pem = (
        "-----BEGIN PUBLIC KEY-----\n"
        "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE9MJJHnMfn2+H4xL4YaPDA4RpJqUq\n"
        "kCmRCBnYERxZanmcpzQSXs1X/AljlKkbJ8qpVIW4clayyef9gWhFbNHWAA==\n"
        "-----END PUBLIC KEY-----"
    )
    signer = "90a421169f0a406205f1563a953312f0be898d3c7b6c06b681aa86a874555f4a"
    signature = (
        "MEUCIQDKZokqnCjrRtw0tni+2Ltvl/uiMJ1EGumEsp1BsNr32AIgQY1YXD2nlj+X"
        "NfGK4rBfkMJ1JDOQcYXxa2sY8FNkrKc="
    )
    body = b'[{"token":"some_token","type":"some_type","url":"some_url"}]'
    desk = Desk(keys=lambda: {"public_keys": [{"key_identifier": signer, "key": pem}]})
    headers = [
        ("content-type", "application/json"),
        ("github-public-key-identifier", signer),
        ("github-public-key-signature", signature),
    ]
    assert labels(await desk.send(body, headers=headers)) == ["false_positive"]
    other = body.replace(b"some_url", b"some_uri")
    assert (await desk.send(other, headers=headers)).code == "REPORT_NOT_ACCEPTED"


# --- the signers' keys --------------------------------------------------------------------------


async def test_the_signers_keys_are_read_once_a_minute_whatever_signers_are_named() -> None:
    desk = Desk()
    for _ in range(5):
        assert labels(await desk.send(report("x"))) == ["false_positive"]
    for number in range(20):
        answer = await desk.send(report("x"), Sender(f"unknown {number}"))
        assert answer.code == "REPORT_NOT_ACCEPTED"
    assert desk.published.calls == 1


@pytest.mark.parametrize(
    "document", [None, {}, [], {"public_keys": []}, {"public_keys": "x"}, ZeroDivisionError]
)
async def test_without_signers_keys_a_report_is_answered_503(
    document: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def keys() -> Any:
        if document is ZeroDivisionError:
            raise ZeroDivisionError
        return document

    desk = Desk(keys=keys)
    answer = await desk.send(report("x"))
    assert (answer.status, answer.code) == (503, "LEAK_REPORTS_UNAVAILABLE")
    assert [record.message for record in caplog.records if record.exc_info] == [
        "LeakReports(keys=...) failed"
    ]
    assert len(desk.events("leak_signers_failed")) == 1
    assert desk.store.calls == []


async def test_a_function_that_hangs_delays_a_report_by_its_timeout() -> None:
    ends = threading.Event()

    def keys() -> dict[str, Any]:
        ends.wait()
        return {}

    desk = Desk(keys=keys, timeout=0.05)
    try:
        assert (await desk.send(report("x"))).code == "LEAK_REPORTS_UNAVAILABLE"
    finally:
        ends.set()


# --- the host's function ------------------------------------------------------------------------


@pytest.mark.parametrize("revoke", [False, True])
async def test_a_notice_that_fails_is_503_so_that_the_report_is_sent_again(
    revoke: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def fails(_: object) -> None:
        raise ZeroDivisionError("the mail server is away")

    desk = Desk(revoke=revoke, on_leak=fails)
    created = await desk.create()
    answer = await desk.send(report(created.text))
    assert (answer.status, answer.code) == (503, "LEAK_REPORTS_UNAVAILABLE")
    assert await desk.is_live(created) is not revoke
    assert desk.events("leak_notice_failed") == [{"error": "ZeroDivisionError"}]
    assert "the mail server is away" in caplog.text
    assert created.text not in caplog.text


async def test_a_store_that_fails_between_two_keys_is_503_with_a_notice_for_the_first() -> None:
    desk = Desk()
    first, second = [await desk.create() for _ in range(2)]
    desk.store.fails_from = 2
    answer = await desk.send(report(first.text, second.text))
    assert (answer.status, answer.code) == (503, "STORE_UNAVAILABLE")
    assert [leak.id for leak in desk.leaks[0]] == [first.key.id]
    desk.store.fails_from = None
    assert labels(await desk.send(report(first.text, second.text))) == ["true_positive"] * 2
    assert not await desk.is_live(second)


# --- limits -------------------------------------------------------------------------------------


async def test_a_thousand_tokens_are_taken_and_no_more_and_no_longer_body() -> None:
    """A body over the limit is not verified."""
    desk = Desk()
    longer = await desk.send(b" " * (REPORT_LIMIT + 1))
    assert (longer.status, longer.code, desk.published.calls) == (413, "PAYLOAD_TOO_LARGE", 0)
    longest = report("x") + b" " * (REPORT_LIMIT - len(report("x")))
    assert labels(await desk.send(longest)) == ["false_positive"]
    created = await desk.create()
    many = report(*["x"] * 999, created.text)
    assert labels(await desk.send(many))[-2:] == ["false_positive", "true_positive"]
    answer = await desk.send(report(*["x"] * 1001))
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")
    assert "1,000" in answer.json()["details"][0]["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"null",
        b"[" * 100_000,
        b'[{"type": "x"}]',
        b'[{"token": 1, "type": "x"}]',
        b'[{"token": "x", "type": null}]',
        b'[{"token": "x", "token": "y", "type": "x"}]',
        b"\xff",
        b"[NaN]",
    ],
)
async def test_a_signed_body_of_another_shape_is_400(body: bytes) -> None:
    desk = Desk()
    answer = await desk.send(body)
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")
    assert desk.store.calls == []


async def test_a_flood_of_forged_reports_is_refused_before_its_body_is_read() -> None:
    desk = Desk(anonymous=5)
    created = await desk.create()
    body = report(created.text)
    forger = Sender("first")
    codes = [(await desk.send(body, forger)).code for _ in range(8)]
    assert codes[:5] == ["REPORT_NOT_ACCEPTED"] * 5
    assert set(codes[5:]) == {"RATE_LIMIT_EXCEEDED"}
    elsewhere = await desk.send(body, client=("192.0.2.2", 1))
    assert labels(elsewhere) == ["true_positive"]
    desk.bench.clock.now += MINUTE
    assert labels(await desk.send(body)) == ["true_positive"]


async def test_failed_credentials_of_an_address_use_up_its_reports_unread() -> None:
    desk = Desk(anonymous=5)
    while (await ask(desk.app, "GET", "/x")).status == 401:
        pass
    unread: list[bytes] = []
    answer = await ask(desk.app, "POST", PATH, headers=desk.sender.headers(b"x"), body=unread)
    assert answer.status == 429
    assert int(answer.one("retry-after")) >= 1


# --- texts without keys -------------------------------------------------------------------------


async def test_no_key_is_in_the_answer_the_events_the_notice_or_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    desk = Desk()
    created = await desk.create()
    text = created.text
    bodies = [
        report(text, url=f"https://example.com/{text}?x={text}", source=text),
        report(text, type=7),
        report(f"{text}x"),
        json.dumps([{text: text}]).encode(),
        json.dumps({text: text}).encode(),
    ]
    answers = [await desk.send(body) for body in bodies]
    assert [answer.status for answer in answers] == [200, 400, 200, 400, 400]
    forged = await desk.send(bodies[0], Sender("first"))
    told = [repr(desk.bench.told), repr(desk.leaks), caplog.text]
    told += [answer.body.decode() for answer in [*answers, forged]]
    secret = text.rpartition("_")[2]
    assert [each[:200] for each in told if secret in each] == []
    assert "<redacted>" in desk.leaks[0][0].url


async def test_the_openapi_document_describes_the_operation() -> None:
    document = describe(Desk().gate, "A service")
    assert list(document["paths"]) == [PATH]
    operation = document["paths"][PATH]["post"]
    assert operation["security"] == []
    assert set(document["components"]["schemas"]) >= {"LeakReport", "LeakLabel"}


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", EVERY)
def test_every_framework_takes_reports_without_sessions(framework: str) -> None:
    sender = Sender()
    leaks = LeakReports(keys=Published(sender), revoke=True, timeout=60)
    gate = gate_of(features=[leaks])
    key = bearer(gate)
    text = key["Authorization"].removeprefix("Bearer ")
    app, ask = protected(framework, gate)
    body = report(text)
    sent = {"data" if framework in {"flask", "wsgi"} else "content": body}
    refused = ask(PATH, dict(Sender("first").headers(body)), "POST", **sent)
    assert (refused.status, refused.code) == (401, "REPORT_NOT_ACCEPTED")
    assert ask("/models", key).status == 200
    answer = ask(PATH, dict(sender.headers(body)), "POST", **sent)
    assert (answer.status, answer.body[0]["label"]) == (200, "true_positive")
    assert ask("/models", key).code == "KEY_REVOKED"
    assert ask("/api/v1/api-keys").code == "MISSING_AUTH"
    if framework == "fastapi":
        operation = app.openapi()["paths"][PATH]["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        assert schema["items"]["required"] == ["token", "type"]
        assert "$ref" not in json.dumps(schema)


@pytest.mark.parametrize(
    "settings",
    [
        {"keys": {"public_keys": []}},
        {"keys": Published(), "on_leak": "x"},
        {"keys": Published(), "timeout": 0},
        {"keys": Published(), "timeout": float("inf")},
    ],
)
def test_settings_of_the_wrong_kind_are_refused(settings: Any) -> None:
    with pytest.raises(ConfigurationError):
        LeakReports(**settings)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "cryptography", None)
    for name in [name for name in sys.modules if name.startswith("cryptography.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "lockgate.services.leaks.report_signatures", raising=False)
    with pytest.raises(ConfigurationError, match="leaks"):
        Gate(brand="acme", features=[LeakReports(keys=Published())])
