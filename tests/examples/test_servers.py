"""The examples work as documented, each on the servers that are common for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.patience import LEISURELY
from tests.servers import reserved_port
from tests.tracing import untraced

from .secrets_of_examples import SECRETS

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENT = Path(__file__).parents[1] / "patient"
START_SECONDS = 60
CLOSED = ("/models", "/nowhere", "/models/", "//models", "/health%2f", "/x/%2e%2e/health")

SERVERS: Mapping[str, tuple[str, ...]] = {
    "uvicorn-h11": ("uvicorn", "{app}", "--port={port}", "--http=h11", "--no-proxy-headers"),
    "uvicorn-httptools": ("uvicorn", "{app}", "--port={port}", "--http=httptools"),
    "hypercorn": ("hypercorn", "{app}", "--bind=127.0.0.1:{port}"),
    "granian-asgi": ("granian", "{app}", "--port={port}", "--interface=asgi"),
    "granian-wsgi": ("granian", "{app}", "--port={port}", "--interface=wsgi"),
    "gunicorn": ("gunicorn", "{app}", "--bind=127.0.0.1:{port}", "--threads=4"),
    "gunicorn-workers": (
        # Each gives way to a fresh one after six answers, so that none can answer for them all.
        *("gunicorn", "{app}", "--bind=127.0.0.1:{port}", "--workers=2", "--max-requests=6"),
    ),
    "uvicorn-below": (
        "uvicorn",
        "{app}",
        "--port={port}",
        "--root-path=/shop",
        "--no-proxy-headers",
    ),
    "waitress": ("waitress", "--listen=127.0.0.1:{port}", "{app}"),
}


def environment(folder: Path = EXAMPLES) -> dict[str, str]:
    """The environment of a process that imports from a folder, in any working directory.

    Its gates have the deadline of a busy machine.
    """
    paths = [str(folder), str(PATIENT), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(paths)}
    return {**untraced(os.environ), **own, **SECRETS}


def key_of(example: str, *arguments: str, cwd: Path) -> dict[str, str]:
    """Run an example as a script that prints a key, and return the header that presents it."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / example, *arguments],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {"Authorization": f"Bearer {done.stdout.removeprefix('key: ').strip()}"}


class Running(NamedTuple):
    """A served example, and its output."""

    url: str
    printed: Mapping[str, str]
    log: Path
    """What it has written to its standard error."""

    def client(self, headers: Mapping[str, str] | None = None) -> httpx.Client:
        """Return a client that opens a connection for each request.

        Hypercorn closes a connection, without saying so, on which it answers before the whole body
        has come.
        """
        limits = httpx.Limits(max_keepalive_connections=0)
        return httpx.Client(base_url=self.url, headers=headers, limits=limits, timeout=60)


@contextmanager
def served(
    server: str, app: str, folder: Path = EXAMPLES, cwd: Path | None = None
) -> Iterator[Running]:
    """Serve an application and collect its output; a server may load it more than once."""
    # Apart, since a line of the log may come between a printed line and its end.
    with reserved_port() as port, NamedTemporaryFile() as output, NamedTemporaryFile() as log:
        url = f"http://127.0.0.1:{port}"
        module, *options = (part.format(app=app, port=port) for part in SERVERS[server])
        process = subprocess.Popen(
            [sys.executable, "-m", module, *options],
            cwd=cwd or folder,
            env=environment(folder),
            stdout=output,
            stderr=log,
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            while True:
                try:
                    httpx.get(f"{url}/health", timeout=60)
                    break
                except httpx.TransportError:
                    assert process.poll() is None, Path(log.name).read_text()
                    assert time.monotonic() < deadline, Path(log.name).read_text()
                    time.sleep(0.05)
            # By a separate file object: this one shares its position with the server that writes.
            shown = Path(output.name).read_text().splitlines()
            lines = (line.partition(":") for line in shown)
            printed = {name: value.strip() for name, _, value in lines}
            yield Running(url, printed, Path(log.name))
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.mark.parametrize(
    ("server", "app"),
    [
        ("uvicorn-h11", "starlette_service:app"),
        ("hypercorn", "starlette_service:app"),
        ("granian-asgi", "starlette_service:app"),
        ("uvicorn-httptools", "fastapi_service:app"),
        ("waitress", "flask_service:app"),
        ("granian-wsgi", "flask_service:app"),
        ("gunicorn", "django_service:wsgi"),
        ("uvicorn-httptools", "django_service:asgi"),
        ("uvicorn-h11", "litestar_service:app"),
        ("hypercorn", "quart_service:app"),
    ],
    ids=lambda value: value.replace("_service", ""),
)
def test_an_example_serves_and_guards_its_routes(server: str, app: str) -> None:
    with served(server, app) as running, running.client() as client:
        key = f"Bearer {running.printed['key']}"
        bearer = {"Authorization": key}
        health = client.get("/health")
        assert (health.status_code, health.json()) == (200, {"status": "ok"})
        assert int(health.headers["x-ratelimit-limit"]) == 1000
        for path in CLOSED:
            refused = client.get(path)
            assert refused.status_code == 401, path
            assert refused.json()["code"] == "MISSING_AUTH"
        twice = client.get("/models", headers=[("Authorization", key), ("Authorization", key)])
        assert twice.json()["code"] == "INVALID_FORMAT"
        models = client.get("/models", headers=bearer)
        assert models.json() == {"for": "org_1", "data": ["m-1"]}
        assert models.headers["x-ratelimit-remaining"] == "29"
        started = client.post("/jobs", headers=bearer, json={})
        assert (started.status_code, started.json()) == (202, {"status": "started"})
        assert started.headers["x-ratelimit-remaining"] == "24"
        assert client.head("/models", headers=bearer).headers["x-ratelimit-remaining"] == "23"
        if "session" in running.printed:
            made = client.post(
                "/api/v1/api-keys",
                headers={"Cookie": f"__session={running.printed['session']}"},
                json={"name": "reader", "scopes": ["models:read"]},
            )
            assert made.status_code == 201
            reader = {"Authorization": f"Bearer {made.json()['key']}"}
            refused = client.post("/jobs", headers=reader)
            assert refused.json()["code"] == "INSUFFICIENT_SCOPE"


def test_own_plans_behind_a_proxy() -> None:
    with (
        served("gunicorn", "own_plan:app") as running,
        running.client() as client,
    ):
        bearer = {"Authorization": f"Bearer {running.printed['key']}"}
        renders = client.get("/renders", headers=bearer)
        assert (renders.text, renders.headers["x-ratelimit-limit"]) == ("studio", "600")
        left = [
            client.get("/health", headers={"X-Forwarded-For": f"203.0.113.{host}"}).headers
            for host in (1, 1, 2)
        ]
        assert [headers["x-ratelimit-remaining"] for headers in left] == ["999", "998", "999"]


def test_several_workers_hold_one_limit(tmp_path: Path) -> None:
    bearer = key_of("several_workers.py", cwd=tmp_path)
    with (
        served("gunicorn-workers", "several_workers:app", cwd=tmp_path) as running,
        ThreadPoolExecutor(8) as callers,
    ):
        answers = list(
            callers.map(
                lambda _: httpx.get(f"{running.url}/worker", headers=bearer, timeout=60), range(20)
            )
        )
    admitted = [answer.json() for answer in answers if answer.status_code == 200]
    assert [answer.status_code for answer in answers].count(429) == 10
    assert [answer["for"] for answer in admitted] == ["org_1"] * 10
    assert len({answer["process"] for answer in admitted}) > 1


def test_below_a_prefix_of_a_proxy() -> None:
    with (
        served("uvicorn-below", "behind_a_proxy:app") as running,
        running.client() as client,
    ):
        bearer = {"Authorization": f"Bearer {running.printed['key']}"}
        models = client.get("/models", headers={**bearer, "Host": "shop.example.com"})
        assert models.json() == {"for": "org_1", "url": "http://shop.example.com/shop/models"}
        for path in ("/nowhere", "/", "/shop/health", "/shop/models"):
            assert client.get(path).json()["code"] == "MISSING_AUTH", path
        left = [
            client.get("/health", headers={"X-Forwarded-For": forwarded}).headers
            for forwarded in ("198.51.100.7", "203.0.113.9, 198.51.100.7", "203.0.113.9")
        ]
        assert [h["x-ratelimit-remaining"] for h in left] == ["999", "998", "999"]


def test_plans_from_a_table_of_the_application(tmp_path: Path) -> None:
    bearer = key_of("own_plan_resolver.py", "org_1", "creator", cwd=tmp_path)
    with (
        served("waitress", "own_plan_resolver:app", cwd=tmp_path) as running,
        running.client(bearer) as client,
    ):
        plan = client.get("/plan")
        assert (plan.json(), plan.headers["x-ratelimit-limit"]) == ({"plan": "creator"}, "60")
        key_of("own_plan_resolver.py", "org_1", "starter", cwd=tmp_path)
        plan = client.get("/plan")
        assert (plan.json(), plan.headers["x-ratelimit-remaining"]) == ({"plan": "starter"}, "28")


@pytest.mark.parametrize(
    "server", ["uvicorn-h11", "uvicorn-httptools", "hypercorn", "granian-asgi"]
)
def test_a_websocket_is_guarded_on_every_server(server: str) -> None:
    with served(server, "websocket_service:app", Path(__file__).parent) as running:
        url = f"{running.url.replace('http', 'ws')}/echo"
        key, narrow = (f"Bearer {running.printed[name]}" for name in ("key", "narrow"))
        with connect(url, additional_headers={"Authorization": key}, **LEISURELY) as opened:
            assert opened.recv() == "org_1"
            assert opened.response is not None
            if server != "granian-asgi":  # It sends none of an application's headers here.
                assert opened.response.headers["x-ratelimit-remaining"] == "9"
        for headers, status, code in (
            ({}, 401, "MISSING_AUTH"),
            ({"Authorization": narrow}, 403, "INSUFFICIENT_SCOPE"),
        ):
            with pytest.raises(InvalidStatus) as denied:
                connect(url, additional_headers=headers, **LEISURELY)
            response = denied.value.response
            assert response.status_code == status
            assert code in response.body.decode()
