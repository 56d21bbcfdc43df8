"""What endpoints say of themselves with ``requires``, found again when an application starts."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from ..core.access_rule import Rule
from ..errors import ConfigurationError

REQUIRES: Final = "__lockgate_rule__"
"""Where an endpoint, or a dependency of one, keeps the rule that it asks for."""
_GUARDED: Final = "__lockgate_guarded__"
"""Where a function keeps what ``requires`` made of it, which must be served instead."""
_SERVED: Final = "__lockgate_served__"
"""Where what ``requires`` made keeps that an application serves it."""


def mark(function: Callable[..., Any], guarded: Callable[..., Any], rule: Rule) -> None:
    """Note at both functions that ``requires`` made the second one of the first."""
    setattr(guarded, REQUIRES, rule)
    try:
        setattr(function, _GUARDED, guarded)
    except AttributeError:
        return  # A method or a partial: it has no attributes of its own, and goes unnoticed.


def required(endpoint: object, method: str) -> Rule | None:
    """What an endpoint asks for; one that is a class, or a view made of one, at its method."""
    rule: Rule | None = getattr(endpoint, REQUIRES, None)
    if rule is not None:
        return rule
    kind = endpoint if isinstance(endpoint, type) else getattr(endpoint, "view_class", None)
    return getattr(getattr(kind, method.lower(), None), REQUIRES, None)


def check_decorators(endpoints: Iterable[tuple[str, object]]) -> None:
    """Check that no application serves a function in place of what ``requires`` made of it.

    So it is where ``@requires`` stands above the line that makes a route: the route has the bare
    function then.

    Args:
        endpoints: what an application serves: where, and by which function.

    Raises:
        ConfigurationError: it serves a function, and no application serves the decorated one.
    """
    served = list(endpoints)
    for _, endpoint in served:
        if hasattr(endpoint, REQUIRES):
            setattr(endpoint, _SERVED, True)
    for where, endpoint in served:
        guarded = None if hasattr(endpoint, REQUIRES) else getattr(endpoint, _GUARDED, None)
        if guarded is not None and not hasattr(guarded, _SERVED):
            raise ConfigurationError(
                f"{where} serves a function without its decorator: put @requires directly above "
                "the function, below the line that makes it a route."
            )
