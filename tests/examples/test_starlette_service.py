"""The Starlette example works as documented."""

import runpy
from pathlib import Path

import httpx
import pytest

from .secrets_of_examples import SECRETS

EXAMPLE = Path(__file__).parents[2] / "examples" / "starlette_service.py"


async def test_the_example_serves(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    app = runpy.run_path(str(EXAMPLE))["app"]
    lines = capsys.readouterr().out.splitlines()
    key, session = (line.split()[-1] for line in lines)
    bearer = {"Authorization": f"Bearer {key}"}
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
        assert (await client.get("/health")).json() == {"status": "ok"}
        assert (await client.get("/models")).status_code == 401
        models = await client.get("/models", headers=bearer)
        assert models.json() == {"for": "org_1", "data": ["m-1"]}
        assert models.headers["x-ratelimit-remaining"] == "29"
        started = await client.post("/jobs", headers=bearer)
        assert (started.status_code, started.headers["x-ratelimit-remaining"]) == (202, "24")
        made = await client.post(
            "/api/v1/api-keys",
            headers={"Cookie": f"__session={session}"},
            json={"name": "reader", "scopes": ["models:read"]},
        )
        assert made.status_code == 201
        reader = {"Authorization": f"Bearer {made.json()['key']}"}
        assert (await client.post("/jobs", headers=reader)).json()["code"] == "INSUFFICIENT_SCOPE"
        assert (await client.get("/elsewhere", headers=reader)).text == "Not Found"
