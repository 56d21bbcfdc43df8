"""``lockgate keys import``: files and the tables of other systems, with keys that they issued."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, TextIO, cast

import pytest
from httpx import ASGITransport, AsyncClient
from keyshield.hasher.argon2 import Argon2ApiKeyHasher
from keyshield.repositories.in_memory import InMemoryApiKeyRepository
from keyshield.repositories.sql import Base, SqlAlchemyApiKeyRepository
from keyshield.services.base import ApiKeyService
from safe_api_keys import KeyManager, KeyPolicy
from safe_api_keys.stores.sqlite import SQLiteStore
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from starlette.responses import PlainTextResponse

from lockgate import Gate, Refusal, legacy
from lockgate.asgi import GateMiddleware
from lockgate.cli import main
from lockgate.core.api_keys import KeyState
from lockgate.errors import KeyExpired, KeyNotFound, KeyRevoked
from lockgate.migrations import upgrade
from lockgate.options import KeyOptions
from tests.cli.importing import TOKENS, Desk, Said, digest, line, micros, table, token
from tests.servers import shared
from tests.services.shared_stores import shared_store

OLD_PEPPER = b"a pepper of the other system, 32 bytes"
BETTER_AUTH_KEYS = (
    "acme_mDEDklmZQazzfGvFZDLTfSgIdFvQheEYlwYotDRVIjgakrdSXqeHdUmfTpSBMDrL",
    "acme_vcEKXmXyADeVieiaPRPXJUIUWDgiiBlRCFpTkpmXiBqPbXbSQNPCAQlcxiYCCZAy",
)
UNKEY_KEY = "acme_3ZLnRTfPNsn6ZNzVkr7iiT"
"""A key of Unkey's form; its digest is SHA-256 in base64, as Unkey's ``sha256`` makes it."""


@pytest.fixture(params=["sqlite", "postgresql", "mysql", "redis", "pair"])
def stored(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: Said, tmp_path: Path
) -> Iterator[Desk]:
    """A desk on each store."""
    kind = request.param
    if kind == "mysql":
        url = shared("mariadb").create(f"imports_{token_hex(4)}")
        upgrade(url)
        yield Desk(monkeypatch, capsys, url)
        return
    with shared_store(kind, tmp_path) as url:
        yield Desk(monkeypatch, capsys, url)


def test_every_field_of_a_row_is_kept_on_every_store(stored: Desk, tmp_path: Path) -> None:
    past = "2024-03-01T10:00:00.250Z,2098-01-01 00:00:00+00:00,{},1709290000000,41"
    path = table(
        tmp_path,
        line(1, name="live", more=past.format("")),
        line(2, name="revoked", more=past.format("2024-04-01T00:00:00")),
        line(3, name="expired", more="2024-03-01T10:00:00Z,2024-05-01T00:00:00Z,,,"),
        line(4, name="new"),
    )
    assert stored.run(path)["imported"] == 4
    keys = stored.keys()
    for name in ("live", "revoked"):
        key = keys[name]
        assert key.created_at == micros("2024-03-01T10:00:00.250Z")
        assert key.expires_at == micros("2098-01-01T00:00:00Z")
        assert key.last_used_at == micros("2024-03-01T10:46:40Z")
        assert (key.request_count, key.scopes) == (41, ("jobs:read",))
    assert keys["live"].revoked_at is None
    assert keys["revoked"].revoked_at == micros("2024-04-01T00:00:00Z")
    assert (keys["new"].request_count, keys["new"].last_used_at) == (0, None)
    admitted = stored.admit(token(1))
    assert (admitted.id, admitted.request_count) == (keys["live"].id, 42)
    assert stored.keys()["live"].scheme == stored.gate().format.peppers.scheme
    for number, refusal in ((2, KeyRevoked), (3, KeyExpired), (5, KeyNotFound)):
        with pytest.raises(refusal):
            stored.admit(token(number))


def test_a_second_run_imports_nothing_and_repeats_revocations_on_every_store(
    stored: Desk, tmp_path: Path
) -> None:
    rows = [line(number) for number in range(5)]
    assert stored.run(table(tmp_path, *rows))["imported"] == 5
    stored.admit(token(0))  # This one has lockgate's digest now.
    before = stored.keys()
    rows[1] = line(1, more=",,2024-04-01T00:00:00Z,,")
    rows[0] = line(0, more=",,2024-04-01T00:00:00Z,,")
    report = stored.run(table(tmp_path, *rows, line(7)))
    assert [report[name] for name in ("imported", "present", "revoked")] == [1, 3, 2]
    assert report["skipped"] == 0
    for number in (0, 1):
        with pytest.raises(KeyRevoked):
            stored.admit(token(number))
    report = stored.run(table(tmp_path, *rows, line(7)))
    assert (report["imported"], report["present"], report["revoked"]) == (0, 6, 0)
    after = stored.keys()
    assert len(after) == 6
    assert all(after[name].id == key.id for name, key in before.items())


def test_a_dry_run_tells_the_same_and_changes_nothing(desk: Desk, tmp_path: Path) -> None:
    path = table(tmp_path, line(1), line(2), line(3, more="yesterday,,,,"))
    report = desk.run(path, "--dry-run", code=1)
    assert (report["dry_run"], report["imported"], report["skipped"]) == (True, 2, 1)
    assert desk.keys() == {}
    desk.run(path, code=1)
    path = table(tmp_path, line(1), line(2, more=",,2024-04-01T00:00:00Z,,"))
    report = desk.run(path, "--dry-run")
    assert (report["imported"], report["present"], report["revoked"]) == (0, 1, 1)
    assert desk.admit(token(2)).revoked_at is None


def test_skipped_rows_are_reported_with_their_reason_and_no_secret(
    desk: Desk, tmp_path: Path
) -> None:
    desk.run(table(tmp_path, line(1)))
    other = line(1).replace("org_1", "org_2")
    digested = line(1).replace(digest(token(1)), digest(token(8)))
    bad = line(2).replace(digest(token(2)), "md5:" + digest("x"))
    unknown = line(3).replace("jobs:read", "no:such")
    path = table(tmp_path, other, digested, bad, unknown, "too,few", line(4, more=",never,,x,-"))
    log = tmp_path / "skipped.jsonl"
    report = desk.run(path, "--skipped", str(log), code=1)
    reasons = {row["row"]: row["reason"] for row in report["skipped_rows"]}
    expected = ["other_organization", "other_digest", *["invalid"] * 4]
    assert list(reasons.values()) == expected
    assert list(reasons) == [2, 3, 4, 5, 6, 7]
    assert report["reasons"] == {"other_organization": 1, "other_digest": 1, "invalid": 4}
    assert [json.loads(text)["row"] for text in log.read_text().splitlines()] == [2, 3, 4, 5, 6, 7]
    told = json.dumps(report) + log.read_text()
    assert "expires_at" in told and "request_count" in told and "no:such" in told
    for number in range(1, 9):
        assert digest(token(number)) not in told


def test_the_password_of_a_source_comes_by_the_environment(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = desk.run("postgresql://user:hunter2@127.0.0.1:1/old", "--table", "t", code=2)
    assert "LOCKGATE_SOURCE" in said and "hunter2" not in said
    monkeypatch.setenv("LOCKGATE_SOURCE", "postgresql://user:hunter2@127.0.0.1:1/old")
    said = desk.run("--table", "t", code=2)
    assert "cannot be read: no server answers there" in said and "hunter2" not in said
    monkeypatch.setenv("LOCKGATE_SOURCE", table(tmp_path, line(1)))
    assert desk.run()["imported"] == 1
    assert desk.run(table(tmp_path, line(1), line(2)))["imported"] == 1


def test_a_fault_of_all_rows_is_told_once_in_words(
    desk: Desk, tmp_path: Path, capsys: Said
) -> None:
    path = tmp_path / "keys.csv"
    lines = [f"{token(n)},jobs:read,soon" for n in range(1, 10)]
    path.write_text("\n".join(["key,scopes,expires_at", *lines, f"{token(10)},no:such,"]) + "\n")
    assert main(["keys", "import", str(path), "--organization", "org_1"]) == 1
    out = capsys.readouterr().out
    assert out.count("Use a time in ISO 8601") == 1
    assert "rows 2, 3, 4, 5, 6 and 4 more: expires_at: Use a time in ISO 8601" in out
    assert "row 11: " in out and "no:such" in out
    assert token(1) not in out


def test_the_cap_of_keys_counts_live_keys_only(desk: Desk, tmp_path: Path) -> None:
    desk.options = {"key_options": KeyOptions(cap=2)}
    ended = line(9, more=",,2024-04-01T00:00:00Z,,")
    report = desk.run(table(tmp_path, line(1), ended, line(2), line(3)), code=1)
    assert (report["imported"], report["reasons"]) == (3, {"key_limit": 1})


def test_a_key_in_plain_text_is_kept_as_a_digest_of_lockgate(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "keys.jsonl"
    rows = [{"organization": 7, "key": token(1), "scopes": ["jobs:read"]}, {"key": "short"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = desk.run(str(path), "--organization", "org_1", "--scope", "*", code=1)
    assert (report["imported"], report["skipped"]) == (1, 1)
    assert "short" not in json.dumps(report)
    (key,) = desk.keys("7").values()
    assert key.scheme == desk.gate().format.peppers.scheme
    assert key.prefix == token(1)[:8]
    assert desk.admit(token(1)).id == key.id
    assert desk.run(str(path), "--scope", "*", code=1)["present"] == 1


def test_scopes_are_never_assumed(desk: Desk, tmp_path: Path) -> None:
    path = table(tmp_path, line(1).replace("jobs:read", ""))
    assert "--scope" in desk.run(path, code=1)["skipped_rows"][0]["message"]
    assert desk.run(path, "--scope", "models:read")["imported"] == 1
    assert desk.keys()["key 1"].scopes == ("models:read",)
    path = table(tmp_path, line(2).replace("jobs:read", '"read, *"'))
    renamed = ("--rename-scope", "read=jobs:read", "--rename-scope", "*=upload:*")
    assert desk.run(path, *renamed)["imported"] == 1
    assert desk.keys()["key 2"].scopes == ("jobs:read", "upload:*")


UNREADABLE = [
    (b'{"organization": "org_1"\n{}\n', "not JSON"),
    (b'{}\n[1]\n"text"\n', "not a JSON object"),
    (b'{"x": "' + b"y" * (1 << 21) + b'"}\n{}\n', "characters"),
    (b'{"organization": "org_1", "colour": 1}\n', "--scope"),
    (b'{"organization": {"a": 1}, "scopes": 7, "revoked": "maybe"}\n', "true or false"),
    (b"organization,name\norg_1,a,b\n", "3 values"),
    (b"organization,name\norg_1,\xff\xfe\n", "UTF-8"),
    (b'organization,name\n"org_1,a\n' + b"x" * 200_000 + b"\n", "CSV"),
]
"""Each with a part of what its skipped rows say."""


def test_an_unreadable_row_is_skipped_and_another_kind_of_file_refused(
    desk: Desk, tmp_path: Path
) -> None:
    path = tmp_path / "keys"
    for content, message in UNREADABLE:
        path.write_bytes(content)
        report = desk.run(str(path), code=1)
        assert any(message in row["message"] for row in report["skipped_rows"]), message
        assert report["imported"] == 0
    for text in ("[]", "[\n{}]", '"a'):
        path.write_text(text)
        desk.run(str(path), code=2)


def test_a_gate_without_the_format_of_the_rows_is_an_error(desk: Desk, tmp_path: Path) -> None:
    path = table(tmp_path, line(1))
    assert "has no ImportedKeyFormat 'other'" in desk.run(path, "--system", "other", code=2)
    desk.formats = [TOKENS, legacy.unkey()]
    assert "--system" in desk.run(path, code=2)
    assert desk.run(path, "--system", "tokens")["imported"] == 1
    desk.formats = []
    assert "KeyOptions(legacy=[...])" in desk.run(path, code=2)


def test_rows_are_read_as_they_are_imported(desk: Desk, tmp_path: Path) -> None:
    from lockgate.cli.import_sources import file_rows

    class Endless:
        read_lines = 0

        def readline(self, _: int) -> str:
            self.read_lines += 1
            return '{"key": "x"}\n'

    source = Endless()
    rows = file_rows(cast(TextIO, source))
    for _ in range(1000):
        next(rows)
    assert source.read_lines <= 1001


# --- keys that other systems issued ------------------------------------------------------------


def guarded(desk: Desk, text: str) -> int:
    """The status of a guarded route for a key."""

    async def work(gate: Gate) -> Any:
        app = GateMiddleware(PlainTextResponse("in"), gate, rules={"GET /jobs": "jobs:read"})
        async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as client:
            response = await client.get("/jobs", headers={"authorization": f"Bearer {text}"})
        return response.status_code

    status = desk.use(work)
    assert isinstance(status, int)
    return status


def test_keys_of_djangorestframework_api_key(desk: Desk, tmp_path: Path) -> None:
    database, dump = tmp_path / "django.db", tmp_path / "keys.jsonl"
    script = [sys.executable, "-m", "tests.cli.drf_keys", str(database), str(dump)]
    keys = json.loads(subprocess.check_output(script, timeout=120))
    desk.formats = [legacy.drf_api_key()]
    options = ("--from", "drf-api-key", "--organization", "org_1", "--scope", "jobs:*")
    assert desk.run(f"sqlite:///{database}", *options)["imported"] == 4
    assert guarded(desk, keys["live"]) == guarded(desk, keys["dated"]) == 200
    assert guarded(desk, keys["revoked"]) == guarded(desk, keys["expired"]) == 401
    with pytest.raises(KeyRevoked):
        desk.admit(keys["revoked"])
    with pytest.raises(KeyExpired):
        desk.admit(keys["expired"])
    kept = desk.keys()
    assert kept["dated"].expires_at == micros("2099-01-01T00:00:00Z")
    assert kept["render farm"].scheme == desk.gate().format.peppers.scheme
    assert desk.run(str(dump), *options)["present"] == 4


def test_keys_of_keyshield(desk: Desk, tmp_path: Path) -> None:
    hasher = Argon2ApiKeyHasher(OLD_PEPPER.decode())
    hasher._ph = type(hasher._ph)(1, 1024)  # Less costly, the same otherwise.
    service = ApiKeyService(InMemoryApiKeyRepository(), hasher)
    url = f"sqlite:///{tmp_path}/keyshield.db"
    engine = create_engine(url)
    Base.metadata.create_all(engine)
    texts: dict[str, str] = {}
    with Session(engine) as session:
        for name, is_active in (("on", True), ("off", False)):
            created = service.create(name=name, is_active=is_active, scopes=["read"])
            entity, texts[name] = asyncio.run(created)
            entity.last_used_at = datetime(2025, 1, 2, tzinfo=UTC)
            session.add(SqlAlchemyApiKeyRepository._to_model(entity))
        session.commit()
    engine.dispose()
    desk.formats = [legacy.keyshield(OLD_PEPPER.decode())]
    options = ("--organization", "org_1", "--rename-scope", "read=jobs:read")
    assert desk.run(url, "--from", "keyshield", *options)["imported"] == 2
    assert desk.keys()["on"].scheme == "legacy:keyshield:argon2"
    assert desk.keys()["on"].last_used_at == micros("2025-01-02T00:00:00Z")
    assert guarded(desk, texts["on"]) == 200
    assert desk.keys()["on"].scheme == desk.gate().format.peppers.scheme
    assert desk.keys()["off"].state(0) is KeyState.REVOKED
    with pytest.raises(Refusal):
        desk.admit(texts["off"])


@pytest.mark.filterwarnings("ignore:safe_api_keys. no pepper")
@pytest.mark.parametrize("pepper", [OLD_PEPPER, None])
def test_keys_of_safe_api_keys(desk: Desk, tmp_path: Path, pepper: bytes | None) -> None:
    database = tmp_path / "safe.db"
    store = SQLiteStore(database)
    policy = KeyPolicy(require_pepper=pepper is not None)
    manager = KeyManager(store, "acme_svc", pepper=pepper, policy=policy)
    live = manager.issue("org_1", name="live", scopes=["jobs:read"])
    ended = manager.issue("org_1", name="ended", scopes=["jobs:read"])
    manager.verify(live.raw_key)
    manager.revoke(ended.raw_key)
    desk.formats = [legacy.safe_api_keys("acme_svc", pepper)]
    report = desk.run(f"sqlite:///{database}", "--from", "safe-api-keys")
    assert report["imported"] == 2
    assert desk.keys()["live"].last_used_at is not None
    assert guarded(desk, live.raw_key) == 200
    with pytest.raises(KeyRevoked):
        desk.admit(ended.raw_key)
    desk.formats = [legacy.safe_api_keys("acme_svc", OLD_PEPPER, version="v9")]
    report = desk.run(f"sqlite:///{database}", "--from", "safe-api-keys", code=1)
    assert report["reasons"] == {"invalid": 2}


def test_keys_of_better_auth(desk: Desk) -> None:
    """The rows and keys are those that better-auth 1.4.22 made, with a later expiry."""
    desk.formats = [legacy.better_auth("acme_")]
    source = str(Path(__file__).parent / "data" / "better_auth.jsonl")
    report = desk.run(source, "--from", "better-auth", "--scope", "jobs:read")
    assert report["imported"] == 2
    (owner,) = {json.loads(row)["userId"] for row in Path(source).read_text().splitlines()}
    kept = desk.keys(owner)
    assert kept["render farm"].scopes == ("jobs:read", "jobs:write")
    assert kept["render farm"].prefix == "acme_m"
    assert guarded(desk, BETTER_AUTH_KEYS[0]) == 200
    with pytest.raises(KeyRevoked):
        desk.admit(BETTER_AUTH_KEYS[1])


def test_permissions_that_cannot_be_read_are_skipped(desk: Desk, tmp_path: Path) -> None:
    desk.formats = [legacy.better_auth("acme_")]
    row = {"key": "A" * 43, "userId": "org_1", "name": "x"}
    path = tmp_path / "rows.jsonl"
    given = ("{", "[1]", '{"jobs": 3}', 7, None)
    path.write_text("".join(json.dumps({**row, "permissions": p}) + "\n" for p in given))
    report = desk.run(str(path), "--from", "better-auth", "--scope", "jobs:read", code=1)
    assert (report["imported"], report["reasons"]) == (1, {"invalid": 4})


def test_keys_of_unkey(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "keys.csv"
    hashed = base64.b64encode(hashlib.sha256(UNKEY_KEY.encode()).digest()).decode()
    columns = "id,hash,start,owner_id,name,created_at_m,expires,deleted_at_m,enabled"
    path.write_text(f"{columns}\nkey_1,{hashed},acme_3ZLn,org_1,farm,1709287200000,,,1\n")
    desk.formats = [legacy.unkey("acme")]
    assert desk.run(str(path), "--from", "unkey", "--scope", "jobs:*")["imported"] == 1
    key = desk.keys()["farm"]
    assert (key.created_at, key.prefix) == (micros("2024-03-01T10:00:00Z"), "acme_3ZLn")
    assert guarded(desk, UNKEY_KEY) == 200
