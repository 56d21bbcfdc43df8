"""A service that is called by the SDKs of OpenAI and Anthropic, and its refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from lockgate import Gate, Plan, PlanBook, Rule, run
from lockgate.asgi import GateMiddleware
from lockgate.core.ledger import Hit
from lockgate.error_formats import anthropic, by_path, openai
from lockgate.options import StoreOptions, WebOptions
from lockgate.starlette import error_handlers
from lockgate.testing.clock import HandClock
from tests.web.serving import served

CHAT: Final = "/v1/chat/completions"
MESSAGES: Final = "/anthropic/v1/messages"
PLAIN: Final = "/models"
_PATHS: Final = (CHAT, MESSAGES, PLAIN)

_COMPLETION: Final = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}
    ],
}
_MESSAGE: Final = {
    "id": "1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
_ANSWERS: Final[Mapping[str, object]] = {CHAT: _COMPLETION, MESSAGES: _MESSAGE, PLAIN: []}


def answer_of(path: str) -> object:
    """Return the body of an admitted call."""
    return _ANSWERS[path]


class Refused(NamedTuple):
    """One kind of refusal."""

    plan: Plan
    cost: int = 1
    prepare: Callable[[Service], None] = lambda _: None
    longest_retry: float | None = 120
    slot: bool = False


def _plan(rpm: int | None = 60, rph: int | None = None, rpd: int | None = None) -> Plan:
    return Plan("free", rpm=rpm, rph=rph, rpd=rpd, concurrent=0)


def _spend(service: Service) -> None:
    """Take the whole limit, 18 s before the call."""
    windows = service.gate.plans.default.windows
    least = min(window.limit for window in windows if window.limit is not None)
    now = service.clock.now
    run(service.gate.store.charge("org_1", Hit(windows, least), now))
    service.clock.move(18)


def _malformed(service: Service) -> None:
    service.key = service.key[:-1] + "!"


def _scope(service: Service) -> None:
    service.key = service.new_key("jobs:read")


def _away(service: Service) -> None:
    async def admit(*_: Any) -> Any:
        raise OSError("the store is away")

    setattr(service.gate.store, "admit", admit)  # noqa: B010 - it is a method


REFUSALS: Final[Mapping[str, Refused]] = {
    "the minute is full, for 42 s": Refused(_plan(1), prepare=_spend),
    "the hour is full, for 59 min": Refused(_plan(60, 1), prepare=_spend),
    "the day is full": Refused(_plan(60, None, 1), prepare=_spend),
    "the day is full, no advice": Refused(_plan(60, None, 1), 1, _spend, None),
    "a cost above the limit": Refused(_plan(60), cost=100),
    "all slots are taken": Refused(_plan(), slot=True),
    "a malformed key": Refused(_plan(), prepare=_malformed),
    "a scope that the key lacks": Refused(_plan(), prepare=_scope),
    "the store is away": Refused(_plan(), prepare=_away),
}


class Service:
    """A gate with a clock of its own, and a key."""

    def __init__(self, refused: Refused) -> None:
        self.clock = HandClock()
        options = WebOptions(
            error_body=by_path({"/v1": openai, "/anthropic": anthropic}),
            key_header="X-API-Key",
            longest_retry=refused.longest_retry,
        )
        self.gate = Gate(
            brand="acme",
            store_options=StoreOptions(clock=self.clock),
            plans=PlanBook([refused.plan]),
            web_options=options,
        )
        self.calls = 0
        self.key = self.new_key("models:write")
        rule = Rule("models:write", cost=refused.cost, slot=refused.slot)
        rules: dict[str, Rule | str] = {f"POST {path}": rule for path in _PATHS}
        routes = [Route(path, self._answer, methods=["POST"]) for path in _PATHS]
        app = Starlette(routes=routes, exception_handlers=error_handlers)
        self._guarded = GateMiddleware(app, self.gate, rules)
        refused.prepare(self)

    def new_key(self, scope: str) -> str:
        return run(self.gate.keys.create("org_1", "a key", [scope])).text

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls += scope["type"] == "http"
        await self._guarded(scope, receive, send)

    async def _answer(self, request: Request) -> JSONResponse:
        return JSONResponse(answer_of(request.url.path))


@contextmanager
def serving(refused: Refused) -> Iterator[tuple[Service, str]]:
    """Serve one; give it with its URL."""
    service = Service(refused)
    with served(service, lifespan="off") as (host, port):
        yield service, f"http://{host}:{port}"
