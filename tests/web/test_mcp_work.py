"""Holds and slots of MCP tools, and clients that go away while a tool runs (D26, D41)."""

import asyncio
import json
import socket

import pytest

from lockgate import ConfigurationError, Limit, Rule, run
from lockgate.errors import Refusal
from lockgate.mcp import caller, hold, principal, requires
from tests.patience import until

from .mcp_service import ACCEPT, SERVERS, Service, call, error_of, gate_of, key_of, message, named
from .serving import served

both_servers = pytest.mark.parametrize("kind", SERVERS)
TOKENS = Limit("tokens", "100/minute")
JOBS = ("one", "two")


def waiting(service: Service) -> None:
    """Tools that never end: one holds a slot, the other one units."""

    async def wait() -> str:
        service.ran.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            service.ran.append("ended")
        return ""

    @service.tool()
    @requires("search:read", slot=True)
    async def render() -> str:
        return await wait()

    @service.tool()
    async def complete() -> str:
        async with hold({TOKENS: 90}) as held:
            held.used(5)
            return await wait()


def begun(service: Service, address: tuple[str, int], key: str, body: object, **more: str) -> None:
    """Send a call, wait until the tool has begun, and go away."""
    content = json.dumps(body).encode()
    headers = {**ACCEPT, "authorization": f"Bearer {key}", "host": "127.0.0.1:8000", **more}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST /mcp HTTP/1.1\r\n{lines}content-length: {len(content)}\r\n\r\n"
    with socket.create_connection(address, 60) as connection:
        connection.sendall(head.encode() + content)
        until(lambda: service.ran.count("begun") == 1)


async def take_both(service: Service) -> list[str]:
    """Take both slots of the plan; return their owners."""
    slots = service.gate.slots
    return [(await slots.acquire("org_1", job)).owner for job in JOBS]


async def free(service: Service, owners: list[str]) -> None:
    for job, owner in zip(JOBS, owners, strict=True):
        await service.gate.slots.release("org_1", job, owner)


@both_servers
@pytest.mark.parametrize(
    ("tool", "modern", "json_response"),
    [("render", True, True), ("complete", False, True), ("complete", True, False)],
)
def test_a_client_that_goes_away_ends_the_tool_its_slot_and_its_hold(
    kind: str, tool: str, modern: bool, json_response: bool
) -> None:
    options = {"json_response": json_response, "stateless_http": True}
    service = Service(kind, gate_of(), add=waiting, app=options)
    key = key_of(service.gate)
    with served(service.app) as address:
        headers = named("tools/call", tool) if modern else {}
        begun(service, address, key, call(tool, modern=modern), **headers)
        until(lambda: service.ran == ["begun", "ended"])

        def is_free() -> bool:
            try:
                run(take())
            except Refusal:
                return False
            return True

        async def take() -> None:
            held = await service.gate.holds.take("org_1", {TOKENS: 95})
            await service.gate.holds.settle(held.id, 0)
            await free(service, await take_both(service))

        until(is_free)


@both_servers
async def test_a_call_without_a_free_slot_is_429(kind: str) -> None:
    service = Service(kind, rules={"tools/call echo": Rule("search:read", slot=True)})
    key = key_of(service.gate)
    async with service.running():
        headers = named("tools/call", "echo")
        assert (await service.post(call("echo", text="x"), key, headers)).status_code == 200
        taken = await take_both(service)
        response = await service.post(call("echo", text="x"), key, headers)
        assert response.status_code == 429
        assert error_of(response)["data"]["code"] == "CONCURRENT_LIMIT_EXCEEDED"
        batch = [call("echo", text="x", modern=False)] * 2
        await free(service, taken)
        response = await service.post([message("ping", modern=False), *batch], key)
        assert response.status_code == 400
    assert service.ran == ["echo"]


def test_outside_of_a_call_there_is_no_caller() -> None:
    for ask in (caller, principal):
        with pytest.raises(ConfigurationError, match="protect"):
            ask()
