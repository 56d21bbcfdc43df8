"""The recipes of `docs/holds.md` stream as OpenAI does, and count the tokens (D41)."""

import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from starlette.testclient import TestClient

from lockgate import run
from tests.docs.blocks import ROOT, run_python

CHAT: Any = {"messages": [{"role": "user", "content": "one two three"}], "max_tokens": 100}


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


@pytest.fixture
def recipes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recipes]:
    recipes = Recipes(run_python(ROOT / "docs" / "holds.md", monkeypatch))
    yield recipes
    recipes.page.gate.sync.close()


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
