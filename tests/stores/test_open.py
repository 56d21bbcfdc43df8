"""A store from its URL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import sessionmaker

from lockgate import ConfigurationError, Gate, MemoryStore, open_store
from lockgate.migrations import upgrade
from lockgate.stores.redis import RedisStore
from lockgate.stores.sql import SqlStore


def test_each_memory_url_opens_a_new_store() -> None:
    first, second = open_store("memory://"), open_store("memory://")
    assert isinstance(first, MemoryStore)
    assert first is not second


@pytest.mark.parametrize(
    "url",
    [
        *("", "memory", "memory:", "nosql://host", "file:///x", "://", "memory//", "http://[::1"),
        *("::", "nosql://user:hunter2hunter2@host/0?password=hunter2hunter2", "hunter2hunter2"),
        "nosql://user:hunter2hunter2@[host/0",
    ],
)
def test_a_url_that_names_no_store_is_a_configuration_error_and_not_repeated_K11(url: str) -> None:
    with pytest.raises(ConfigurationError, match="memory://") as caught:
        open_store(url)
    assert "hunter2" not in f"{caught.value}{caught.value.__cause__!r}"


@pytest.mark.parametrize(
    "url",
    [
        "memory://",
        "sqlite:///hunter2hunter2.db",
        "postgresql://user:hunter2hunter2@host/database",
        "redis://:hunter2hunter2@host",
        "redis+cluster://:hunter2hunter2@host,host",
        "postgresql://user:hunter2hunter2@host/database redis://:hunter2hunter2@host",
        "hunter2hunter2",
    ],
)
@pytest.mark.parametrize("written", ["{}\n", " {}", "{}\u2028"])
def test_a_url_with_white_space_around_it_is_refused_and_not_repeated_D53(
    url: str, written: str
) -> None:
    url = written.format(url)
    opening: list[Callable[[str], object]] = [open_store, SqlStore, RedisStore, upgrade]
    for open_ in opening:
        with pytest.raises(ConfigurationError, match="begins or ends with white space") as caught:
            open_(url)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hunter2hunter2\n@host",
        "postgresql://user:hunter2hunter2\r\n@host/database",
        "postgresql://user@host/database\nredis://:hunter2hunter2@host",
        "postgresql://user@host/database redis://:hunter2hunter2\t@host",
    ],
)
def test_a_url_with_a_line_break_in_it_is_refused_and_not_repeated_D53(url: str) -> None:
    """A password is read from a file with ``echo``'s line break, and put into the URL."""
    with pytest.raises(ConfigurationError, match="has a line break or a tab in it") as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgresql+redis", "sqlite+rediss"])
def test_one_url_for_two_stores_is_refused_with_the_remedy(scheme: str) -> None:
    with pytest.raises(ConfigurationError, match="two URLs with a blank"):
        open_store(f"{scheme}://user:hunter2hunter2@host/database")


def test_two_urls_with_a_comma_between_them_are_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigurationError, match="a blank between them, no comma"):
        open_store("sqlite:///keys.db, redis://127.0.0.1")


def test_an_object_that_is_no_store_is_refused_with_the_remedy(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'keys.db'}")
    wrong: list[tuple[Any, str]] = [
        (engine, r"An Engine is not a store: give the gate SqlStore\(engine\)"),
        (create_async_engine("postgresql+asyncpg://h/d"), r"An AsyncEngine .* SqlStore\(engine\)"),
        (sessionmaker(engine), r"A sessionmaker .* SqlStore\(engine\)"),
        (7, "takes a store or its URL as text, not int"),
    ]
    for store, told in wrong:
        with pytest.raises(ConfigurationError, match=told):
            Gate(store, brand="acme")
