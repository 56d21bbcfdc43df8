"""Keys of other systems in every database."""

from __future__ import annotations

from ..adopting import check_adoption
from .backends import Backend


def test_imported_keys_are_adopted_and_rehashed(backend: Backend) -> None:
    check_adoption(backend.open())
