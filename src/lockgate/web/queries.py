"""Query parameters: strict, like bodies (D17)."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from ..errors import InvalidRequest, Problem
from ..gate import Gate
from .bodies import field_at

_PARAMETERS_AT_MOST: Final = 50


class Parameter(NamedTuple):
    """A query parameter of an operation."""

    name: str
    description: str
    schema: dict[str, Any]
    """Its JSON Schema, for the OpenAPI document."""


def read_query(query: bytes, parameters: Sequence[Parameter], gate: Gate) -> dict[str, str]:
    """Return the parameters of a query string by name.

    Args:
        query: as it came on the wire.
        parameters: those that the operation reads.
        gate: the gate whose keys are blotted out where a problem would show one.

    Raises:
        InvalidRequest: a parameter is unknown or comes twice, or there are too many.
    """
    try:
        pairs = parse_qsl(
            query.decode("latin-1"), keep_blank_values=True, max_num_fields=_PARAMETERS_AT_MOST
        )
    except ValueError:
        raise InvalidRequest([Problem("", "The query has too many parameters.")]) from None
    known = {parameter.name for parameter in parameters}
    found: dict[str, str] = {}
    problems: list[Problem] = []
    for name, value in pairs:
        if name not in known:
            text = "There is no such parameter: leave it out, or look at its spelling."
            problems.append(Problem(field_at((name,), gate), text))
        elif name in found:
            problems.append(Problem(name, "Give this parameter once."))
        found[name] = value
    if problems:
        raise InvalidRequest(problems)
    return found


def read_number(found: dict[str, str], name: str, default: int, most: int) -> int:
    """Return a parameter as a whole number from 1 on.

    Raises:
        InvalidRequest: it is something else.
    """
    value = found.get(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and len(value) <= len(str(most))):
        number = 0
    else:
        number = int(value)
    if not 1 <= number <= most:
        raise InvalidRequest([Problem(name, f"Use a number from 1 to {most}.")])
    return number
