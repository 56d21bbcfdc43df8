"""A store that outlives the process: keys, revocations, counts and windows are still there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from .demo import MODELS, STATUS, Demo, Face


def test_a_restart_keeps_keys_usage_and_revocations(face: Face, tmp_path: Path) -> None:
    if face.store == "memory://":
        pytest.skip("memory forgets")
    kept = replace(face, store=face.store.replace("{directory}", str(tmp_path)))
    with Demo(kept) as before, before.client() as client:
        free, starter = before["free"], before["starter"]
        gone = client.create(starter, name="gone")
        client.revoke(starter, gone.id)
        for _ in range(6):
            client.get(MODELS, key=free.api_key).is_ok()
        assert client.read(free, client.keys(free)[0]["id"])["requestCount"] == 6
    with Demo(kept) as after, after.client() as client:
        status = client.get(STATUS, key=free.api_key).is_ok().json()
        assert status["usage"]["hour"]["used"] == 9  # 6, two to read the count, and this one
        assert client.keys(free)[0]["requestCount"] == 7
        client.get(MODELS, key=gone.key).is_error(401, "KEY_REVOKED")
        client.get(MODELS, key=starter.api_key).is_ok()
