"""The host's own word on a registration: asked in time, in a thread, and never half obeyed."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from lockgate import RegistrationRequest, run
from lockgate.errors import (
    InvalidRequest,
    RateLimitExceeded,
    RegistrationRefused,
    RegistrationUnavailable,
    StoreUnavailable,
)
from lockgate.services.accounts.approval import PROOF_LENGTH

from ..bench import Hooked
from .accounting import ADDRESS, EMAIL, Office


def register(office: Office, **fields: Any) -> Any:
    arguments = {"address": ADDRESS, **fields}
    return run(office.accounts.register("an agent", EMAIL, **arguments))


def registered(office: Office) -> int:
    return len(run(office.store.unclaimed_by_email(EMAIL, 99)))


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_d13_the_host_decides_by_the_registration_request(kind: str, answer: bool) -> None:
    asked: list[RegistrationRequest] = []

    def plain(request: RegistrationRequest) -> bool:
        asked.append(request)
        return answer

    async def awaited(request: RegistrationRequest) -> bool:
        await asyncio.sleep(0)
        return plain(request)

    office = Office(approve=plain if kind == "plain" else awaited)
    flow = office.accounts.register(
        " bot ", "ADA@example.com", "company", "Ada & Co", address=ADDRESS, proof="a token"
    )
    if answer:
        assert run(flow).account.agent_name == "bot"
    else:
        with pytest.raises(RegistrationRefused):
            run(flow)
    assert asked == [RegistrationRequest("bot", EMAIL, "company", "Ada & Co", ADDRESS, "a token")]
    assert registered(office) == answer
    assert "token" not in repr(asked) and EMAIL not in repr(asked)


class Wrong(Exception):
    """A mistake of the host's."""


def _exits(_: RegistrationRequest) -> bool:
    raise SystemExit


def _raises(_: RegistrationRequest) -> bool:
    raise Wrong("the host's own words")


_RELEASED = threading.Event()


def _hangs(_: RegistrationRequest) -> bool:
    return _RELEASED.wait(60)


@pytest.mark.parametrize(
    "approve",
    [_raises, _exits, _hangs, lambda _: None, lambda _: 1, lambda: True],
    ids=["raises", "exits", "hangs", "forgets to return", "another type", "another signature"],
)
def test_g7_a_hook_that_fails_is_logged_with_its_traceback(
    approve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """503, no account, its traceback in the log, and no event about a store."""
    _RELEASED.clear()
    # Only the hook that hangs has to be left behind; a busy machine may take long to call another.
    office = Office(approve=approve, approve_timeout=0.05 if approve is _hangs else 60)
    try:
        with caplog.at_level(logging.WARNING, "lockgate"), pytest.raises(RegistrationUnavailable):
            register(office)
    finally:
        _RELEASED.set()
    assert registered(office) == 0
    assert office.names() == ["approval_failed"]
    (record, _) = caplog.records
    assert record.exc_info is not None
    if approve is _raises:
        assert "the host's own words" in caplog.text and "_raises" in caplog.text


def test_an_unapproved_registration_is_charged_to_the_address_only() -> None:
    """A stranger without proof spends neither an owner's e-mail budget nor the service's."""
    office = Office(approve=lambda asked: asked.proof == "good", per_address=3, per_service=1)
    for _ in range(3):
        with pytest.raises(RegistrationRefused):
            register(office, address="198.51.100.1", proof="bad")
    with pytest.raises(RateLimitExceeded):
        register(office, address="198.51.100.1", proof="good")
    register(office, proof="good")


def test_a_registration_over_a_budget_is_not_put_to_the_host() -> None:
    asked: list[RegistrationRequest] = []

    def approve(request: RegistrationRequest) -> bool:
        asked.append(request)
        return True

    limits: list[dict[str, Any]] = [{"per_address": 1}, {"per_email": 1}, {"per_service": 1}]
    for one in limits:
        office = Office(approve=approve, **one)
        asked.clear()
        register(office)
        with pytest.raises(RateLimitExceeded):
            register(office)
        assert len(asked) == 1


def test_an_invalid_registration_is_not_put_to_the_host() -> None:
    wrong = ("", "x" * (PROOF_LENGTH + 1), "\u00e9", "a\nb", "\ud800", "\0")
    office, without_hook = Office(approve=_raises), Office()
    for asked, proof in (*((office, proof) for proof in wrong), (without_hook, "x")):
        with pytest.raises(InvalidRequest) as caught:
            register(asked, proof=proof)
        assert [problem.field for problem in caught.value.problems] == ["proof"]
    with pytest.raises(RegistrationUnavailable):
        register(office, proof="x" * PROOF_LENGTH)


async def test_g5_a_hook_that_blocks_keeps_no_event_loop_waiting() -> None:
    release = threading.Event()

    def approve(_: RegistrationRequest) -> bool:
        return release.wait(60)

    office = Office(approve=approve, approve_timeout=60)
    flow = asyncio.create_task(office.accounts.register("bot", EMAIL, address=ADDRESS))
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not flow.done()
    release.set()
    assert (await flow).account.billing_email == EMAIL


def test_a_store_that_fails_after_the_approval_stores_nothing() -> None:
    office = Office(Hooked().failing("register"), approve=lambda _: True)
    with pytest.raises(StoreUnavailable, match="credentials"):
        register(office)
    assert registered(office) == 0
