"""A proxy for language models: keys, models by scope, and budgets of requests and tokens.

Each model has requests, input tokens and output tokens a minute, and each organization a budget of
tokens a month by its plan. A request takes the most of all four that it can use, and settles what
it used when its response has ended: whole, broken off, or never begun. If the client leaves before
the model answers, the call of the model is cancelled at once.

Make the pepper once, name a service that speaks OpenAI's protocol, and serve::

    export LOCKGATE_PEPPER=$(python -c "import secrets; print(secrets.token_urlsafe())")
    LLM_URL=http://127.0.0.1:11434 uvicorn llm_proxy:app
"""

import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Literal, NamedTuple

import httpx
from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from lockgate import Catalogue, Gate, Hold, Limit, Plan, PlanBook, run
from lockgate.errors import InvalidRequest, Problem
from lockgate.fastapi import Caller, cancel_on_disconnect, protect, requires
from lockgate.options import StoreOptions


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
# The limits of the models bound the requests, so the plans have no limits of their own.
PLANS = [Plan(name) for name in MONTHS]
LIMITS = [one for model in MODELS.values() for one in (model.requests, model.input, model.output)]

gate = Gate(
    "memory://",
    brand="acme",
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
    catalogue=Catalogue.of([model.scope for model in MODELS.values()]),
    plans=PlanBook(PLANS, custom=[]),
    store_options=StoreOptions(hold_limits=[*LIMITS, *MONTHS.values()]),
)
PATIENCE = httpx.Timeout(5, read=30)
LLM_URL = os.environ.get("LLM_URL", "http://127.0.0.1:11434")
upstream = httpx.AsyncClient(base_url=LLM_URL, timeout=PATIENCE)
logger = logging.getLogger("llm_proxy")


class Message(BaseModel):
    role: Literal["system", "user", "assistant"]
    content: str


class Chat(BaseModel):
    model: str
    messages: list[Message] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1)  # The number of a client, checked before it is held.
    stream: bool = False


class Usage(NamedTuple):
    """The tokens that a request used."""

    input: int
    output: int


class Meter:
    """Tells a hold what one request has used."""

    def __init__(self, hold: Hold, model: Model, month: Limit, exits: AsyncExitStack) -> None:
        self.hold = hold
        self.model = model
        self.month = month
        self.exits = exits
        self.used(Usage(0, 0))

    def used(self, usage: Usage) -> None:
        self.hold.used(units_of(self.model, self.month, usage))


def units_of(model: Model, month: Limit, usage: Usage) -> dict[Limit, int]:
    return {
        model.requests: 1,
        model.input: usage.input,
        model.output: usage.output,
        month: sum(usage),
    }


def most_of(chat: Chat, model: Model) -> Usage:
    """Return the most that a request can use; of the prompt a guess: what exceeds it counts too."""
    prompt = sum(len(message.content) // 3 + 8 for message in chat.messages)
    return Usage(prompt, min(chat.max_tokens or model.most, model.most))


async def metered(chat: Chat, caller: Annotated[Caller, requires()]) -> AsyncIterator[Meter]:
    """Hold what a request can use until its response has ended."""
    model, month = MODELS.get(chat.model), MONTHS[caller.plan.name]
    if model is None:
        raise InvalidRequest([Problem("model", f"Use one of {', '.join(MODELS)}.")])
    caller.need(model.scope)
    units = units_of(model, month, most_of(chat, model))
    async with gate.hold(caller, units) as hold, AsyncExitStack() as exits:
        yield Meter(hold, model, month, exits)


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
    asked = {**chat.model_dump(), "max_tokens": most}
    if chat.stream:
        asked["stream_options"] = {"include_usage": True}
    call = upstream.build_request("POST", "/v1/chat/completions", json=asked)
    meter.used(Usage(prompt, 0))  # Also if the client leaves before the model answers.
    try:
        async with cancel_on_disconnect(request):
            answer = await upstream.send(call, stream=chat.stream)
        meter.exits.push_async_callback(answer.aclose)
        if answer.is_success and chat.stream:
            return StreamingResponse(events(answer, meter, prompt), media_type="text/event-stream")
        if answer.is_success:
            body = answer.json()
            meter.used(usage_of(body["usage"]))
            return JSONResponse(body)
    except httpx.HTTPError as failure:
        logger.warning("%s did not answer: %r", LLM_URL, failure)
    meter.used(Usage(0, 0))
    return JSONResponse({"error": "The model does not answer.", "code": "MODEL_FAILED"}, 502)


async def events(answer: httpx.Response, meter: Meter, prompt: int) -> AsyncIterator[str]:
    output = 0
    async for line in answer.aiter_lines():
        if line.startswith("data: {"):
            usage = json.loads(line.removeprefix("data: ")).get("usage")
            output += 1  # Of a stream that breaks off: about a token in each part.
            meter.used(usage_of(usage) if usage else Usage(prompt, output))
        yield f"{line}\n"


def usage_of(told: dict[str, int]) -> Usage:
    return Usage(told["prompt_tokens"], told["completion_tokens"])


@app.get("/v1/usage")
async def usage(caller: Annotated[Caller, requires()]) -> list[dict[str, object]]:
    rows = await gate.holds.usage(caller.organization)
    return [
        {"name": row.limit.name, "limit": row.most, "used": row.used, "held": row.held}
        for row in rows
    ]


protect(app, gate, public=["GET /health"], strict=True)

run(gate.organizations.place("org_1", "pro"))
print("key:    ", run(gate.keys.create("org_1", name="first key", scopes=["chat:*"])).text)
print("mini:   ", run(gate.keys.create("org_2", name="mini", scopes=["chat:gpt-4-1-mini"])).text)
