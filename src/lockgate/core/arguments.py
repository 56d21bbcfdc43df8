"""Check arguments by their annotations, for values of settings classes and of the environment.

Such a class gives a pepper as ``SecretStr`` and a URL as ``HttpUrl``, and the environment every
number as text. Each would fail later, at a request or in words of its own. An argument that a class
does not have is refused with the class that has it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import lru_cache, wraps
from inspect import signature
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    Literal,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

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
_CHECKED: Final[list[type]] = []
"""The classes under :func:`checks_arguments`: an argument that one lacks may be another's."""

Class = TypeVar("Class", bound=type)


def checks_arguments(kind: Class) -> Class:
    """Refuse arguments of a class by their names and annotations before they reach it.

    Arguments that the class names in ``tells_of`` are left to it: it has messages of its own.

    Raises:
        ConfigurationError: when the class is called: it has no such argument, or one is of another
            type than its annotation names.
    """
    begin = cast(Any, kind).__init__

    @wraps(begin)
    def begin_checked(self: object, *given: object, **named: object) -> None:
        names = _parameters(kind)
        refuse_unknown(kind.__name__, names, named)
        arguments = {**dict(zip(names, given, strict=False)), **named}
        for own in getattr(kind, "tells_of", ()):
            arguments.pop(own, None)
        check_arguments(_annotated(kind), arguments)
        begin(self, *given, **named)

    cast(Any, kind).__init__ = begin_checked
    _CHECKED.append(kind)
    return kind


def refuse_unknown(owner: str, names: Sequence[str], given: Iterable[str]) -> None:
    """Refuse an argument that a class or a function does not have, and tell what has it.

    Args:
        owner: the class or the function.
        names: its arguments.
        given: the names of the arguments that it is called with.

    Raises:
        ConfigurationError: names the place of the argument, or the nearest name.
    """
    for name in given:
        if name not in names:
            places = " or ".join(_places(name)) or _nearest(name, names)
            raise ConfigurationError(f"{owner} has no argument {name!r}: {places}.")


def _places(name: str) -> Iterator[str]:
    """Yield what to write for an argument of another class."""
    for kind in _CHECKED:
        if name in _parameters(kind):
            yield f"it is in {kind.__name__}, as {_way(kind, f'{name}=...')}"


def _way(kind: type, inside: str) -> str:
    """Return the call of a class, inside of that of the one class that takes it."""
    call = f"{kind.__name__}({inside})"
    takers = [
        (taker, name, hint)
        for taker in _CHECKED
        for name, hint in _hints(_annotated(taker)).items()
        if name in _parameters(taker) and kind in _named(hint)
    ]
    if len(takers) != 1:
        return call
    taker, name, hint = takers[0]
    is_listed = not any(part is kind for part in (hint, *get_args(hint)))
    return _way(taker, f"{name}=[{call}]" if is_listed else f"{name}={call}")


def _nearest(name: str, names: Sequence[str]) -> str:
    """Return what to write for the name of a class, or for a misspelled one."""
    from difflib import get_close_matches

    others = [other for kind in _CHECKED for other in _parameters(kind)]
    near = get_close_matches(name, names, 1, 0.8)
    for kind in () if near else _CHECKED:
        if name == re.sub(r"(?<=.)(?=[A-Z])", "_", kind.__name__).lower():
            return f"write {_way(kind, '...')}"
    near = near or get_close_matches(name, [*names, *others], 1)
    if not near:
        return f"choose from {', '.join(names)}"
    place = "" if near[0] in names else f", {next(_places(near[0]))}"
    return f"write {near[0]!r}{place}"


@lru_cache
def _parameters(kind: type) -> tuple[str, ...]:
    return tuple(signature(kind).parameters)


def _annotated(kind: Any) -> Any:
    return kind if is_dataclass(kind) else kind.__init__


_hints: Final = lru_cache(get_type_hints)


def _named(hint: Any) -> Iterator[object]:
    """Yield a hint and all hints inside of it."""
    yield hint
    for part in get_args(hint):
        yield from _named(part)


def check_arguments(annotated: Any, given: Mapping[str, object]) -> None:
    """Refuse an argument of another type than its annotation names.

    Args:
        annotated: the function, the dataclass or the ``TypedDict`` whose annotations hold.
        given: the arguments by name; names without an annotation are not looked at.

    Raises:
        ConfigurationError: names the argument, and never repeats its value, which may be a secret.
    """
    for name, hint in _hints(annotated).items():
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
    kind: Any = Sequence if origin is tuple else origin  # A list is as good.
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
