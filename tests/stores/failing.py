"""Hold a store to its errors: what its driver raised is the cause of a StoreError (G7)."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from lockgate.stores.answers import StoreError


@contextmanager
def store_fails(kind: type[Exception], match: str = "") -> Generator[Any]:
    """Expect a StoreError caused by an exception of this kind."""
    with pytest.raises(StoreError) as failed:
        yield failed
    cause = failed.value.__cause__
    assert isinstance(cause, kind)
    assert re.search(match, str(cause))
