"""Check arguments by their annotations, for values of settings classes and of the environment.

Such a class gives a pepper as ``SecretStr`` and a URL as ``HttpUrl``, and the environment every
number as text. Each would fail later, at a request or in words of its own.
"""

from collections.abc import Callable, Iterable, Mapping
from types import NoneType, UnionType
from typing import Any, Final, Literal, Protocol, Union, cast, get_args, get_origin, get_type_hints

from ..errors import ConfigurationError

_WORDS: Final[Mapping[object, str]] = {
    str: "text",
    bytes: "bytes",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    NoneType: "None",
}
_NUMBERS: Final[Mapping[object, tuple[type, ...]]] = {int: (int,), float: (int, float)}


def check_arguments(annotated: Any, given: Mapping[str, object]) -> None:
    """Refuse an argument of another type than its annotation names.

    Args:
        annotated: the function, or the dataclass, whose annotations hold.
        given: the arguments by name; names without an annotation are not looked at.

    Raises:
        ConfigurationError: names the argument, and never repeats its value, which may be a secret.
    """
    for name, hint in get_type_hints(annotated).items():
        if name in given and (wrong := _wrong(name, given[name], hint)) is not None:
            place, value, wanted = wrong
            kind = "None" if value is None else f"of the type {type(value).__name__}"
            raise ConfigurationError(f"{place} is {kind}: give {_words(wanted)}.")


def _wrong(place: str, value: object, hint: Any) -> tuple[str, object, Any] | None:
    """Return what does not fit a hint, an element of a list or all: its place, value and hint."""
    origin, parameters = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        faults = [_wrong(place, value, part) for part in parameters]
        if None in faults:
            return None
        inside = (fault for fault in faults if fault is not None and fault[0] != place)
        return next(inside, (place, value, hint))
    if origin is None:
        return None if _fits(value, hint) else (place, value, hint)
    kind: Any = origin
    if origin is Literal:
        kind = type(cast(object, parameters[0]))
    if not isinstance(value, kind) or (kind is not str and isinstance(value, str | bytes)):
        return place, value, hint
    if isinstance(value, list | tuple) and issubclass(kind, Iterable):
        elements = enumerate(cast(Iterable[object], value))
        faults = [_wrong(f"{place}[{n}]", element, parameters[0]) for n, element in elements]
        return next(filter(None, faults), None)
    return None


def _fits(value: object, kind: Any) -> bool:
    """Return whether a value is one of a type without parameters."""
    if kind in _NUMBERS:
        return isinstance(value, _NUMBERS[kind]) and not isinstance(value, bool)
    if Protocol in getattr(kind, "__bases__", ()):
        # What it lacks besides functions has a message of its own, which says what to write.
        members = [name for name in dir(kind) if name[0] != "_" or name == "__call__"]
        functions = [name for name in members if callable(getattr(kind, name))]
        return all(hasattr(value, name) for name in functions)
    return not isinstance(kind, type) or isinstance(value, kind)


def _words(hint: Any) -> str:
    """Return how a message calls the values of a hint."""
    origin, parameters = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(map(_words, parameters))
    if origin is Literal:
        return " or ".join(map(repr, parameters))
    if origin is Callable:
        return "a function"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a dict"
    if origin is not None:
        return f"a list of {_words(parameters[0])}"
    return _WORDS.get(hint) or str(getattr(hint, "__name__", hint))
