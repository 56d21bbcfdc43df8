"""The proxy of `docs/llm.md`, called by the SDK of OpenAI: streams, refusals, tokens a month."""

import asyncio
import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import httpx
import httpx2
import openai
import pytest
from openai import AsyncOpenAI

from lockgate import run
from tests.docs.blocks import ROOT, run_python

MESSAGES: Any = [{"role": "user", "content": "Hello"}]
CHUNK = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "any"}
USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}


def model(request: httpx.Request) -> httpx.Response:
    """Stream a word and the usage; fail where no stream is asked for."""
    if not json.loads(request.content)["stream"]:
        return httpx.Response(500)
    word = {**CHUNK, "choices": [{"index": 0, "delta": {"content": "Hi"}}]}
    events = [json.dumps(part) for part in (word, {**CHUNK, "choices": [], "usage": USAGE})]
    text = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])
    return httpx.Response(200, text=text, headers={"Content-Type": "text/event-stream"})


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    module: ModuleType = run_python(ROOT / "docs" / "llm.md", monkeypatch)
    transport = httpx.MockTransport(model)
    module.__dict__["upstream"] = httpx.AsyncClient(transport=transport, base_url="http://model")
    yield module
    run(module.gate.close())


def client_of(page: Any, key: str) -> AsyncOpenAI:
    client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=page.app))
    return AsyncOpenAI(base_url="http://proxy/v1", api_key=key, http_client=client, max_retries=0)


def used(page: Any) -> tuple[int, int]:
    rows = run(page.gate.holds.usage("org_2"))
    (month,) = (row for row in rows if row.limit == page.MONTHS["starter"])
    return month.used, month.held


def test_a_stream_settles_the_tokens_that_the_model_tells(page: Any) -> None:
    key = run(page.gate.keys.create("org_2", "ci", ["chat:*"])).text

    async def words() -> list[str | None]:
        completions = client_of(page, key).chat.completions
        stream = await completions.create(model="any", messages=MESSAGES, stream=True)
        return [part.choices[0].delta.content async for part in stream if part.choices]

    assert asyncio.run(words()) == ["Hi"]
    assert used(page) == (12, 0)


def test_the_sdk_raises_what_the_page_says(page: Any) -> None:
    key = run(page.gate.keys.create("org_2", "ci", ["chat:*"])).text
    none = run(page.gate.keys.create("org_2", "no scope", ["chat:read"])).text

    async def refusal(text: str) -> tuple[str, str | None]:
        with pytest.raises(openai.APIStatusError) as raised:
            await client_of(page, text).chat.completions.create(model="any", messages=MESSAGES)
        return type(raised.value).__name__, raised.value.code

    assert asyncio.run(refusal("wrong")) == ("AuthenticationError", "INVALID_FORMAT")
    assert asyncio.run(refusal(none)) == ("PermissionDeniedError", "INSUFFICIENT_SCOPE")
    assert asyncio.run(refusal(key)) == ("InternalServerError", "MODEL_FAILED")
    assert used(page) == (0, 0)
    run(page.gate.charge("org_2", {page.MONTHS["starter"]: 999_990}))
    assert asyncio.run(refusal(key)) == ("RateLimitError", "RATE_LIMIT_EXCEEDED")


@pytest.mark.parametrize("away", [False, True])
def test_a_stream_whose_model_fails_raises_and_uses_nothing(page: Any, away: bool) -> None:
    """It is known before the status of the response is sent."""
    answers: list[httpx.Response] = []

    def failing(request: httpx.Request) -> httpx.Response:
        if away:
            raise httpx.ConnectError("refused", request=request)
        answers.append(httpx.Response(500, stream=httpx.ByteStream(b"overloaded")))
        return answers[-1]

    key = run(page.gate.keys.create("org_2", "ci", ["chat:*"])).text
    assert asyncio.run(refused(page, key, failing, stream=True)) == "MODEL_FAILED"
    assert [answer.is_closed for answer in answers] == ([] if away else [True])
    assert used(page) == (0, 0)


@pytest.mark.parametrize("asked", [{}, {"max_tokens": 100}, {"max_completion_tokens": 100}])
def test_every_field_that_raises_the_output_is_held_and_bounded(
    page: Any, asked: dict[str, int]
) -> None:
    calls: list[dict[str, Any]] = []

    async def model(request: httpx.Request) -> httpx.Response:
        rows = await page.gate.holds.usage("org_2")
        calls.append({**json.loads(request.content), "held": sum(row.held for row in rows)})
        return httpx.Response(500)

    key = run(page.gate.keys.create("org_2", "ci", ["chat:*"])).text
    assert asyncio.run(refused(page, key, model, n=8, **asked)) == "MODEL_FAILED"
    (call,) = calls
    prompt = len(json.dumps(MESSAGES)) // 3
    sent = {name: call[name] for name in call if name.startswith("max_")}
    assert sent == (asked or {"max_tokens": 1024})
    assert call["held"] == prompt + 8 * sum(sent.values())
    for beyond in ({"max_tokens": 4097}, {"max_completion_tokens": 100_000}, {"n": 9}):
        assert asyncio.run(refused(page, key, model, **beyond)) == "VALIDATION_ERROR"
    assert calls == [call]


async def refused(page: Any, key: str, model: Any, **asked: Any) -> str | None:
    """Return the code that the SDK raises while the upstream is this model."""
    transport = httpx.MockTransport(model)
    page.upstream = httpx.AsyncClient(transport=transport, base_url="http://model")
    with pytest.raises(openai.APIStatusError) as raised:
        await client_of(page, key).chat.completions.create(model="any", messages=MESSAGES, **asked)
    return raised.value.code
