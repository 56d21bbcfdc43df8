"""Keys of other systems in every database."""

from __future__ import annotations

from ..adopting import check_adoption
from .backends import Backend


def test_keys_of_other_systems_are_taken_in_and_moved(backend: Backend) -> None:
    check_adoption(backend.open())
