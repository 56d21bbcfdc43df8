"""The table of `docs/clients.md`: what each client does on each refusal."""

from __future__ import annotations

from benchmarks.pages import Part, Table

from .callers import CLIENTS, call
from .service import REFUSALS

PAGE = Part("clients", "clients.md", (Table(("refusal", *CLIENTS), tuple(REFUSALS)),))
PARTS = (PAGE,)


def rows() -> dict[str, tuple[str, ...]]:
    """Make each call; return the cells of each refusal."""
    return {
        name: tuple(str(call(client, refused)) for client in CLIENTS)
        for name, refused in REFUSALS.items()
    }
