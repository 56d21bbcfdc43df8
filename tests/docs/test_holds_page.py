"""The recipes of `docs/holds.md` stream as OpenAI does, and count each try of a job (D41)."""

import json
from collections.abc import Callable, Iterator
from secrets import token_hex
from types import ModuleType
from typing import Any

import pytest
from celery.contrib.testing.worker import start_worker  # type: ignore[import-untyped]
from celery.exceptions import Reject  # type: ignore[import-untyped]
from starlette.testclient import TestClient

from lockgate import run
from tests.docs.blocks import ROOT, run_python
from tests.patience import SECONDS, until

CHAT: Any = {"messages": [{"role": "user", "content": "one two three"}], "max_tokens": 100}
LIMIT = 100_000
"""The tokens that the page admits in a minute."""


class Recipes:
    """The page, run, and a key of an organization that it does not use."""

    def __init__(self, page: ModuleType) -> None:
        self.page: Any = page
        key = run(page.gate.keys.create("org_2", "ci", scopes=["models:write"]))
        self.headers = {"Authorization": f"Bearer {key.text}"}

    def budget(self) -> tuple[int, int]:
        """Return the tokens used within a day, and those held."""
        rows = run(self.page.gate.holds.usage("org_2"))
        by_window = {(row.limit, row.window): row for row in rows}
        row = by_window[self.page.TOKENS, "day"]
        return row.used - row.held, row.held

    def enqueue(self) -> int:
        with TestClient(self.page.jobs, raise_server_exceptions=False) as client:
            return client.post("/v1/jobs", json=CHAT, headers=self.headers).status_code

    def begin_tries(self, *outcomes: int | Exception) -> list[int]:
        """Let each try use so many tokens, or 23 before it raises; return the units held in it."""
        held: list[int] = []

        def chunks_of(_: object) -> Iterator[dict[str, Any]]:
            held.append(self.budget()[1])
            outcome = outcomes[len(held) - 1]
            if isinstance(outcome, int):
                yield {"choices": [], "usage": {"completion_tokens": outcome}}
            else:
                yield from ({"choices": [{"delta": {"content": "word"}}]} for _ in range(23))
                raise outcome

        self.page.chunks_of = chunks_of
        return held


@pytest.fixture
def recipes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recipes]:
    recipes = Recipes(run_python(ROOT / "docs" / "holds.md", monkeypatch))
    yield recipes
    run(recipes.page.gate.close())


@pytest.fixture
def worker(recipes: Recipes, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Return the context manager of a worker of Celery, which takes the jobs of the page."""
    queue = recipes.page.queue
    # The queues of `memory://` are those of the process, and its workers set up the root logger.
    queue.conf.task_default_queue = token_hex(8)
    queue.conf.broker_transport_options = {"polling_interval": 0.01}
    monkeypatch.setattr(type(queue.log), "setup", lambda *_, **__: None)
    once = {"pool": "solo", "perform_ping_check": False, "shutdown_timeout": SECONDS}
    return lambda: start_worker(queue, **once)


@pytest.mark.parametrize("name", ["app", "starlette_app", "flask_app"])
def test_a_stream_has_the_chunks_of_openai_and_settles_their_usage(
    recipes: Recipes, name: str
) -> None:
    app = getattr(recipes.page, name)
    path, headers = "/v1/chat/completions", recipes.headers
    if name == "flask_app":
        answer = app.test_client().post(path, json=CHAT, headers=headers)
        kind, text = answer.mimetype, answer.get_data(as_text=True)
        answer.close()
    else:
        with TestClient(app) as client:
            told = client.post(path, json=CHAT, headers=headers)
        kind, text = told.headers["content-type"].partition(";")[0], told.text
    assert kind == "text/event-stream"
    *events, done, end = text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    *chunks, last = (json.loads(event.removeprefix("data: ")) for event in events)
    words = [chunk["choices"][0]["delta"]["content"] for chunk in chunks]
    assert words == ["one", "two", "three"]
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 3)
    assert recipes.budget() == (3, 0)


@pytest.mark.parametrize("failure", [ConnectionError("no model"), Reject(requeue=True)], ids=repr)
def test_each_try_of_a_job_counts(
    recipes: Recipes, worker: Callable[[], Any], failure: Exception
) -> None:
    """After the first try, the task sends a retry or the broker delivers its message again."""
    assert recipes.enqueue() == 202
    assert recipes.budget() == (0, 100)
    held = recipes.begin_tries(failure, 7)
    with worker():
        until(lambda: len(held) == 2 and recipes.budget()[1] == 0)
    assert recipes.budget() == (30, 0)
    assert held == [100, 100]


def test_a_job_whose_units_another_request_took_is_tried_again(
    recipes: Recipes, worker: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    holds, tokens = recipes.page.gate.holds, {recipes.page.TOKENS: LIMIT}
    settle, ids = holds.settle, list[str]()

    async def settle_late(id: str, used: int) -> bool:
        settled: bool = await settle(id, used)
        if settled:
            ids.append((await holds.take("org_2", tokens, seconds=600)).id)
        else:
            await settle(ids.pop(), 0)
        return settled

    monkeypatch.setattr(holds, "settle", settle_late)
    held = recipes.begin_tries(7)
    assert recipes.enqueue() == 202
    with worker():
        until(lambda: held and recipes.budget() == (7, 0))
    assert held == [100] and not ids


def test_a_job_that_no_broker_takes_holds_no_units(
    recipes: Recipes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def delay(*_: object) -> None:
        assert recipes.budget() == (0, 100)
        raise ConnectionError

    monkeypatch.setattr(recipes.page.complete_later, "delay", delay)
    assert recipes.enqueue() == 500
    assert recipes.budget() == (0, 0)
