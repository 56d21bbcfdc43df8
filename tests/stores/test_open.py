"""A store from its URL."""

from __future__ import annotations

import pytest

from lockgate import ConfigurationError, MemoryStore, open_store


def test_memory() -> None:
    first, second = open_store("memory://"), open_store("memory://")
    assert isinstance(first, MemoryStore)
    assert first is not second


@pytest.mark.parametrize(
    "url",
    ["", "memory", "memory:", "nosql://host", "file:///x", "://", "memory//", "http://[::1", "::"],
)
def test_a_url_that_names_no_store_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigurationError, match="memory://"):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    [
        "nosql://user:hunter2hunter2@host/0?password=hunter2hunter2",
        "nosql://user:hunter2hunter2@[host/0",
        "hunter2hunter2",
    ],
)
def test_the_message_never_repeats_the_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(caught.value.__cause__)


@pytest.mark.parametrize("scheme", ["postgresql+redis", "sqlite+rediss"])
def test_one_url_for_two_stores_is_told_to_be_two(scheme: str) -> None:
    with pytest.raises(ConfigurationError, match="two URLs with a blank"):
        open_store(f"{scheme}://user:hunter2hunter2@host/database")
