"""The OpenAPI document is valid and complete, and describes the real answers."""

from __future__ import annotations

import re
from typing import Any

from lockgate import PUBLIC, LeakReports, Limit, Registration, Rule
from lockgate.options import WebOptions
from lockgate.web.operations.openapi import describe

from ..driving import Bench

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


def test_the_described_body_of_a_new_key_equals_the_accepted_body() -> None:
    found = document()
    schema = found["components"]["schemas"]["CreateKey"]
    assert schema["required"] == ["name"]
    assert schema["properties"].keys() == {"name", "scopes", "expiresInDays"}
    assert schema["additionalProperties"] is False
