"""Settings of commands: the gate of the service, or a gate from environment variables."""

import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from getpass import getuser
from importlib import import_module
from traceback import extract_tb
from typing import Any, Final, TypeVar, cast

import click

from lockgate.options import KeyOptions, StoreOptions

from ..core.changes import Actor, acting
from ..core.plans import ID_MAX_LENGTH, PlanBook, is_id
from ..core.weak_secrets import refuse_white_space
from ..errors import ConfigurationError, LockgateError
from ..gate import Gate
from ..services.store_errors import unavailable
from ..stores.answers import StoreError
from ..stores.resilience.deadlines import LEAST
from .config_file import file_settings
from .store_urls import HELP as STORE_HELP
from .store_urls import store_url

T = TypeVar("T")

UNAVAILABLE: Final = 3
"""The exit code of a command for which the store did not answer."""
_GATE: Final = "LOCKGATE_GATE"
_DEADLINE: Final = 10.0
"""The least deadline of commands, in seconds: longer than a request's."""
BUILT_IN: Final = PlanBook()
"""The plans of a gate that the environment describes. Those of the service may be others."""


def checked_id(ctx: click.Context, param: click.Parameter, id: str | None) -> str | None:
    """Return the id of an organization; a text that none can have (D36) is wrong usage."""
    if id is not None and not is_id(id):
        raise click.BadParameter(f"An id is a text of 1 to {ID_MAX_LENGTH} characters.", ctx, param)
    return id


organization_argument: Final = click.argument("organization", callback=checked_id)
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
            newest first) and ``LOCKGATE_NEXT_PEPPER``. An environment variable overrides
            the same setting of the configuration file. The option or ``LOCKGATE_BRAND`` makes the
            command ignore the gate that the file names.

    Raises:
        ConfigurationError: the name names no gate, or a variable is missing and not in the
            file of the current folder either.
    """
    if named is not None:
        if store is not None:
            raise ConfigurationError("A gate has its store already: leave out --store, or --gate.")
        gate = loaded(named, "gate")
        if not isinstance(gate, Gate):
            raise ConfigurationError(f"{named!r} is a {type(gate).__name__}, not a lockgate.Gate.")
        return gate
    given = file_settings()
    brand = os.environ.get("LOCKGATE_BRAND", "")
    if "gate" in given and not brand and store is None:
        return gate_of(given["gate"], None)
    brand = brand or given.get("brand", "")
    if not brand:
        raise ConfigurationError(
            f"Which keys are meant is not known: set {_GATE} to the service's gate (module:name), "
            "or LOCKGATE_BRAND to the first part of its keys, with LOCKGATE_STORE and "
            "LOCKGATE_PEPPER as the service has them. All but secrets may be in lockgate.toml."
        )
    return Gate(
        store_url(store, given.get("store")),
        brand=brand,
        peppers=_secrets("LOCKGATE_PEPPER"),
        plans=BUILT_IN,
        key_options=KeyOptions(
            environment=os.environ.get("LOCKGATE_ENVIRONMENT") or given.get("environment", "live"),
            next_pepper=next(iter(_secrets("LOCKGATE_NEXT_PEPPER")), None),
        ),
        store_options=StoreOptions(deadline=_DEADLINE),
    )


def call(gate: Gate, work: Callable[[], Awaitable[T]]) -> T:
    """Run the work of a command, then close its gate; return the result.

    Its changes are recorded as those of the operator, by the login name.

    Raises:
        StoreUnavailable: a call of the store failed; the log says why.
    """
    import asyncio

    async def run() -> T:
        try:
            return await work()
        except (StoreError, TimeoutError) as failure:
            raise unavailable(gate.events, failure) from failure
        finally:
            await gate.close()

    with acting(Actor("operator", _login())):
        return asyncio.run(run())


def _secrets(variable: str) -> list[bytes]:
    """Return the secrets in an environment variable, with blanks between them.

    Raises:
        ConfigurationError: white space other than blanks between secrets (D53).
    """
    value = os.environ.get(variable, "")
    refuse_white_space(variable, value)
    secrets = value.split()
    if any(char.isspace() and char != " " for char in value):
        raise ConfigurationError(
            f"{variable} has white space in it: blanks, and nothing else, separate secrets."
        )
    return [os.fsencode(secret) for secret in secrets]


def _login() -> str | None:
    try:
        return getuser()
    except (KeyError, OSError, ImportError):  # A container may give this user id no name.
        return str(os.getuid()) if hasattr(os, "getuid") else None


def loaded(named: str, kind: str) -> object:
    """Return an object of the service by ``module:name``, found from the current folder.

    The gates of the service that its module makes wait at least :data:`_DEADLINE` for their stores.

    Args:
        named: the module, a colon, and the name in it, with dots for attributes.
        kind: the kind of object, for messages.

    Raises:
        ConfigurationError: there is no such module or name.
    """
    module, colon, path = named.partition(":")
    if "://" in named:  # It may hold a password, and a part of it would be in the message.
        raise ConfigurationError(f"A URL is no {kind}: write it as module:name.")
    if not colon:
        raise ConfigurationError(f"{named!r} is no {kind}: write it as module:name.")
    sys.path.insert(0, os.getcwd())  # As uvicorn and gunicorn find an application.
    least = LEAST.set(_DEADLINE)
    try:
        with redirect_stdout(sys.stderr):  # What it prints is no output of the command.
            found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as problem:
        raise ConfigurationError(f"No {kind} can be loaded from {named!r}: {problem}.") from problem
    except LockgateError:
        raise
    except Exception as problem:  # Its text may hold a secret, such as the URL of a database.
        frames = extract_tb(problem.__traceback__)
        last = next(f for f in reversed(frames) if not f.filename.startswith("<"))
        raise ConfigurationError(
            f"{module!r} raises {type(problem).__name__} in {last.filename}, line {last.lineno}: "
            f"see 'python -c \"import {module}\"'."
        ) from problem
    finally:
        LEAST.reset(least)
    return cast(object, found)
