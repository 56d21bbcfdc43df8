"""Write the tables of the reference pages from the code: ``python -m docs.tables``.

Each is a marked part of a page of ``docs/reference/``. Benchmarks write those of other pages.
``tests/docs/test_tables.py`` fails where a page and the code differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from unittest.mock import MagicMock

import click

from lockgate import Gate, LeakReports, Refusal, Registration, errors
from lockgate.cli.main import lockgate
from lockgate.metrics import Metrics, StoreCall
from lockgate.opentelemetry import instrument
from lockgate.options import WebOptions
from lockgate.prometheus import GateCollector
from lockgate.sessions import SignedCookie
from lockgate.web.operations.openapi import describe

from .events import events
from .marked import Row, fill_parts, table

PAGES: Final = Path(__file__).parent / "reference"
_SECRET: Final = "a secret of these tables, of no service"
_NUMBERS: Final = re.compile(r" \((?:[DK]\d+|RFC)\b[^()]*\)|, D\d+(?=\))")
_HELP: Final = re.compile(r"(?<=\.) .*|\x08.*")
"""What follows the first sentence of the help of a command."""
_COMMON: Final = {"--gate", "--store", "--json"}
_EVENT: Final = re.compile(r"^\| `(\w+)` .*\| (.*) \|$", re.MULTILINE)


def code(text: object) -> str:
    """Set a text in backticks."""
    return f"`{text}`"


def codes(texts: Iterable[object]) -> str:
    """Set texts in backticks, separated by commas."""
    return ", ".join(map(code, texts))


def refusals(parent: type[Refusal] = Refusal) -> Iterator[type[Refusal]]:
    """Yield each refusal with a code, a class before its subclasses."""
    for kind in parent.__subclasses__():
        if kind.__module__ == errors.__name__:
            if hasattr(kind, "code"):
                yield kind
            yield from refusals(kind)


def error_table() -> str:
    """Return a line for each error: status, code, class and meaning."""
    rows = [
        (str(kind.status), code(kind.code), code(kind.__name__), _summary(kind))
        for kind in sorted(refusals(), key=lambda kind: kind.status)
    ]
    return table(("status", "code", "class", "meaning"), *rows)


def _summary(kind: type) -> str:
    """Return the first paragraph of a docstring without the numbers of decisions."""
    first = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    return _NUMBERS.sub("", first).rstrip(".").replace("``", "`")


def event_table(before: str) -> str:
    """Return a line for each event: name, level, fields and meaning.

    Args:
        before: the table as it is in the page, which gives the order and the meanings. A new event
            comes last, and has none yet.
    """
    found = events()
    meanings = {name: meaning for name, meaning in _EVENT.findall(before) if name in found}
    rows = [
        (code(name), found[name][0], codes(found[name][1]), meanings.get(name, ""))
        for name in [*meanings, *sorted(found.keys() - meanings.keys())]
    ]
    return table(("event", "level", "fields", "meaning"), *rows)


def _gate() -> Gate:
    """Return a gate that serves every operation, and has counted each kind of metric."""
    gate = Gate(
        "memory://",
        brand="acme",
        sessions=SignedCookie([_SECRET]),
        web_options=WebOptions(public_url="https://console.example.com", health="/health"),
        features=[
            Registration(
                session_secrets=[_SECRET], dashboard_url="https://console.example.com/connect"
            ),
            LeakReports(keys=dict),
        ],
    )
    metrics: Metrics = gate.metrics
    metrics.admit("free")
    metrics.refuse("RATE_LIMIT_EXCEEDED", "free", "minute")
    metrics.happen("breaker_opened", {"store": "RedisStore", "node": "127.0.0.1:6379"})
    metrics.decide_locally(admitted=True)
    metrics.call(StoreCall("redis", "admit", 0.001))
    return gate


def prometheus_table() -> str:
    """Return a line for each metric of Prometheus: name, type, labels and meaning."""
    rows: list[Row] = []
    for family in GateCollector(_gate()).collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = [label for label in family.samples[0].labels if label != "le"]
        rows.append((code(name), family.type, codes(labels), family.documentation.rstrip(".")))
    return table(("metric", "type", "labels", "meaning"), *rows)


def opentelemetry_table() -> str:
    """Return a line for each instrument of OpenTelemetry: name, unit, attributes and meaning."""
    provider = MagicMock()
    instrument(_gate(), provider)
    rows: list[Row] = []
    for call in provider.get_meter.return_value.method_calls:
        name, [observe], unit, meaning = call.args
        attributes = dict.fromkeys(key for seen in observe(None) for key in seen.attributes or {})
        rows.append((code(name), code(unit), codes([*attributes]), meaning.rstrip(".")))
    return table(("instrument", "unit", "attributes", "meaning"), *rows)


def operations_table() -> str:
    """Return a line for each operation: method and path, credential, input and answer."""
    rows: list[Row] = []
    for path, methods in describe(_gate(), "")["paths"].items():
        for method, told in methods.items():
            status = next(status for status in told["responses"] if status < "300")
            rows.append(
                (
                    code(f"{method.upper()} {path}"),
                    told["summary"],
                    _credentials(told.get("security", [])),
                    _input(told),
                    f"{status} {_link(told['responses'][status])}".strip(),
                )
            )
    return table(("operation", "effect", "credential", "input", "answer"), *rows)


def _credentials(security: list[Mapping[str, list[str]]]) -> str:
    """Return the credentials of an operation, with the scopes that a key needs."""
    shown: list[str] = []
    for scheme, scopes in (item for entry in security for item in entry.items()):
        needs = f" with {codes(scopes)}" if scopes and scheme == "key" else ""
        shown.append(f"{scheme}{needs}")
    return " or ".join(shown) or "none"


def _input(told: Mapping[str, Any]) -> str:
    """Return the body and the query parameters of an operation."""
    query = [code(f"?{given['name']}=") for given in told["parameters"] if given["in"] == "query"]
    return ", ".join([*filter(None, [_link(told.get("requestBody", {}))]), *query])


def _link(body: Mapping[str, Any]) -> str:
    """Return a link to the table of the schema of a body; empty if it has none."""
    schema = body.get("content", {}).get("application/json", {}).get("schema", {})
    name = schema.get("$ref", "").rpartition("/")[2]
    return _anchor(name) if name else ""


def _anchor(name: str) -> str:
    """Return a link to the section of a schema."""
    return f"[{name}](#{name.lower()})"


def schemas_tables() -> str:
    """Return a section for each body of the operations, with a line for each field."""
    document = describe(_gate(), "")
    asked = {
        _link(told.get("requestBody", {}))
        for methods in document["paths"].values()
        for told in methods.values()
    }
    return "\n".join(
        f"### {name}\n\n{_fields(schema, partial=name == 'Error' or _anchor(name) in asked)}"
        for name, schema in document["components"]["schemas"].items()
    )


def _fields(schema: Mapping[str, Any], *, partial: bool) -> str:
    """Return the fields of a body, which may lack the optional ones if it is ``partial``."""
    if "properties" not in schema:
        return f"A {_type(schema)}.\n"
    required = schema.get("required", []) if partial else schema["properties"]
    rows: list[Row] = [
        (
            code(name),
            _type(field) + ("" if name in required else ", optional"),
            " ".join(field.get("description", "").split()),
        )
        for name, field in schema["properties"].items()
    ]
    return table(("field", "type", "meaning"), *rows)


def _type(field: Mapping[str, Any]) -> str:
    """Return the type of a field in words, with a link for that of another schema."""
    if "anyOf" in field:
        return " or ".join(map(_type, field["anyOf"]))
    if "$ref" in field:
        return _anchor(field["$ref"].rpartition("/")[2])
    if "enum" in field or "const" in field:
        return " or ".join(code(value) for value in field.get("enum", [field.get("const")]))
    kind = field.get("type", "any")
    if kind == "array":
        return f"list of {_type(field.get('items', {}))}"
    return f"{kind} ({field['format']})" if "format" in field else str(kind)


def commands_table() -> str:
    """Return a line for each command: arguments, effect and options."""
    rows: list[Row] = [
        (
            code(" ".join(("lockgate", *path, *map(_argument, arguments)))),
            _HELP.sub("", " ".join((command.help or "").split())).rstrip("."),
            codes(
                each.opts[0]
                for each in command.params
                if isinstance(each, click.Option) and each.opts[0] not in _COMMON
            ),
        )
        for path, command in _commands(lockgate)
        for arguments in [[each for each in command.params if isinstance(each, click.Argument)]]
    ]
    return table(("command", "effect", "options"), *rows)


def _commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command that is no group, with its path, in the order of the names."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name, part in sorted(command.commands.items()):
        yield from _commands(part, (*path, name))


def _argument(argument: click.Argument) -> str:
    """Return an argument as the help of a command writes it."""
    kind = argument.type
    name = "{" + "|".join(kind.choices) + "}" if isinstance(kind, click.Choice) else None
    shown = argument.metavar or name or (argument.name or "").upper()
    return shown if argument.required or shown.startswith("[") else f"[{shown}]"


TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "errors": error_table,
    "prometheus": prometheus_table,
    "opentelemetry": opentelemetry_table,
    "operations": operations_table,
    "schemas": schemas_tables,
    "commands": commands_table,
}


def filled(page: str) -> str:
    """Return the text of a page with its tables as the code gives them."""

    def fill(name: str, before: str) -> str:
        return event_table(before) if name == "events" else TABLES[name]()

    return fill_parts(page, fill)


def main() -> None:
    """Write the tables into the pages."""
    for page in PAGES.glob("*.md"):
        text = page.read_text()
        new = filled(text)
        if new != text:
            page.write_text(new)


if __name__ == "__main__":
    main()
