"""Shared stores and I/O modes for tests of services."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .shared_stores import EVERY_KIND, KINDS, MODES, Drive, driving, shared_store


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty shared store."""
    with shared_store(request.param, tmp_path) as found:
        yield found


@pytest.fixture(params=EVERY_KIND)
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty shared store of every kind."""
    with shared_store(request.param, tmp_path) as found:
        yield found


@pytest.fixture(params=MODES)
def drive(request: pytest.FixtureRequest) -> Iterator[Drive]:
    """Drive coroutines in an I/O mode."""
    with driving(request.param) as found:
        yield found
