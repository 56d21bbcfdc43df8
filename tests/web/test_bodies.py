"""Bodies: strict in, plain out."""

from __future__ import annotations

import contextlib
import json
from contextlib import nullcontext
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from lockgate import Gate, ImportedKeyFormat, run
from lockgate.errors import InvalidRequest, UnsupportedMediaType
from lockgate.options import KeyOptions
from lockgate.web.bodies import read_body, require_json, written
from lockgate.web.operations.schemas import CreateKey


class Wanted(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    number: int
    names: list[str] = []


def problems(body: bytes) -> list[tuple[str, str]]:
    with pytest.raises(InvalidRequest) as caught:
        read_body(body, Wanted)
    return [(problem.field, problem.message) for problem in caught.value.problems]


def test_a_byte_order_mark_before_a_body_is_ignored() -> None:
    """Clients of .NET and VS Code send one."""
    assert read_body(b' {"number": 3, "names": ["a"]}\n', Wanted) == Wanted(number=3, names=["a"])
    assert read_body(b'\xef\xbb\xbf{"number": 3}', Wanted) == Wanted(number=3)
    assert problems(b"\xef\xbb\xbf\xef\xbb\xbf{}") == [("", "The body is not JSON in UTF-8.")]
    assert problems('{"number": 3}'.encode("utf-16"))


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{}", "number"),
        (b'{"number": "3"}', "number"),
        (b'{"number": 3, "names": ["a", 1]}', "names.1"),
        (b'{"number": 3, "more": 1}', "more"),
        (b"", ""),
        (b'{"number": NaN}', ""),
        (b'{"number": 1, "number": 1}', ""),
        (b'{"number": 1, "names": [{"a": 1, "a": 1}]}', ""),
        ('{"number": 1}'.encode("utf-16"), ""),
        (b"[" * 100_000, ""),
    ],
)
def test_a_problem_names_its_field_in_a_sentence(body: bytes, field: str) -> None:
    ((found, message),) = problems(body)
    assert found == field
    assert message.endswith(".")
    assert message[0].isupper()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()))
def test_g3_any_bytes_and_any_json_are_a_value_or_the_refusal(body: bytes) -> None:
    try:
        read_body(body, Wanted)
    except InvalidRequest as refusal:
        written(refusal.body()).decode()


@pytest.mark.parametrize(
    ("types", "good"),
    [
        *(([one], True) for one in (b"application/json", b"Application/JSON; charset=utf-8")),
        ([b" application/json ;x"], True),
        ([], False),
        ([b"application/json", b"application/json"], False),
        *(([one], False) for one in (b"", b"text/plain; application/json", b"application/jsonx")),
        *(([one], False) for one in (b"application/json, text/plain", b"application/ld+json")),
    ],
)
def test_only_a_body_declared_as_json_is_accepted(types: list[bytes], good: bool) -> None:
    with nullcontext() if good else pytest.raises(UnsupportedMediaType):
        require_json(types)


KEYSHIELD = r"ak-(?P<handle>[0-9a-f]{16})-(?P<secret>[A-Za-z0-9]{64})"


@pytest.mark.parametrize("foreign", [False, True])
def test_k2_no_part_of_a_key_is_in_an_error(foreign: bool) -> None:
    """A problem shows the first letters of the value; a key is redacted before."""
    gate = Gate(
        "memory://",
        brand="acme",
        key_options=KeyOptions(
            legacy=[ImportedKeyFormat("keyshield", KEYSHIELD, schemes=["sha256"], secret="secret")],
        ),
    )
    ours = run(gate.keys.create("org_1", "a key")).text
    key = f"ak-{'0' * 16}-{'Canary' * 10}abcd" if foreign else ours
    secret = key.rpartition("-" if foreign else "_")[2]
    for sent in ({key: 1}, {"scopes": [key]}, {"scopes": ["jobs:raed", f"Bearer {key}"]}):
        with pytest.raises(InvalidRequest) as refused:
            read_body(json.dumps({"name": "x", **sent}).encode(), CreateKey, gate)
        told = json.dumps(refused.value.body())
        assert secret[:8] not in told
    with pytest.raises(InvalidRequest) as refused:
        read_body(json.dumps({"name": "x", "scopes": ["jobs:raed"]}).encode(), CreateKey, gate)
    assert "'jobs:raed'" in str(refused.value.body())


def test_of_thousands_of_unknown_fields_only_the_first_are_named() -> None:
    """A problem for each would take some 20 ms, in an operation without a credential."""
    numbered = {f"{number:x}": 1 for number in range(8000)}
    body = json.dumps(numbered | {"number": "3"}, separators=(",", ":")).encode()
    told = ("number", "Input should be a valid integer.")
    sentence = "There is no such field: leave it out, or look at its spelling."
    assert problems(body) == [told, *((f"{n:x}", sentence) for n in range(49))]

    def seconds(model: type[BaseModel]) -> float:
        started = process_time()
        with contextlib.suppress(InvalidRequest):
            read_body(body, model)
        return process_time() - started

    class Any(BaseModel):
        number: str

    assert min(seconds(Wanted) for _ in range(5)) < 3 * min(seconds(Any) for _ in range(5))


class Plain(BaseModel):
    name: str
    scopes: list[object]


@pytest.mark.parametrize("scope", ["", 1])
def test_too_many_scopes_are_refused_before_each_is_read(scope: object) -> None:
    gate = Gate("memory://", brand="acme")
    scopes = [scope] * 21_000
    body = json.dumps({"name": "x", "scopes": scopes}, separators=(",", ":")).encode()
    assert len(body) < 64 * 1024

    def seconds(model: type[BaseModel]) -> float:
        started = process_time()
        try:
            read_body(body, model, gate)
        except InvalidRequest as refusal:
            (problem,) = refusal.problems
            assert problem == ("scopes", "Give 1 to 50 scopes.")
        return process_time() - started

    assert min(seconds(CreateKey) for _ in range(5)) < 3 * min(seconds(Plain) for _ in range(5))
