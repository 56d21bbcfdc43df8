"""The OpenAPI document is valid and complete, and describes the real answers."""

from __future__ import annotations

import re
from typing import Any

from starlette.applications import Starlette

from lockgate import PUBLIC, LeakReports, Limit, Registration, Rule
from lockgate.asgi import GateMiddleware
from lockgate.options import WebOptions
from lockgate.starlette import error_handlers, operations
from lockgate.web.operations.openapi import describe

from ..driving import Bench, ask

OTHERS = [
    ("GET", "/health", PUBLIC, "Health"),
    ("POST", "/jobs/{id}/frames/{frame}", Rule("jobs:write"), "Add a frame"),
]


def document(**fields: Any) -> dict[str, Any]:
    return describe(Bench(**fields).gate, "A service", OTHERS)


def references(node: object) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*map(references, node.values()))
    return set[str]().union(*map(references, node)) if isinstance(node, list) else set()


def test_the_document_is_valid_and_every_reference_leads_somewhere() -> None:
    from openapi_spec_validator import validate  # Seconds, in each process that collects tests.

    features = [
        LeakReports(keys=lambda: {"public_keys": []}),
        Registration(session_secrets=["a session secret of the tests"]),
    ]
    for found in (document(), document(features=features)):
        names = {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}
        assert references(found) <= names
        assert "#/components/schemas/Error" in references(found)
    validate(found)


def test_every_operation_is_there() -> None:
    operations = {(method, path) for path, item in document()["paths"].items() for method in item}
    assert operations == {
        ("get", "/api/v1/api-keys"),
        ("post", "/api/v1/api-keys"),
        ("get", "/api/v1/api-keys/{id}"),
        ("delete", "/api/v1/api-keys/{id}"),
        ("get", "/api/v1/account/rate-limits"),
        ("get", "/health"),
        ("post", "/jobs/{id}/frames/{frame}"),
    }
    assert "/v7/api-keys" in document(web_options=WebOptions(prefix="/v7"))["paths"]


def test_the_document_has_the_parameters_of_each_path_in_every_form() -> None:
    others = [
        *OTHERS,
        ("GET", "/files/{name:path}", Rule("upload:read"), "Read a file"),
        ("GET", "/v{version}/x", Rule("upload:read"), "In a segment"),
    ]
    for path, item in describe(Bench().gate, "A service", others)["paths"].items():
        for operation in item.values():
            names = [parameter["name"] for parameter in operation["parameters"]]
            assert names == re.findall(r"\{(.*?)\}", path)
            assert all(re.fullmatch(r"\w+", name) for name in names)


def test_the_document_has_the_credentials_of_each_operation() -> None:
    paths = document()["paths"]
    assert paths["/health"]["get"]["security"] == []
    assert paths["/api/v1/api-keys"]["post"]["security"] == [{"session": []}]
    assert paths["/api/v1/api-keys"]["get"]["security"] == [
        {"key": ["account:read"]},
        {"session": ["account:read"]},
    ]


def test_every_answer_carries_the_rate_headers() -> None:
    for item in document()["paths"].values():
        for operation in item.values():
            for response in operation["responses"].values():
                assert sum("RateLimit" in name for name in response["headers"]) == 3


def test_operations_behind_the_gate_have_their_named_limits() -> None:
    export = Limit("export", "3/hour", by="key")
    login = Rule(public=True, limits=[Limit("login", "5/minute", by="address")])
    others = [
        ("POST", "/exports", Rule("jobs:write", limits=[export]), "Export"),
        ("POST", "/login", login, "Sign in"),
        *OTHERS,
    ]
    paths = describe(Bench().gate, "A service", others)["paths"]
    assert paths["/exports"]["post"]["x-rate-limits"] == [
        {
            "name": "export",
            "by": "key",
            "windows": [{"type": "hour", "limit": 3, "seconds": 3600}],
        }
    ]
    assert paths["/login"]["post"]["x-rate-limits"][0]["by"] == "address"
    assert "x-rate-limits" not in paths["/health"]["get"]


def fits(value: object, schema: dict[str, Any], schemas: dict[str, Any]) -> bool:
    """As much of JSON Schema as these models need, and no member that is not described."""
    if "$ref" in schema:
        return fits(value, schemas[schema["$ref"].rsplit("/", 1)[-1]], schemas)
    if "anyOf" in schema:
        return any(fits(value, each, schemas) for each in schema["anyOf"])
    kind = schema["type"]
    if kind == "object":
        known = schema["properties"]
        return (
            isinstance(value, dict)
            and value.keys() <= known.keys()
            and set(schema.get("required", ())) <= value.keys()
            and all(fits(each, known[name], schemas) for name, each in value.items())
        )
    if kind == "array":
        return isinstance(value, list) and all(fits(v, schema["items"], schemas) for v in value)
    types = {"string": str, "boolean": bool, "null": type(None)}
    if kind in types:
        return isinstance(value, types[kind])
    numbers = int if kind == "integer" else (int, float)
    return isinstance(value, numbers) and not isinstance(value, bool)


async def test_every_answer_has_the_described_status_and_body() -> None:
    bench = Bench(rpm=9)
    bench.gate.know_limits([Limit("export", "3/hour")])
    app = GateMiddleware(
        Starlette(routes=operations(bench.gate), exception_handlers=error_handlers),
        bench.gate,
    )
    found = describe(bench.gate, "A service")
    session = bench.session()
    keys = "/api/v1/api-keys"

    async def check(method: str, path: str, status: int, at: str = "", **fields: Any) -> Any:
        answer = await ask(app, method, path, **fields)
        assert answer.status == status
        responses = found["paths"][at or path][method.lower()]["responses"]
        schema = responses[str(status)]["content"]["application/json"]["schema"]
        assert fits(answer.json(), schema, found["components"]["schemas"]), answer.json()
        assert not fits({**answer.json(), "more": 1}, schema, found["components"]["schemas"])
        return answer.json()

    created = await check("POST", keys, 201, session=session, json_body={"name": "x"})
    one = f"{keys}/{{id}}"
    await check("GET", keys, 200, session=session)
    await check("GET", f"{keys}/{created['id']}", 200, one, session=session)
    await check("GET", "/api/v1/account/rate-limits", 200, key=created["key"])
    await check("POST", keys, 400, session=session, json_body={})
    await check("POST", keys, 401)
    await check("GET", f"{keys}/x", 404, one, session=session)
    await check("DELETE", f"{keys}/{created['id']}", 200, one, session=session)
    for _ in range(3):
        await ask(app, "GET", keys, session=session)
    await check("GET", keys, 429, session=session)


def test_the_described_body_of_a_new_key_equals_the_accepted_body() -> None:
    found = document()
    schema = found["components"]["schemas"]["CreateKey"]
    assert schema["required"] == ["name"]
    assert schema["properties"].keys() == {"name", "scopes", "expiresInDays"}
    assert schema["additionalProperties"] is False
