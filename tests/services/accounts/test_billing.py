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


async def awaiting(_: Account) -> str:
    await asyncio.sleep(0)
    return CHECKOUT


def test_without_a_billing_provider_the_url_is_the_dashboard() -> None:
    assert run(billing(None).url(ACCOUNT)) == DASHBOARD


@pytest.mark.parametrize("answer", [lambda _: CHECKOUT, awaiting], ids=["plain", "async"])
def test_a_provider_is_asked_for_the_account_in_both_modes(answer: Any) -> None:
    given: list[Account] = []

    def asked(account: Account) -> Any:
        given.append(account)
        return answer(account)

    mine = billing(Provider(asked))
    assert run(mine.url(ACCOUNT)) == CHECKOUT
    assert asyncio.run(mine.url(ACCOUNT)) == CHECKOUT
    assert given == [ACCOUNT] * 2


@pytest.mark.parametrize(
    "garbage",
    [
        *(None, b"https://pay.example.com", 7, "", "pay.example.com", "javascript:alert(1)"),
        *("data:text/html,x", "ftp://pay.example.com", "https://", "https:///path", "https://["),
        *("https://pay.example.com/\r\nSet-Cookie: a=b", "https://pay.example.com/a b"),
        *("https://p\u00e4y.example.com/", "https://pay.example.com/" + "x" * 2048),
        *(OSError("no route"), TimeoutError(), SystemExit(3), KeyboardInterrupt()),
    ],
    ids=lambda value: f"{value!r:.40}",
)
def test_garbage_or_a_failure_becomes_the_dashboard_and_an_event(garbage: object) -> None:
    told: list[Event] = []

    def answer(_: Account) -> Any:
        if isinstance(garbage, BaseException):
            raise garbage
        return garbage

    mine = billing(Provider(answer), told)
    assert run(mine.url(ACCOUNT)) == DASHBOARD
    assert asyncio.run(mine.url(ACCOUNT)) == DASHBOARD
    assert [event.name for event in told] == ["billing_failed"] * 2
    assert told[0].fields["organization"] == "org_1"
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
