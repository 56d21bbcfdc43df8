"""Error bodies of other services, chosen by the request; the advice to try again (D48)."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from lockgate import ConfigurationError, Gate, Plan, PlanBook, Refusal
from lockgate.core.timestamps import SECOND
from lockgate.error_formats import (
    QUOTA_EXCEEDED,
    ErrorBody,
    ErrorFormat,
    RefusedRequest,
    anthropic,
    by_path,
    jsonrpc,
    openai,
    problem,
)
from lockgate.errors import (
    ConcurrentLimitExceeded,
    InvalidFormat,
    InvalidRequest,
    MethodNotAllowed,
    Problem,
    RateLimitExceeded,
    StoreUnavailable,
)
from lockgate.options import WebOptions
from lockgate.web.error_bodies import answer_of

from .applications import EVERY, bearer, protected

FULL = RateLimitExceeded("minute", 60, 60, 12)
ABOVE = RateLimitExceeded("minute", 60, 0, 60, cost=100)
NAMED = RateLimitExceeded("hour", 3, 3, 1900, limit_name="export")


class Asked:
    """A request of a test."""

    method = "POST"

    def __init__(self, path: str, **headers: str) -> None:
        self.path, self.headers = path, headers

    def header(self, name: Any) -> Any:
        if isinstance(name, bytes):
            return [value.encode() for key, value in self.headers.items() if key == name.decode()]
        return self.headers.get(name)


UNSENDABLE: list[dict[str, str]] = [{"x": "a\r\nb"}, {"x y": "a"}, {"x": "€"}, {"": "a"}]
ASKED: Any = Asked("/v1/messages")


def gate_of(**options: Any) -> Gate:
    plans = PlanBook([Plan("free", rpm=1, rph=None, rpd=None, concurrent=None)])
    return Gate(brand="acme", plans=plans, web_options=WebOptions(**options))


LIMITS = {"retryAfter": 12, "limits": {"type": "minute", "limit": 60, "used": 60}}


def test_clients_find_the_message_and_the_code() -> None:
    of_openai = {"type": "requests", "param": None, "code": "RATE_LIMIT_EXCEEDED", **LIMITS}
    assert openai(FULL, ASKED) == {"error": {"message": FULL.message, **of_openai}}
    data = {"code": "RATE_LIMIT_EXCEEDED", **LIMITS}
    error = {"code": -32023, "message": FULL.message, "data": data}
    assert jsonrpc(FULL, ASKED) == {"jsonrpc": "2.0", "id": None, "error": error}
    other: Any = jsonrpc(InvalidFormat(), ASKED)
    assert other["error"]["code"] == -32010


@pytest.mark.parametrize(
    ("refusal", "of_openai", "of_anthropic"),
    [
        (InvalidFormat(), "invalid_request_error", "authentication_error"),
        (FULL, "requests", "rate_limit_error"),
        (MethodNotAllowed(["GET"]), "invalid_request_error", "invalid_request_error"),
        (StoreUnavailable(), "server_error", "api_error"),
    ],
    ids=lambda one: getattr(one, "code", ""),
)
def test_each_status_has_the_type_of_the_service(
    refusal: Refusal, of_openai: str, of_anthropic: str
) -> None:
    one: Any = openai(refusal, ASKED)
    other: Any = anthropic(refusal, ASKED)
    assert one["error"]["type"] == of_openai
    assert (other["type"], other["error"]["type"]) == ("error", of_anthropic)
    assert one["error"]["code"] == other["error"]["code"] == refusal.code


def test_problem_details_name_the_policy_that_was_violated() -> None:
    shown = problem(NAMED, ASKED)
    assert shown.headers == {"content-type": "application/problem+json"}
    details: Any = shown.content
    assert details["type"] == QUOTA_EXCEEDED
    assert details["violated-policies"] == ["export hour"]
    assert (details["status"], details["detail"]) == (429, NAMED.message)
    assert details["code"] == "RATE_LIMIT_EXCEEDED"
    for other in (InvalidFormat(), ConcurrentLimitExceeded(2, 2, 10)):
        details = problem(other, ASKED).content
        assert details["type"] == "about:blank"
        assert details["title"] in {"Unauthorized", "Too Many Requests"}


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/v1", "openai"),
        ("/v1/chat/completions", "openai"),
        ("/v1/messages", "anthropic"),
        ("/v1/messages/batches", "anthropic"),
        ("/v1/messages2", "openai"),
        ("/v10", "lockgate"),
        ("/", "lockgate"),
    ],
)
def test_the_longest_prefix_of_whole_segments_chooses(path: str, shown: str) -> None:
    formats = {"/v1/": openai, "/v1/messages": anthropic, "/v1": openai}
    content: Any = by_path(formats)(FULL, Asked(path))
    kinds = {"openai": openai, "anthropic": anthropic}
    assert content == (kinds[shown](FULL, ASKED) if shown in kinds else FULL.body())


@pytest.mark.parametrize("framework", EVERY)
def test_a_body_of_the_host_replaces_every_refusals_on_every_adapter(framework: str) -> None:
    seen: list[tuple[str, str, str | None]] = []

    def choose(refusal: Refusal, request: RefusedRequest) -> object:
        seen.append((request.method, request.path, request.header("Anthropic-Version")))
        return problem(refusal, request)

    plain, shaped = gate_of(), gate_of(error_body=choose)
    (_, ask_plain), (_, ask) = (
        protected(framework, gate, make={"cost": 1}) for gate in (plain, shaped)
    )
    version = {"anthropic-version": "2023-06-01"}
    for sent in ({}, {"authorization": "x"}, {"authorization": "Bearer acme_live_x"}):
        one, other = ask_plain("/models", sent), ask("/models", {**version, **sent})
        assert other.headers["content-type"] == "application/problem+json"
        assert (other.status, other.body["status"], other.code) == (401, 401, one.code)
        for name in ("www-authenticate", "cache-control", "x-ratelimit-limit"):
            assert other.headers[name] == one.headers[name]
    assert seen == [("GET", "/models", "2023-06-01")] * 3
    lacking = ask("/models", bearer(shaped, "jobs:read"))
    assert (lacking.status, lacking.code) == (403, "INSUFFICIENT_SCOPE")


def test_refusals_that_the_application_raises_have_the_body_too() -> None:
    gate = gate_of(error_body=problem)

    async def wrong(_: Any) -> dict[str, str]:
        raise InvalidRequest([Problem("size", "Too big.")])

    _, ask = protected("starlette", gate, make={"view": wrong, "cost": 1})
    answer = ask("/models", bearer(gate, "*"))
    assert (answer.status, answer.headers["content-type"]) == (400, "application/problem+json")


def shown_by(hook: ErrorFormat | None, refusal: Refusal = FULL) -> tuple[dict[str, str], Any]:
    gate = gate_of(error_body=hook)
    headers, body = answer_of(refusal, gate, ASKED)
    names = [name for name, _ in headers]
    assert len(names) == len({*names})
    return {name.decode(): value.decode() for name, value in headers}, json.loads(body)


def test_headers_of_a_body_replace_those_of_the_refusal() -> None:
    headers, body = shown_by(lambda *_: ErrorBody([1], {"Retry-After": "99", "X-Mine": "yes"}))
    assert (headers["retry-after"], headers["x-mine"], body) == ("99", "yes", [1])
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "hook",
    [
        *(lambda *_, own=own: ErrorBody({}, own) for own in UNSENDABLE),
        lambda *_: 1 / 0,
        lambda *_: object(),
        lambda refusal, _: refusal.nothing,
    ],
    ids=[*map(str, UNSENDABLE), "raises", "no JSON", "mistaken"],
)
def test_a_function_that_fails_is_logged_and_the_standard_body_is_sent_G3(
    hook: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "lockgate"):
        headers, body = shown_by(hook)
    assert body == FULL.body()
    assert headers["content-type"] == "application/json"
    (record,) = [r for r in caplog.records if "error_body" in r.getMessage()]
    assert record.exc_info is not None


@pytest.mark.parametrize(
    ("refusal", "longest", "advised"),
    [
        (RateLimitExceeded("minute", 60, 60, 60), 120, None),
        (RateLimitExceeded("hour", 60, 60, 120), 120, None),
        (RateLimitExceeded("hour", 60, 60, 121), 120, "false"),
        (RateLimitExceeded("day", 60, 60, 86_340), None, None),
        (RateLimitExceeded("minute", 60, 60, 31), 30.5, "false"),
        (ABOVE, 120, "false"),
        (ABOVE, None, "false"),
        (RateLimitExceeded("day", 5, 0, 90, cost=9, ends_at=90 * SECOND), 120, None),
        (ConcurrentLimitExceeded(2, 2, 10), 120, None),
        (InvalidFormat(), 120, None),
    ],
)
def test_a_client_is_advised_to_give_up_where_waiting_is_useless_or_long_D48(
    refusal: Refusal, longest: float | None, advised: str | None
) -> None:
    headers, _ = answer_of(refusal, gate_of(longest_retry=longest), ASKED)
    assert dict(headers).get(b"x-should-retry") == (None if advised is None else advised.encode())
    assert b"retry-after-ms" not in dict(headers)


def test_a_prefix_and_a_longest_retry_that_cannot_be_are_refused_at_the_start() -> None:
    with pytest.raises(ConfigurationError, match="v1"):
        by_path({"v1": openai})
    for wrong in (0, -1, float("nan")):
        with pytest.raises(ConfigurationError, match="longest_retry"):
            WebOptions(longest_retry=wrong)


@pytest.mark.parametrize("framework", ["asgi", "wsgi"])
def test_a_repeated_refusal_has_the_format_of_its_path(framework: str) -> None:
    gate = gate_of(error_body=by_path({"/models": openai}))
    _, ask = protected(framework, gate)
    headers = bearer(gate, "*")
    assert ask("/models", headers).status == 200
    for path, place in (("/models", "openai"), ("/health2", "lockgate"), ("/models", "openai")):
        answer = ask(path, headers)
        assert isinstance(answer.body["error"], dict) == (place == "openai")
        assert "retry-after" in answer.headers
