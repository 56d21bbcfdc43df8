"""The clients: each makes one call, with two retries."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from unittest import mock

from .service import PLAIN, Refused, serving

RETRIES: Final = 2


class Done(NamedTuple):
    """What a client did with one call."""

    slept: tuple[float, ...]
    """Seconds before each retry."""
    calls: int
    raised: str
    """The name of the error; empty: the call succeeded."""
    told: bool
    """Whether the error shows the message of the refusal."""

    def __str__(self) -> str:
        waits = [f"{seconds:,.0f} s" if seconds > 2 else "a moment" for seconds in self.slept]
        if self.calls - 1 > len(waits):
            waits = ["a moment", *waits]
        before = f"waits {' and '.join(waits)}, " if waits else "no retry: "
        if not self.raised:
            return f"{before}succeeds"
        told = "" if self.told else " without the message"
        verb = "returns" if self.raised.isdecimal() else "raises"
        return f"{before}{verb} {self.raised}{told}"


def _openai(url: str, key: str) -> str:
    from openai import OpenAI

    with OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=RETRIES) as client:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    return ""


def _anthropic(url: str, key: str) -> str:
    from anthropic import Anthropic

    with Anthropic(base_url=f"{url}/anthropic", api_key=key, max_retries=RETRIES) as client:
        said: Any = [{"role": "user", "content": "hi"}]
        client.messages.create(model="m", max_tokens=9, messages=said)
    return ""


def _urllib3(url: str, key: str) -> str:
    from urllib3 import PoolManager, Retry

    retry = Retry(
        RETRIES,
        allowed_methods=None,
        status_forcelist=[429, 503],
        backoff_factor=0.5,
        raise_on_status=False,
    )
    with PoolManager(retries=retry) as pool:
        headers = {"authorization": f"Bearer {key}"}
        response = pool.request("POST", url + PLAIN, headers=headers, timeout=60)
        return "" if response.status == 200 else _shown(response.status, response.data.decode())


def _httpx(url: str, key: str) -> str:
    import httpx
    from httpx_retries import Retry, RetryTransport

    retry = Retry(total=RETRIES, allowed_methods=["POST"], backoff_factor=0.5)
    with httpx.Client(transport=RetryTransport(retry=retry), timeout=60) as client:
        response = client.post(url + PLAIN, headers={"authorization": f"Bearer {key}"})
        return "" if response.is_success else _shown(response.status_code, response.text)


class _Status(Exception):
    """A status that a client returns, rather than raises."""


def _shown(status: int, text: str) -> str:
    raise _Status(f"{status} {text}")


CLIENTS: Final[Mapping[str, Callable[[str, str], str]]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "urllib3 Retry": _urllib3,
    "httpx-retries": _httpx,
}
MODULES: Final = ("openai", "anthropic", "urllib3", "httpx_retries")


@contextmanager
def sleeping(move: Callable[[float], object]) -> Iterator[list[float]]:
    """Move a clock by what this thread sleeps, in no time."""
    slept: list[float] = []
    real, mine = time.sleep, threading.get_ident()

    def sleep(seconds: float) -> None:
        if threading.get_ident() != mine:
            real(seconds)
            return
        slept.append(seconds)
        move(seconds)

    with mock.patch("time.sleep", sleep):
        yield slept


def call(client: str, refused: Refused) -> Done:
    """Make one call of a client that is refused."""
    with serving(refused) as (service, url):
        raised, message = "", ""
        with sleeping(service.clock.move) as slept:
            try:
                CLIENTS[client](url, service.key)
            except _Status as status:
                message = str(status)
                raised = message[:3]
            except Exception as error:
                raised, message = type(error).__name__, str(error)
        words = ("again in", "never admitted", "well-formed", "lacks", "try again", "unavailable")
        return Done(tuple(slept), service.calls, raised, any(word in message for word in words))
