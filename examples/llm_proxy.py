"""A proxy for language models: keys, models by scope, and budgets of requests and tokens.

Each plan has requests a minute, of all models, and a budget of tokens a month; each model has
requests, input tokens and output tokens a minute for each organization. A request takes the most
that it can use, and settles what it used when its response has ended: whole, broken off, or never
begun. If the client leaves before the model answers, the call of the model is cancelled at once.
Every error has the body that the SDK of OpenAI reads.

Make the pepper once, create a key, name a service that speaks OpenAI's protocol, and serve::

    export LOCKGATE_PEPPER=$(python -c "import secrets; print(secrets.token_urlsafe())")
    export LOCKGATE_GATE=llm_proxy:gate
    lockgate orgs place org_1 pro
    lockgate keys create org_1 "first key" --scope "chat:*"
    LLM_URL=http://127.0.0.1:11434 LLM_KEY=... uvicorn llm_proxy:app
"""

import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any, NamedTuple

import httpx
from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from lockgate import Catalogue, Gate, Hold, Limit, Plan, PlanBook, error_formats
from lockgate.errors import InvalidRequest, Problem, Refusal
from lockgate.fastapi import Caller, cancel_on_disconnect, protect, requires
from lockgate.options import StoreOptions, WebOptions


class Model:
    """A model: its scope, the most tokens of an answer, and its limits."""

    def __init__(self, name: str, most: int, requests: int, input: int, output: int) -> None:
        slug = name.replace(".", "-")  # Names of limits and scopes have no dots.
        self.scope = f"chat:{slug}"
        self.most = most
        self.requests = Limit(f"{slug}-requests", f"{requests}/minute")
        self.input = Limit(f"{slug}-input-tokens", f"{input}/minute")
        self.output = Limit(f"{slug}-output-tokens", f"{output}/minute")


MODELS = {
    "gpt-4.1": Model("gpt-4.1", most=4096, requests=10, input=30_000, output=8_000),
    "gpt-4.1-mini": Model("gpt-4.1-mini", most=4096, requests=60, input=200_000, output=50_000),
}
MONTHS = {
    "starter": Limit("starter-tokens-a-month", "1000000/month"),
    "pro": Limit("pro-tokens-a-month", "50000000/month"),
}
PLANS = [Plan("starter", rpm=60), Plan("pro", rpm=600)]
LIMITS = [one for model in MODELS.values() for one in (model.requests, model.input, model.output)]

gate = Gate(
    os.environ.get("LOCKGATE_STORE", "sqlite:///llm_proxy.db?mode=rwc"),
    brand="acme",
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
    catalogue=Catalogue.of([model.scope for model in MODELS.values()]),
    plans=PlanBook(PLANS, custom=[]),
    store_options=StoreOptions(hold_limits=[*LIMITS, *MONTHS.values()]),
    web_options=WebOptions(error_body=error_formats.openai),
)
upstream = httpx.AsyncClient(
    base_url=os.environ.get("LLM_URL", "http://127.0.0.1:11434"),
    headers={"Authorization": f"Bearer {os.environ.get('LLM_KEY', 'none')}"},
    timeout=httpx.Timeout(5, read=30),
)
logger = logging.getLogger("llm_proxy")


class ModelFailed(Refusal):
    status = 502
    code = "MODEL_FAILED"
    default_message = "The model does not answer: try again later."


# Fields without a name here, such as `temperature` and `tools`, are passed on.
class Part(BaseModel, extra="allow"):
    text: str = " " * 3000  # Of an image, say: it is guessed to be a thousand tokens.


class Message(BaseModel, extra="allow"):
    role: str
    content: str | list[Part] | None = None


class Chat(BaseModel, extra="allow"):
    model: str
    messages: list[Message] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)  # The number of a client, checked before it is held.
    max_completion_tokens: int | None = Field(None, ge=1)
    n: int = Field(1, ge=1, le=8)
    stream: bool = False
    stream_options: dict[str, Any] | None = None


class Meter(NamedTuple):
    """Tells a hold what one request has used."""

    hold: Hold
    model: Model
    month: Limit
    exits: AsyncExitStack

    def used(self, input: int, output: int) -> None:
        self.hold.used(units_of(self.model, self.month, input, output))


def units_of(model: Model, month: Limit, input: int, output: int) -> dict[Limit, int]:
    return {model.requests: 1, model.input: input, model.output: output, month: input + output}


def most_of(chat: Chat, model: Model) -> tuple[int, int]:
    """Return the most that a request can use; of the prompt a guess: what exceeds it counts too."""
    contents = [message.content or "" for message in chat.messages]
    lists = [[one] if isinstance(one, str) else [part.text for part in one] for one in contents]
    prompt = sum(len(text) // 3 + 8 for texts in lists for text in texts)
    given = filter(None, (chat.max_tokens, chat.max_completion_tokens))
    return prompt, min([model.most, *given]) * chat.n


async def metered(chat: Chat, caller: Annotated[Caller, requires()]) -> AsyncIterator[Meter]:
    """Hold what a request can use until its response has ended."""
    model, month = MODELS.get(chat.model), MONTHS[caller.plan.name]
    if model is None:
        raise InvalidRequest([Problem("model", f"Use one of {', '.join(MODELS)}.")])
    caller.need(model.scope)
    units = units_of(model, month, *most_of(chat, model))
    async with gate.hold(caller, units) as hold, AsyncExitStack() as exits:
        meter = Meter(hold, model, month, exits)
        meter.used(0, 0)
        yield meter


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with upstream:
        yield


app = FastAPI(title="acme", lifespan=lifespan, openapi_url=None)


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/v1/chat/completions", response_model=None)
async def complete(
    request: Request, chat: Chat, meter: Annotated[Meter, Depends(metered)]
) -> Response:
    prompt, most = most_of(chat, meter.model)
    asked = chat.model_dump(exclude_unset=True, exclude={"max_tokens", "max_completion_tokens"})
    asked["max_completion_tokens" if chat.max_completion_tokens else "max_tokens"] = most // chat.n
    if chat.stream:
        asked["stream_options"] = {**(chat.stream_options or {}), "include_usage": True}
    call = upstream.build_request("POST", "/v1/chat/completions", json=asked)
    meter.used(prompt, 0)  # Also if the client leaves before the model answers.
    try:
        async with cancel_on_disconnect(request):
            answer = await upstream.send(call, stream=chat.stream)
        meter.exits.push_async_callback(answer.aclose)
        if answer.is_success and chat.stream:
            parts = events(answer, meter, chat, prompt)
            return StreamingResponse(parts, media_type="text/event-stream")
        if answer.is_success:
            body = answer.json()
            meter.used(*usage_of(body["usage"]) if body.get("usage") else (prompt, most))
            return JSONResponse(body)
        status, reason = answer.status_code, f"status {answer.status_code}"
    except (httpx.HTTPError, ValueError) as failure:  # Its text may have what the service sent.
        status, reason = 0, type(failure).__name__
    logger.warning("%s failed: %s", upstream.base_url.host, reason)
    meter.used(0, 0)
    raise InvalidRequest([Problem("", "The model refused it.")]) if status == 400 else ModelFailed


async def events(
    answer: httpx.Response, meter: Meter, chat: Chat, prompt: int
) -> AsyncIterator[str]:
    tells = (chat.stream_options or {}).get("include_usage")
    output = 0
    async for line in answer.aiter_lines():
        if line.startswith("data: {"):
            part = json.loads(line.removeprefix("data: "))
            usage = part.get("usage")
            output += 1  # Of a stream that breaks off: about a token in each part.
            meter.used(*usage_of(usage) if usage else (prompt, output))
            if usage and not part.get("choices") and not tells:
                continue  # The part that only this proxy asked for.
        yield f"{line}\n"


def usage_of(told: dict[str, int]) -> tuple[int, int]:
    return told["prompt_tokens"], told["completion_tokens"]


@app.get("/v1/usage")
async def usage(caller: Annotated[Caller, requires(cost=0)]) -> list[dict[str, object]]:
    rows = await gate.holds.usage(caller.organization)
    return [
        {"name": row.limit.name, "limit": row.most, "used": row.used, "held": row.held}
        for row in rows
    ]


protect(app, gate, public=["GET /health"], strict=True, errors="lockgate")
