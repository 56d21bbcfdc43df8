"""Processes on one store share keys, windows and slots (D5, D6, W1, L1, L3)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from .demo import JOBS, MODELS, PLANS, Answer, Demo, Face, at_once
from .test_slots import cancel, id_of, is_refused, start

LEASE = 5.0
"""Seconds after which the slots of a demo that was killed are back."""


@contextmanager
def two_on_one_store(face: Face, directory: Path) -> Iterator[tuple[Demo, Demo]]:
    if face.store == "memory://":
        pytest.skip("memory is not shared")
    shared = replace(face, store=face.store.replace("{directory}", str(directory)))
    flask = replace(shared, framework="flask", other_server="")
    with Demo(shared) as one, Demo(flask) as other:
        yield one, other


@pytest.fixture(scope="module")
def two(face: Face, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Demo, Demo]]:
    with two_on_one_store(face, tmp_path_factory.mktemp("shared")) as both:
        yield both


def test_l1_two_processes_share_the_slots(two: tuple[Demo, Demo]) -> None:
    one, other = two
    key = one["creator"].api_key

    def many(index: int) -> list[Answer]:
        with two[index % 2].client() as apart:
            return [start(apart, key) for _ in range(2)]

    answers = [answer for part in at_once(8, many) for answer in part]
    admitted = [id_of(answer) for answer in answers if answer.status == 202]
    assert len(admitted) == len(set(admitted)) == PLANS["creator"]["concurrent"]
    for answer in answers:
        if answer.status != 202:
            is_refused(answer, 10)
    with one.client() as client, other.client() as elsewhere:
        for job in admitted[:2]:
            cancel(elsewhere, key, job).is_ok()  # one of them was started by the other
            client.get(f"{JOBS}/{job}", key=key).is_error(404, "NOT_FOUND")
        assert [start(client, key).status for _ in range(3)] == [202, 202, 429]


def test_w1_two_processes_share_the_windows(two: tuple[Demo, Demo]) -> None:
    one, other = two
    key, limit = one["free"].api_key, PLANS["free"]["rpm"]
    with one.client() as client, other.client() as elsewhere:
        turns = [client, elsewhere] * (limit // 2)
        left = [speaking.get(MODELS, key=key).is_ok().remaining for speaking in turns]
        assert left == list(range(limit))[::-1]
        for speaking in turns:
            speaking.get(MODELS, key=key).is_error(429, "RATE_LIMIT_EXCEEDED")


def test_d5_a_key_that_both_know_is_revoked_for_both(two: tuple[Demo, Demo]) -> None:
    one, other = two
    org = one["enterprise"]
    with one.client() as client, other.client() as elsewhere:
        created = client.create(org)
        for speaking in (client, elsewhere, client, elsewhere):
            speaking.get(MODELS, key=created.key).is_ok()
        assert elsewhere.read(org, created.id)["requestCount"] == 4  # D6
        client.revoke(org, created.id)
        for speaking in (elsewhere, client, elsewhere):
            speaking.get(MODELS, key=created.key).is_error(401, "KEY_REVOKED")


@pytest.mark.campaign
def test_l3_slots_of_a_killed_demo_become_free(face: Face, tmp_path: Path) -> None:
    with two_on_one_store(face, tmp_path) as (one, other), other.client() as client:
        key = one["free"].api_key
        with one.client() as before:
            id_of(start(before, key))
            id_of(start(before, key))
        time.sleep(LEASE + 1)
        is_refused(start(client, key), 2)  # renewed meanwhile
        one.crash()
        time.sleep(LEASE + 1)
        id_of(start(client, key))
        id_of(start(client, key))
        is_refused(start(client, key), 2)
