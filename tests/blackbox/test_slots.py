"""Slots for concurrent jobs (D26): a timelapse holds one while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from .demo import JOBS, MODELS, PLANS, STATUS, Answer, Client, Demo, Face


@pytest.fixture(scope="module")
def demo(face: Face) -> Iterator[Demo]:
    """Each organization serves one test."""
    with Demo(face) as running:
        yield running


def start(client: Client, key: str, seconds: float = 600) -> Answer:
    return client.send("POST", JOBS, key=key, json_body={"kind": "timelapse", "seconds": seconds})


def id_of(started: Answer) -> str:
    body = started.is_ok(202).json()
    assert body.keys() == {"id", "kind", "status"}
    assert (body["kind"], body["status"]) == ("timelapse", "running")
    return str(body["id"])


def is_refused(answer: Answer, limit: int) -> None:
    answer.is_error(429, "CONCURRENT_LIMIT_EXCEEDED")
    assert answer.json() == {
        "error": f"Too many jobs at a time: {limit} of {limit} slots are taken; try again in 10 s.",
        "code": "CONCURRENT_LIMIT_EXCEEDED",
        "retryAfter": 10,
        "limits": {"type": "concurrent", "limit": limit, "used": limit},
    }
    assert answer.one("retry-after") == "10"
    assert answer.one("cache-control") == "no-store"
    assert answer.one("content-type") == "application/json"


def cancel(client: Client, key: str, job: str) -> Answer:
    return client.send("DELETE", f"{JOBS}/{job}", key=key)


def test_d26_one_too_many_is_refused_and_cancelling_makes_room(demo: Demo, client: Client) -> None:
    key = demo["free"].api_key
    first, second = (id_of(start(client, key)) for _ in range(2))
    refused = start(client, key)
    is_refused(refused, PLANS["free"]["concurrent"])
    assert (refused.limit, refused.remaining) == (10, 7)  # it counts as a request
    other = demo["creator"].api_key  # Spec 5.2 rule 5: to it, the job looks like none.
    cancel(client, other, first).is_error(404, "NOT_FOUND")
    client.get(f"{JOBS}/{first}", key=other).is_error(404, "NOT_FOUND")
    is_refused(start(client, key), 2)
    cancelled = cancel(client, key, first).is_ok().json()
    assert cancelled == {"id": first, "kind": "timelapse", "status": "cancelled"}
    third = id_of(start(client, key))
    listed = client.get(JOBS, key=key).is_ok().json()["data"]
    assert [(job["id"], job["status"]) for job in listed] == [
        (third, "running"),
        (second, "running"),
    ]
    cancel(client, key, first).is_error(404, "NOT_FOUND")
    status = client.get(STATUS, key=key).is_ok().json()
    assert status["limits"]["concurrent"] == 2
    assert status["usage"].keys() == {"minute", "hour", "day"}
    assert status["usage"]["minute"]["used"] == 9


def test_d26_slots_come_after_windows_scopes_and_bodies(demo: Demo, client: Client) -> None:
    org = demo["starter"]
    reader = client.create(org, scopes=["jobs:read"]).key
    for _ in range(PLANS["starter"]["concurrent"]):
        id_of(start(client, org.api_key))
    is_refused(start(client, org.api_key), 5)
    start(client, reader).is_error(403, "INSUFFICIENT_SCOPE")
    start(client, org.api_key, -1).is_error(400, "VALIDATION_ERROR")
    while (answer := client.get(MODELS, key=org.api_key)).remaining:
        answer.is_ok()
    refused = start(client, org.api_key).is_error(429, "RATE_LIMIT_EXCEEDED")
    assert refused.json()["limits"] == {"type": "minute", "limit": 30, "used": 30}


def test_a_job_that_ends_by_time_gives_its_slot_back_unasked(demo: Demo, client: Client) -> None:
    key = demo["creator"].api_key
    for _ in range(PLANS["creator"]["concurrent"] - 1):
        start(client, key).is_ok(202)
    # The last one is brief, unless the machine is so busy that it ends before the next request.
    seconds, began = 1.0, time.monotonic()
    brief, refused = id_of(start(client, key, seconds)), start(client, key)
    while refused.status == 202 and time.monotonic() - began >= seconds:
        cancel(client, key, id_of(refused)).is_ok()
        seconds, began = 5 * seconds, time.monotonic()
        brief, refused = id_of(start(client, key, seconds)), start(client, key)
    is_refused(refused, 10)
    time.sleep(seconds)  # the job's own time
    id_of(start(client, key))
    shown = client.get(f"{JOBS}/{brief}", key=key).is_ok().json()
    assert shown == {"id": brief, "kind": "timelapse", "status": "completed"}


BAD = [
    *(b'"seconds": -0.001', b'"seconds": 3600.5', b'"seconds": 1e999', b'"seconds": NaN'),
    *(b'"seconds": %s' % (b"9" * 400), b'"seconds": "5"', b'"seconds": null', b'"seconds": true'),
    *(b'"seconds": [5]', b'"job": "mine"', b'"kind": "Timelapse"', b'"kind": null'),
]


def test_a_job_that_cannot_be_is_refused_and_one_of_no_time_is_over_at_once(
    demo: Demo, client: Client
) -> None:
    key = demo["enterprise"].api_key
    for body in (*(b'{"kind": "timelapse", %s}' % field for field in BAD), b'["timelapse"]', b"{"):
        client.send("POST", JOBS, key=key, content=body).is_error(400, "VALIDATION_ERROR")
    done = id_of(start(client, key, 0))
    time.sleep(0.005)  # The shortest that a slot is taken for is a millisecond.
    assert client.get(f"{JOBS}/{done}", key=key).is_ok().json()["status"] == "completed"
