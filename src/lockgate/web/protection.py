"""The arguments of ``protect``, checked alike on every framework, and the audit of its result."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, Protocol, cast

from ..core.access_rule import PUBLIC, Rule
from ..core.request_paths import Pattern
from ..errors import ConfigurationError
from ..gate import Gate
from .audit import Audit
from .guard import Guard

EXTENSION: Final = "lockgate"
"""The name under which ``extensions`` or ``state`` of an application holds its gate middleware."""

NO_GATE: Final = "No gate is before this application: serve what protect() returns."


ErrorForm = Literal["framework", "lockgate"]
"""The form of the errors of an application's own routes: its framework's, or lockgate's (D50)."""


class _Audited(Protocol):
    guard: Guard

    def audit(self) -> Audit: ...


def combined_rules(
    app: object, gate: object, public: Iterable[str], rules: Mapping[str, Rule | str] | None
) -> dict[str, Rule | str]:
    """Return the rules that ``protect`` was given, those of ``public`` included.

    Args:
        app: the application.
        gate: its gate.
        public: ``"METHOD /path"`` of each route that needs no key.
        rules: by ``"METHOD /path"``.

    Raises:
        ConfigurationError: an argument is of the wrong kind, or a route is in both.
    """
    if isinstance(app, Gate):
        raise ConfigurationError("Swap the arguments: protect(app, gate), the application first.")
    if not isinstance(gate, Gate):
        raise ConfigurationError(
            f"protect(app, gate) takes a lockgate.Gate second, not {type(gate).__name__}."
        )
    if isinstance(public, (str, Mapping)):
        raise ConfigurationError(f"public is a list such as ['GET /health'], not {public!r}.")
    if rules is not None and not isinstance(rules, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - from a caller
        raise ConfigurationError(
            f"rules is a dict such as {{'GET /jobs': 'jobs:read'}}, not {rules!r}."
        )
    combined = dict(rules or {})
    for key, rule in combined.items():
        _check_value(key, rule)
    for key in public:
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] - from a caller
            raise ConfigurationError(
                f"public is a list of texts such as 'GET /health', not {key!r}."
            )
        if combined.setdefault(key, PUBLIC) != PUBLIC:
            raise ConfigurationError(f"{key!r} is in public and in rules: take one out.")
    return combined


def public_documents(paths: Iterable[str], rules: Iterable[str]) -> dict[str, Rule | str]:
    """Return rules that open the pages of an OpenAPI document which no rule matches (D31).

    Args:
        paths: those that serve the document and its pages.
        rules: by ``"METHOD /path"``, those that ``protect`` was given.
    """
    named = [Pattern.of(f"/{rule.partition('/')[2]}") for rule in rules if "/" in rule]
    return {
        f"GET {path}": PUBLIC
        for path in paths
        if not any(pattern.meets(Pattern.of_route(path)) for pattern in named)
    }


def is_lockgates(errors: object) -> bool:
    """Return whether the errors of an application's own routes take lockgate's form (D50).

    Args:
        errors: an ``ErrorForm``, as ``protect`` was given it.

    Raises:
        ConfigurationError: it is none.
    """
    if errors not in ("framework", "lockgate"):
        raise ConfigurationError(f"errors is 'framework' or 'lockgate', not {errors!r}.")
    return errors == "lockgate"


def audit(app: object) -> Audit:
    """Return what each route of a protected application requires, and what is left undecided.

    Args:
        app: what ``protect`` returned.

    Raises:
        ConfigurationError: the application has no gate, or its endpoints and its rules contradict
            each other.
    """
    return _middleware(app).audit()


def guard_of(app: object) -> Guard:
    """Return the guard of a protected application, which knows its gate and rules.

    Args:
        app: what ``protect`` returned.

    Raises:
        ConfigurationError: the application has no gate.
    """
    return _middleware(app).guard


def _middleware(app: object) -> _Audited:
    extensions: Mapping[str, object] = getattr(app, "extensions", {})
    state: object = getattr(app, "state", None)
    for found in (app, extensions.get(EXTENSION), getattr(state, EXTENSION, None)):
        if callable(getattr(found, "audit", None)):
            return cast(_Audited, found)
    raise ConfigurationError("No gate is before this application: audit what protect() returned.")


def _check_value(key: str, rule: object) -> None:
    if rule is None:
        raise ConfigurationError(
            f"The rule {key!r} is None: write Rule() for any key, or name the route in public."
        )
    if isinstance(rule, (list, tuple, set, frozenset)):
        raise ConfigurationError(
            f"The rule {key!r} is {rule!r}: a rule takes one scope, such as 'jobs:read'."
        )
