"""The MCP server among the examples refuses each tool by its own scope and limit."""

from .test_servers import served


def test_each_tool_has_its_scope_and_its_limit() -> None:
    with served("uvicorn-httptools", "mcp_server:app") as running:
        key = {"Authorization": f"Bearer {running.printed['key']}"}
        accept = {"Accept": "application/json, text/event-stream"}
        with running.client({**key, **accept}) as client:

            def call(tool: str, **arguments: object) -> tuple[int, str]:
                params = {"name": tool, "arguments": arguments}
                message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                response = client.post("/mcp", json=message)
                return response.status_code, response.text

            assert "coffee" in call("search", query="93")[1]
            assert "written for org_1" in call("write", name="new", text="one two three")[1]
            assert "one two" in call("summarize", name="new", max_tokens=2)[1]
            assert '"code":-32023' in call("summarize", name="new", max_tokens=10_000)[1]
            statuses = [call("write", name="new", text="")[0] for _ in range(10)]
            assert statuses.count(429) > 4
