"""What a Flask application serves, and what its views say that a caller must bring."""

import re
from collections.abc import Iterator
from typing import Final

from flask import Flask

from ..errors import ConfigurationError
from ..rules.patterns import Pattern
from ..rules.routes import Rule

RULE: Final = "__lockgate_rule__"
"""Where a view keeps the rule that it was decorated with."""
_PARAMETER: Final = re.compile(r"<(?:(\w+)(?:\(.*?\))?:)?(\w+)>")


def routes(app: Flask) -> Iterator[tuple[str, str]]:
    """Every route: method and path, parameters written ``{name}``."""
    for route in app.url_map.iter_rules():
        path = _PARAMETER.sub(_parameter, route.rule)
        for method in sorted((route.methods or {"*"}) - {"HEAD", "OPTIONS"}):
            yield method, path


def declared(app: Flask) -> Iterator[tuple[str, Rule]]:
    """What the views of an application say that they require.

    A route of a form that rules do not have is left out: its view asks for the scope by itself.

    Raises:
        ConfigurationError: such a view has a cost or takes a slot, which only a rule can say.
    """
    for route in app.url_map.iter_rules():
        rule = getattr(app.view_functions.get(route.endpoint), RULE, None)
        if rule is not None and _can_be_named(route.rule, rule):
            for method in sorted((route.methods or set()) - {"HEAD", "OPTIONS"}):
                yield f"{method} {_PARAMETER.sub(_parameter, route.rule)}", rule


def _can_be_named(path: str, rule: Rule) -> bool:
    try:
        Pattern.of(_PARAMETER.sub(_parameter, path))
    except ConfigurationError:
        if rule.cost > 1 or rule.slot:
            raise ConfigurationError(
                f"No rule can name {path!r}, so its view can have no cost and no slot: "
                "let '<path:...>' be the whole last segment."
            ) from None
        return False
    return True


def _parameter(found: re.Match[str]) -> str:
    converter, name = found.groups()
    return f"{{{name}:path}}" if converter == "path" else f"{{{name}}}"
