"""Reading and writing JSON bodies: strict in, plain out (D17)."""

import json
from collections.abc import Sequence
from typing import Any, Final, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from ..errors import InvalidRequest, Problem, UnsupportedMediaType
from ..gate import Gate

BODY_LIMIT: Final = 64 * 1024
"""The most bytes that lockgate's own operations read."""

PROBLEMS_AT_MOST: Final = 50
_SHOWN: Final = 40
"""Characters of a field's name that an error repeats: it may be a session, in the wrong place."""

Model = TypeVar("Model", bound=BaseModel)


def require_json(content_types: Sequence[bytes]) -> None:
    """Continue only if the body is declared as JSON, exactly once.

    Raises:
        UnsupportedMediaType: it is not; a form that another site's page posts is not (D11).
    """
    types = [value.partition(b";")[0].strip().lower() for value in content_types]
    if types != [b"application/json"]:
        raise UnsupportedMediaType


def read_body(body: bytes, model: type[Model], gate: Gate | None = None) -> Model:
    """Read a JSON body.

    Args:
        body: as it came; a byte order mark before it is ignored (RFC 8259, 8.1).
        model: its shape.
        gate: the gate whose keys are blotted out where a problem would show one; validators find
            it as their context.

    Raises:
        InvalidRequest: it is not JSON in UTF-8, names a member twice, or is not of the model's
            shape; the problems never repeat a value.
    """
    try:
        value = json.loads(
            body.decode("utf-8-sig"), object_pairs_hook=_members, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as problem:
        duplicate = isinstance(problem, _Duplicate)
        message = str(problem) if duplicate else "The body is not JSON in UTF-8."
        raise InvalidRequest([Problem("", message)]) from None
    if isinstance(value, dict):
        _drop_further(cast(dict[str, Any], value), model)
    try:
        return model.model_validate(value, context=gate)
    except ValidationError as invalid:
        found = invalid.errors(include_url=False, include_context=False, include_input=False)
        raise InvalidRequest(
            Problem(field_at(error["loc"], gate), _sentence(error["type"], error["msg"]))
            for error in found[:PROBLEMS_AT_MOST]
        ) from None


def written(body: object) -> bytes:
    """A JSON body as bytes; a lone surrogate, which is no character, becomes ``?``."""
    try:
        return to_json(body)
    except ValueError:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def _drop_further(members: dict[str, Any], model: type[BaseModel]) -> None:
    """Drop the unknown members of a body but for those that can be told, the first ones.

    A body has room for thousands, and making a problem of each takes ten times as long as the rest.
    """
    known = {field.alias or name for name, field in model.model_fields.items()}
    for name in [name for name in members if name not in known][PROBLEMS_AT_MOST:]:
        del members[name]


class _Duplicate(ValueError):
    """A JSON object that names a member twice: readers disagree which one counts (RFC 8259, 4)."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _Duplicate("The body names a member twice: name each once.")
    return members


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def field_at(location: Sequence[int | str], gate: Gate | None) -> str:
    """A dotted path, without any key (K2). A caller names fields, and may put one there."""
    shown = map(str, location) if gate is None else (gate.format.redact(str(s)) for s in location)
    return ".".join(step[:_SHOWN] for step in shown)  # Half of a key would not look like one.


def _sentence(kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return "There is no such field: leave it out, or look at its spelling."
    if kind == "missing":
        return "This field is required."
    return message if kind == "unfit" else f"{message}."
