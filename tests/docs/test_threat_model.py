"""The threat model names existing tests; this file holds tests for its remaining lines."""

from __future__ import annotations

import re
from contextlib import closing
from functools import cache
from pathlib import Path
from sqlite3 import connect

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from lockgate import PUBLIC, Gate, MemoryStore, Plan, Registration, run
from lockgate.asgi import GateMiddleware
from lockgate.errors import KeyRevoked
from lockgate.options import WebOptions
from lockgate.sessions import SignedCookie

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "threat-model.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
REFERENCE = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
SECRET = "a session secret of these tests"


@cache
def functions_of(path: str) -> frozenset[str]:
    return frozenset(re.findall(r"def (\w+)\(", (ROOT / path).read_text()))


def test_every_test_that_a_page_names_exists() -> None:
    named = [(page.name, *one) for page in PAGES for one in REFERENCE.findall(page.read_text())]
    assert [one for one in named if one[2] not in functions_of(one[1])] == []


def test_every_line_is_shown_by_a_test() -> None:
    """Of tables with the column "shown by"."""
    lines = PAGE.read_text().splitlines()
    shown = False
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            shown = False
        elif cells[-1] == "shown by":
            shown = True
        elif shown and not set(line) <= set("|-"):
            assert REFERENCE.match(cells[-1]), line
    assert len(REFERENCE.findall(PAGE.read_text())) > 80


def test_every_attacker_has_a_table_of_properties_that_hold_and_do_not() -> None:
    first, *holders = PAGE.read_text().split("\n## Assumptions")[1].split("\n## ")
    assert "TLS" in first
    assert len(holders) == 13
    for holder in holders:
        assert "| holds | shown by |" in holder
        assert "| does not hold | shown by |" in holder


def test_the_policy_and_the_threat_model_are_found_from_the_readme_and_each_other() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "/SECURITY.md)" in readme
    assert "/docs/threat-model.md)" in readme
    assert "](docs/threat-model.md)" in (ROOT / "SECURITY.md").read_text()
    assert "](../SECURITY.md)" in PAGE.read_text()


def served(gate: Gate) -> GateMiddleware:
    app = Starlette(routes=[Route("/open", lambda _: PlainTextResponse("ok"))])
    return GateMiddleware(app, gate, {"GET /open": PUBLIC})


async def get(app: GateMiddleware, address: str, path: str, **headers: str) -> int:
    transport = httpx.ASGITransport(app=app, client=(address, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        return (await client.get(path, headers=headers)).status_code


async def test_each_process_has_separate_budgets() -> None:
    store, budget = MemoryStore(), Plan("anonymous", rpm=1, rph=10, rpd=10, concurrent=None)
    for _ in range(2):
        process = served(Gate(store, brand="acme", web_options=WebOptions(anonymous=budget)))
        assert await get(process, "192.0.2.1", "/open") == 200
        assert await get(process, "192.0.2.1", "/open") == 429


async def test_a_key_works_from_any_address() -> None:
    gate = Gate(brand="acme")
    created = await gate.keys.create("org_1", "a key")
    for address in ("192.0.2.1", "198.51.100.1", "2001:db8::1"):
        status = await get(
            served(gate), address, "/elsewhere", authorization=f"Bearer {created.text}"
        )
        assert status == 404  # The application's own answer.


def test_a_restored_store_admits_keys_that_were_revoked_after_its_backup(tmp_path: Path) -> None:
    file, backup = tmp_path / "keys.db", tmp_path / "backup.db"
    gate = Gate(f"sqlite:///{file}?mode=rwc", brand="acme")
    created = run(gate.keys.create("org_1", "a key"))
    with closing(connect(file)) as source, closing(connect(backup)) as target:
        source.backup(target)
    run(gate.keys.revoke("org_1", created.key.id))
    with pytest.raises(KeyRevoked):
        run(gate.authenticate(created.text))
    run(gate.close())
    restored = Gate(f"sqlite:///{backup}", brand="acme")
    assert run(restored.authenticate(created.text)).organization == "org_1"
    run(restored.close())


def test_a_copy_of_the_database_shows_names_and_addresses_and_no_secret(tmp_path: Path) -> None:
    pepper = "a pepper of these tests"
    gate = Gate(
        f"sqlite:///{tmp_path}/keys.db?mode=rwc",
        brand="acme",
        peppers=[pepper.encode()],
        sessions=SignedCookie([SECRET]),
        web_options=WebOptions(public_url="https://console.example.com"),
        features=[Registration(session_secrets=[SECRET])],
    )
    assert gate.accounts is not None
    made = run(gate.accounts.register("render bot", "ada@example.com", address="192.0.2.1"))
    created = run(gate.keys.create(made.account.organization, "render farm"))
    run(gate.close())
    copy = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    for readable in ("render bot", "ada@example.com", "render farm", created.key.prefix):
        assert readable.encode() in copy
    for secret in (made.api_key, made.dashboard_token, created.text, pepper, SECRET):
        assert secret.encode() not in copy
        assert secret.rpartition("_")[2].encode() not in copy
