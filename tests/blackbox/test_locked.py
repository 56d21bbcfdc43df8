"""An SQLite file that another process has locked: waiting requests get 503 at their deadline."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx

from lockgate.sessions import SESSION_COOKIE

from .demo import KEYS, RATE_HEADERS, Demo, Face


def test_a_call_that_waits_for_a_locked_file_gets_503_and_the_demo_stops(tmp_path: Path) -> None:
    # SQLite would wait for a minute, and a busy machine needs less than three seconds to start.
    face = Face("flask", f"sqlite:///{tmp_path}/demo.db?timeout=60&mode=rwc", deadline=3)
    with (
        Demo(face) as demo,
        closing(sqlite3.connect(tmp_path / "demo.db", isolation_level=None)) as holder,
        ThreadPoolExecutor(1) as pool,
    ):
        org = demo["enterprise"]
        holder.execute("BEGIN EXCLUSIVE")

        def create() -> httpx.Response:
            cookies = {"Cookie": f"{SESSION_COOKIE}={org.session_cookie}"}
            body = {"name": "late"}
            return httpx.post(demo.base_url + KEYS, json=body, headers=cookies, timeout=60)

        waiting = pool.submit(create)
        while "limits_fell_back mode='local'" not in demo.stderr:  # It waits from here on.
            assert not waiting.done(), waiting.result()
            time.sleep(0.02)
        assert demo.stop() == 0, demo.stderr
        answer = waiting.result()
        assert answer.status_code == 503
        body, headers = answer.json(), answer.headers
        assert body.keys() == {"error", "code", "retryAfter"}
        assert body["code"] == "STORE_UNAVAILABLE"
        assert body["retryAfter"] == 1
        assert "retry-after" not in headers
        assert [headers[name] for name in RATE_HEADERS[:2]] == ["100000", "99999"]
        assert "Traceback" not in demo.stderr
