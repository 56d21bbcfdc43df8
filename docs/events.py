"""Read the events of lockgate from its code: their names, levels and fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

PACKAGE: Final = Path(__file__).parents[1] / "src" / "lockgate"

_SPREAD: Final[Mapping[str, tuple[str, ...]]] = {
    "self._about": ("store", "node"),
    "told": ("organization", "error", "remedy"),
    "kind._asdict()": ("code", "key", "plan", "window", "limit_name"),
}
"""The fields that a call of ``emit`` passes as ``**``, by the expression."""


class Emitted(NamedTuple):
    """One call that emits an event."""

    name: str
    level: str
    fields: tuple[str, ...]


@cache
def events() -> dict[str, tuple[str, list[str]]]:
    """Return the level and the fields of each event that the package emits, by name."""
    found: dict[str, tuple[str, list[str]]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for name, level, fields in emitted(ast.parse(path.read_text())):
            _, known = found.setdefault(name, (level, []))
            known += [field for field in fields if field not in known]
    return found


def emitted(tree: ast.Module) -> Iterator[Emitted]:
    """Yield the events that a module emits: by ``emit``, by a helper, or for an endpoint."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for call in (inner for inner in ast.walk(node) if isinstance(inner, ast.Call)):
                yield from _of_call(call, node)
        if isinstance(node, ast.keyword) and node.arg == "tells":
            yield Emitted(ast.literal_eval(node.value), "DEBUG", ("code", "address"))


def _of_call(call: ast.Call, function: ast.AST) -> Iterator[Emitted]:
    helper = isinstance(call.func, ast.Attribute) and call.func.attr == "_tell"
    if not isinstance(call.func, ast.Attribute) or not call.args:
        return
    if call.func.attr != "emit" and not helper:
        return
    args = [_assigned(arg, function) for arg in call.args]
    if isinstance(args[0], ast.Tuple):  # ``emit(*told)``
        args = args[0].elts
    level = "DEBUG"
    if len(args) > 1 and not helper:
        level = ast.unparse(args[1]).removeprefix("logging.")
    fields: list[str] = ["organization", "job"] if helper else []
    for keyword in call.keywords:
        if keyword.arg is not None:
            fields.append(keyword.arg)
        elif not isinstance(keyword.value, ast.Name) or not helper:
            fields += _SPREAD.get(ast.unparse(keyword.value), ())
    for name in _names(args[0]):
        yield Emitted(name, level, tuple(fields))


def _names(node: ast.expr) -> Iterator[str]:
    """Yield the texts that an expression may be."""
    match node:
        case ast.Constant(value=str() as name):
            yield name
        case ast.IfExp(body=body, orelse=orelse):
            yield from _names(body)
            yield from _names(orelse)


def _assigned(node: ast.expr, function: ast.AST) -> ast.expr:
    """Return the expression that a function assigns to a name, or the node itself."""
    if isinstance(node, ast.Starred):
        node = node.value
    if isinstance(node, ast.Name):
        for inner in ast.walk(function):
            if isinstance(inner, ast.Assign) and ast.unparse(inner.targets[0]) == node.id:
                return inner.value
    return node
