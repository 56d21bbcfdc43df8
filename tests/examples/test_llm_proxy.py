"""The proxy for language models meters each request, however it ends, and answers with 429."""

from __future__ import annotations

import asyncio
import json
import runpy
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from itertools import count
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any, NamedTuple

import httpx
import pytest
from openai import BadRequestError, InternalServerError, OpenAI, RateLimitError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from lockgate import Gate, run
from tests.patience import SECONDS, until
from tests.web import serving

from .secrets_of_examples import SECRETS
from .test_servers import EXAMPLES, Running, served

PATH = "/v1/chat/completions"
FAILURES = {"fail": 500, "refuse": 400}
_numbers = count()


class Upstream:
    """A fake service of models: the last word of a prompt is the number of tokens that it answers,
    or ``fail``, ``refuse``, ``wait`` or ``endless``."""

    def __init__(self) -> None:
        self.waits, self.goes_on = threading.Event(), threading.Event()
        self.asked: dict[str, Any] = {}
        self.app = Starlette(routes=[Route(PATH, self.complete, methods=["POST"])])

    async def complete(self, request: Request) -> Response:
        self.asked = body = await request.json()
        content = body["messages"][-1]["content"]
        words = (content if isinstance(content, str) else content[0]["text"]).split()
        if words[-1] in FAILURES:
            return JSONResponse({"error": "a secret of the model"}, FAILURES[words[-1]])
        if words[-1] == "wait":
            self.waits.set()
            await asyncio.to_thread(self.goes_on.wait, SECONDS)
        number = int(words[-1]) if words[-1].isdigit() else 100_000
        most = body.get("max_completion_tokens") or body["max_tokens"]
        usage = {"prompt_tokens": len(words), "completion_tokens": min(number, most)}
        if not body.get("stream"):
            return JSONResponse({"choices": [], "usage": usage})
        return StreamingResponse(self.parts(number, usage), media_type="text/event-stream")

    async def parts(self, number: int, usage: dict[str, int]) -> AsyncIterator[str]:
        for place in range(number):
            yield f"data: {json.dumps({'choices': [{'delta': {'content': str(place)}}]})}\n\n"
            await asyncio.sleep(0)
        yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n"


class Proxy:
    """The served example, asked with the key of a plan ``pro`` unless another one is given."""

    def __init__(self, running: Running, upstream: Upstream, key: str, mini: str) -> None:
        self.upstream = upstream
        self.log = running.log
        self.address = httpx.URL(running.url)
        self.key, self.mini = key, mini
        self.client = running.client({"Authorization": f"Bearer {self.key}"})

    def ask(self, prompt: str, key: str | None = None, **fields: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key or self.key}"}
        return self.client.post(PATH, json=body(prompt, **fields), headers=headers)

    def used(self, key: str | None = None) -> dict[str, tuple[int, int]]:
        """Return the units used, and those held, of the limits that have any."""
        headers = {"Authorization": f"Bearer {key or self.key}"}
        while (answer := self.client.get("/v1/usage", headers=headers)).status_code == 503:
            sleep(0.2)  # A busy machine holds up the file of the store.
        assert answer.status_code == 200, answer.text
        found = {row["name"]: (row["used"] - row["held"], row["held"]) for row in answer.json()}
        return {name: pair for name, pair in found.items() if any(pair)}

    def settled(self, key: str | None = None) -> dict[str, int]:
        """Wait until no units are held, and return those used."""

        def is_settled() -> bool:
            sleep(0.2)  # Each look is a request of the minute.
            return not any(held for _, held in self.used(key).values())

        until(is_settled)
        return {name: used for name, (used, _) in self.used(key).items()}

    def leaving(self, prompt: str, **fields: Any) -> socket.socket:
        """Send a request on a connection that the test closes."""
        text = json.dumps(body(prompt, **fields))
        connection = socket.create_connection((self.address.host, self.address.port), SECONDS)
        connection.sendall(
            f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()
        )
        return connection


def body(prompt: str, **fields: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": "gpt-4.1", "max_tokens": 1000}
    return {**asked, "messages": [{"role": "user", "content": prompt}], **fields}


def units(requests: int, input: int, output: int, model: str = "gpt-4-1") -> dict[str, int]:
    """Return these units of a model and of the month, without zeros."""
    all = {
        f"{model}-requests": requests,
        f"{model}-input-tokens": input,
        f"{model}-output-tokens": output,
        "pro-tokens-a-month": input + output,
    }
    return {name: number for name, number in all.items() if number}


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """Return the error of a body in the form of OpenAI."""
    body = answer.json()
    assert list(body) == ["error"]
    error: dict[str, Any] = body["error"]
    assert error.keys() >= {"message", "type", "param", "code"}
    return error


class Service(NamedTuple):
    """The served example, for all tests, which have organizations of their own."""

    gate: Gate
    running: Running
    upstream: Upstream


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    upstream = Upstream()
    with (
        pytest.MonkeyPatch.context() as patch,
        TemporaryDirectory() as folder,
        serving.served(upstream.app) as (host, port),
    ):
        patch.setenv("LOCKGATE_STORE", f"sqlite:///{folder}/keys.db?mode=rwc")
        patch.setenv("LOCKGATE_PEPPER", SECRETS["LOCKGATE_PEPPER"])
        patch.setenv("LLM_URL", f"http://{host}:{port}")
        gate = runpy.run_path(str(EXAMPLES / "llm_proxy.py"))["gate"]
        run(gate.ready())
        with served("uvicorn-h11", "llm_proxy:app") as running:
            yield Service(gate, running, upstream)
        run(gate.close())


@pytest.fixture
def proxy(service: Service) -> Proxy:
    gate, running, upstream = service
    upstream.waits.clear()
    upstream.goes_on.clear()
    number = next(_numbers)
    run(gate.organizations.place(f"pro {number}", "pro"))
    key = run(gate.keys.create(f"pro {number}", "all", scopes=["chat:*"])).text
    mini = run(gate.keys.create(f"mini {number}", "mini", scopes=["chat:gpt-4-1-mini"])).text
    return Proxy(running, upstream, key, mini)


def test_each_answer_is_metered_and_what_does_not_fit_is_refused(proxy: Proxy) -> None:
    answer = proxy.ask("hello 7")
    assert answer.json()["usage"] == {"prompt_tokens": 2, "completion_tokens": 7}
    assert proxy.settled() == units(1, 2, 7)
    streamed = proxy.ask("hello there 20", stream=True)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert streamed.text.count("delta") == 20
    assert streamed.text.endswith("data: [DONE]\n\n")
    assert proxy.settled() == units(2, 5, 27)
    assert error_of(proxy.ask("fail", stream=True))["code"] == "MODEL_FAILED"
    assert proxy.ask("fail").status_code == 502
    assert proxy.settled() == units(4, 5, 27)
    large = proxy.ask("3800", max_tokens=4096)
    assert large.json()["usage"]["completion_tokens"] == 3800
    assert proxy.ask("4096", max_tokens=None, stream=True).status_code == 200
    refused = proxy.ask("1", max_tokens=None, stream=True)
    assert refused.status_code == 429
    assert error_of(refused)["limits"]["name"] == "gpt-4-1-output-tokens"


def test_a_model_takes_its_scope_and_has_its_own_limits(proxy: Proxy) -> None:
    assert error_of(proxy.ask("1", proxy.mini))["code"] == "INSUFFICIENT_SCOPE"
    assert proxy.ask("1", proxy.mini, model="gpt-4.1-mini").status_code == 200
    assert proxy.settled(proxy.mini) == {
        "gpt-4-1-mini-requests": 1,
        "gpt-4-1-mini-input-tokens": 1,
        "gpt-4-1-mini-output-tokens": 1,
        "starter-tokens-a-month": 2,
    }
    assert proxy.ask("1", model="gpt-5").status_code == 400
    assert error_of(proxy.ask("1", max_tokens=-1))["code"] == "VALIDATION_ERROR"
    statuses = [proxy.ask("1").status_code for _ in range(12)]
    assert statuses == [200] * 10 + [429] * 2
    assert proxy.settled() == units(10, 10, 10)


def test_the_sdk_of_openai_reads_answers_and_refusals(proxy: Proxy) -> None:
    said: Any = [{"role": "user", "content": "hello 3"}]
    ask: Any = {"model": "gpt-4.1", "messages": said, "max_tokens": 9}
    with OpenAI(base_url=f"{proxy.address}/v1", api_key=proxy.key, max_retries=0) as client:
        create: Any = client.chat.completions.create
        assert create(**ask).usage.completion_tokens == 3
        parts = list(create(**ask, stream=True))
        assert [part.choices[0].delta.content for part in parts] == ["0", "1", "2"]
        *_, last = create(**ask, stream=True, stream_options={"include_usage": True})
        assert (last.choices, last.usage.completion_tokens) == ([], 3)
        with pytest.raises(InternalServerError) as failed:
            create(**{**ask, "messages": [{"role": "user", "content": "fail"}]})
        assert (failed.value.status_code, failed.value.code) == (502, "MODEL_FAILED")
        assert "127.0.0.1 failed: status 500" in proxy.log.read_text()
        assert "secret" not in str(failed.value) + proxy.log.read_text()
        with pytest.raises(BadRequestError) as invalid:
            create(**{**ask, "messages": [{"role": "user", "content": "refuse"}]})
        assert (invalid.value.code, invalid.value.param) == ("VALIDATION_ERROR", None)
        for _ in range(5):
            create(**ask)
        with pytest.raises(RateLimitError, match="for 'gpt-4-1-requests'") as full:
            create(**ask)
        assert full.value.code == "RATE_LIMIT_EXCEEDED"


def test_fields_of_a_request_are_passed_on_and_each_bound_of_an_answer_is_honoured(
    proxy: Proxy,
) -> None:
    parts = [{"type": "text", "text": "hello 5"}, {"type": "image_url", "image_url": {"url": "u"}}]
    fields: dict[str, Any] = {
        "messages": [{"role": "user", "content": parts, "name": "ada"}],
        "temperature": 0.5,
        "tools": [{"type": "function", "function": {"name": "look"}}],
        "max_completion_tokens": 4,
    }
    asked = {"model": "gpt-4.1", **fields}
    headers = {"Authorization": f"Bearer {proxy.key}"}
    answer = proxy.client.post(PATH, json=asked, headers=headers)
    assert answer.json()["usage"]["completion_tokens"] == 4
    assert proxy.upstream.asked == asked
    proxy.ask("hello 1", max_tokens=100_000)
    assert proxy.upstream.asked["max_tokens"] == 4096
    proxy.settled()
    proxy.ask("hello 1", max_tokens=1500, n=2)
    assert proxy.upstream.asked["max_tokens"] == 1500
    proxy.settled()
    proxy.ask("hello 1", max_tokens=None)
    assert proxy.upstream.asked["max_tokens"] == 4096
    assert error_of(proxy.ask("1", n=9))["code"] == "VALIDATION_ERROR"


def test_a_plan_has_requests_a_minute_of_all_models(proxy: Proxy) -> None:
    answers = [proxy.ask("1", proxy.mini, model="none") for _ in range(61)]
    assert {answer.status_code for answer in answers[:60]} == {400}
    error = error_of(answers[60])
    assert (answers[60].status_code, error["type"]) == (429, "requests")
    assert (error["limits"]["type"], error["limits"]["limit"]) == ("minute", 60)
    assert proxy.used(proxy.mini) == {}


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_before_the_answer_pays_its_prompt_at_once(
    proxy: Proxy, stream: bool
) -> None:
    with proxy.leaving("please wait", stream=stream):
        assert proxy.upstream.waits.wait(SECONDS)
        assert proxy.used()["gpt-4-1-output-tokens"] == (0, 1000)
    try:
        assert proxy.settled() == units(1, 11, 0)
    finally:
        proxy.upstream.goes_on.set()


def test_a_client_that_leaves_in_the_middle_pays_what_it_was_sent(proxy: Proxy) -> None:
    with proxy.leaving("endless", stream=True) as connection:
        assert connection.recv(100)
        until(lambda: b"data: " in connection.recv(65536))
    used = proxy.settled()
    assert used["gpt-4-1-output-tokens"] > 0
    assert used["gpt-4-1-requests"] == 1
