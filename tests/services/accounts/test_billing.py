"""Billing: whatever the provider does, registration goes on, in time (D13)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lockgate import Event, run
from lockgate.core.accounts import Account
from lockgate.events import Events
from lockgate.services.accounts.billing import Billing

ACCOUNT = Account("org_1", "an agent", "ada@example.com", None, "handle", "sha256", b"", None, 0)
DASHBOARD = "https://console.example.com"
CHECKOUT = "https://pay.example.com/c/1?a=b"


class Provider:
    def __init__(self, answer: Callable[[Account], Any]) -> None:
        self._answer = answer

    def billing_url(self, account: Account) -> str | Awaitable[str]:
        answer: str | Awaitable[str] = self._answer(account)
        return answer


def billing(provider: Any, told: list[Event] | None = None, timeout: float = 60) -> Billing:
    return Billing(provider, timeout, DASHBOARD, Events(None if told is None else told.append))


def raising(failure: BaseException) -> Callable[[Account], Any]:
    def answer(_: Account) -> Any:
        raise failure

    return answer


async def awaiting(_: Account) -> str:
    await asyncio.sleep(0)
    return CHECKOUT


def test_without_a_billing_provider_the_url_is_the_dashboard() -> None:
    assert run(billing(None).url(ACCOUNT)) == DASHBOARD


@pytest.mark.parametrize("answer", [lambda _: CHECKOUT, awaiting], ids=["plain", "async"])
def test_a_provider_is_asked_in_both_colours(answer: Callable[[Account], Any]) -> None:
    mine = billing(Provider(answer))
    assert run(mine.url(ACCOUNT)) == CHECKOUT
    assert asyncio.run(mine.url(ACCOUNT)) == CHECKOUT


def test_a_billing_provider_gets_the_account() -> None:
    given: list[Account] = []
    run(billing(Provider(given.append)).url(ACCOUNT))
    assert given == [ACCOUNT]


@pytest.mark.parametrize(
    "garbage",
    [
        None,
        b"https://pay.example.com",
        7,
        "",
        "pay.example.com",
        "javascript:alert(1)",
        "data:text/html,x",
        "ftp://pay.example.com",
        "https://",
        "https:///path",
        "https://pay.example.com/\r\nSet-Cookie: a=b",
        "https://pay.example.com/a b",
        "https://p\u00e4y.example.com/",
        "https://pay.example.com/" + "x" * 2048,
        "https://[",
    ],
)
def test_garbage_becomes_the_dashboard_and_an_event(garbage: object) -> None:
    told: list[Event] = []
    assert run(billing(Provider(lambda _: garbage), told).url(ACCOUNT)) == DASHBOARD
    assert [event.name for event in told] == ["billing_failed"]
    assert told[0].fields["organization"] == "org_1"


@pytest.mark.parametrize(
    "failure", [OSError("no route"), TimeoutError(), SystemExit(3), KeyboardInterrupt()]
)
def test_the_url_falls_back_when_the_billing_provider_raises(failure: BaseException) -> None:
    told: list[Event] = []
    mine = billing(Provider(raising(failure)), told)
    assert run(mine.url(ACCOUNT)) == DASHBOARD
    assert asyncio.run(mine.url(ACCOUNT)) == DASHBOARD
    assert [event.name for event in told] == ["billing_failed"] * 2
    assert "no route" not in repr(told)


def test_a_provider_that_hangs_is_left_behind_and_no_more_than_16_are() -> None:
    go = threading.Event()
    told: list[Event] = []
    mine = billing(Provider(lambda _: go.wait(60)), told, timeout=0.02)
    try:
        others = set(threading.enumerate())
        began = time.monotonic()
        for _ in range(16):
            assert run(mine.url(ACCOUNT)) == DASHBOARD
        assert asyncio.run(mine.url(ACCOUNT)) == DASHBOARD
        assert time.monotonic() - began < 30
        started = set(threading.enumerate()) - others
        assert [thread.name for thread in started].count("lockgate-billing") == 16
        assert [event.fields["error"] for event in told] == ["TimeoutError"] * 17
    finally:
        go.set()


def test_a_blocking_billing_provider_does_not_block_the_event_loop() -> None:
    go = threading.Event()
    mine = billing(Provider(lambda _: go.wait(60) and CHECKOUT))

    async def both() -> str:
        url = asyncio.ensure_future(mine.url(ACCOUNT))
        await asyncio.sleep(0)
        go.set()  # Never reached if the loop waited for the provider.
        return await url

    assert asyncio.run(both()) == CHECKOUT
