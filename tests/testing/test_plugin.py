"""The pytest plugin: its fixtures, and no cost for tests without them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Loaded as when it is installed, without other plugins, which would load many packages.
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
PLUGIN = ["-p", "pytest_lockgate", "-p", "no:cacheprovider"]

USES = """
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from lockgate.asgi import GateMiddleware
from lockgate.starlette import operations


@pytest.fixture
def client(lockgate_gate):
    routes = [Route("/models", lambda request: PlainTextResponse("ok"))]
    routes += operations(lockgate_gate)
    app = GateMiddleware(Starlette(routes=routes), lockgate_gate, {"GET /models": "models:read"})
    return TestClient(app)


def test_limits(client, lockgate_tenants, lockgate_clock):
    free = lockgate_tenants["free"]
    assert set(lockgate_tenants) == {"free", "starter", "creator", "enterprise"}
    answers = [client.get("/models", headers=free.headers).status_code for _ in range(11)]
    assert answers == [200] * 10 + [429]
    lockgate_clock.move(minutes=1)
    assert client.get("/models", headers=free.headers).status_code == 200
    assert free.key not in repr(free)


def test_sessions(client, lockgate_tenants):
    tenant = lockgate_tenants["starter"]
    cookie = {"Cookie": f"__session={tenant.session}", "Content-Type": "application/json"}
    answer = client.post("/api/v1/api-keys", headers=cookie, json={"name": "mine"})
    assert answer.status_code == 201


class TestOther:
    @pytest.fixture
    def lockgate_options(self):
        return {"brand": "mine"}

    def test_options(self, lockgate_gate, lockgate_tenants):
        assert lockgate_tenants["free"].key.startswith("mine_live_")
"""

IDLE = """
import sys

def test_nothing_is_loaded():
    loaded = {name.partition(".")[0] for name in sys.modules}
    assert "pytest_lockgate" in loaded
    assert not loaded & {"lockgate", "sqlalchemy", "redis", "starlette", "pydantic"}
"""


@pytest.mark.parametrize(("source", "tests"), [(USES, 3), (IDLE, 1)])
def test_the_fixtures_work_and_load_lazily(tmp_path: Path, source: str, tests: int) -> None:
    (tmp_path / "test_it.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *PLUGIN, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, **ALONE, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tests} passed" in done.stdout
