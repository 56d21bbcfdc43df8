"""Settings of commands: the gate of the service, or a gate from environment variables."""

import os
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, Final, TypeVar

import click

from ..errors import ConfigurationError
from ..gate import Gate
from .store_urls import HELP as STORE_HELP
from .store_urls import store_url

T = TypeVar("T")

_GATE: Final = "LOCKGATE_GATE"
_DEADLINE: Final = 10.0
"""The deadline of commands, in seconds: longer than a request's."""

gate_option: Final = click.option(
    "--gate",
    "named",
    metavar="MODULE:NAME",
    envvar=_GATE,
    help=f"the service's own gate, such as app.main:gate, with its plans and peppers ({_GATE})",
)
store_option: Final = click.option("--store", metavar="URL", help=STORE_HELP)


def gate_of(named: str | None, store: str | None) -> Gate:
    """Return the gate that commands work with.

    Args:
        named: ``module:attribute`` of the service's gate.
        store: the option ``--store``, used where no gate is named, with ``LOCKGATE_BRAND``,
            ``LOCKGATE_ENVIRONMENT``, ``LOCKGATE_PEPPER`` (several with blanks between them,
            newest first) and ``LOCKGATE_NEXT_PEPPER``.

    Raises:
        ConfigurationError: the name is not that of a gate, or a variable is missing.
    """
    if named is not None:
        if store is not None:
            raise ConfigurationError("A gate has its store already: leave out --store, or --gate.")
        return _loaded(named)
    brand = os.environ.get("LOCKGATE_BRAND", "")
    if not brand:
        raise ConfigurationError(
            f"Which keys are meant is not known: set {_GATE} to the service's gate (module:name), "
            "or LOCKGATE_BRAND to the first part of its keys, with LOCKGATE_STORE and "
            "LOCKGATE_PEPPER as the service has them."
        )
    return Gate(
        store_url(store),
        brand=brand,
        environment=os.environ.get("LOCKGATE_ENVIRONMENT", "live"),
        peppers=[pepper.encode() for pepper in os.environ.get("LOCKGATE_PEPPER", "").split()],
        next_pepper=os.environ.get("LOCKGATE_NEXT_PEPPER", "").encode() or None,
        deadline=_DEADLINE,
    )


def call(gate: Gate, work: Callable[[], Awaitable[T]]) -> T:
    """Run the work of a command, then close its gate; return the result."""
    import asyncio

    async def run() -> T:
        try:
            return await work()
        finally:
            await gate.close()

    return asyncio.run(run())


def _loaded(named: str) -> Gate:
    module, colon, path = named.partition(":")
    if not colon:
        raise ConfigurationError(f"{named!r} is no gate: write it as module:name.")
    sys.path.insert(0, os.getcwd())  # As uvicorn and gunicorn find an application.
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as problem:
        raise ConfigurationError(f"No gate can be loaded from {named!r}: {problem}.") from problem
    if not isinstance(found, Gate):
        raise ConfigurationError(f"{named!r} is a {type(found).__name__}, not a lockgate.Gate.")
    return found
