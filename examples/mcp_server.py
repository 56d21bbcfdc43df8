"""An MCP server behind a gate: keys, scopes and limits for each tool.

Make its secret once, serve it, and use the key that it prints::

    export LOCKGATE_PEPPER=$(python -c "import secrets; print(secrets.token_urlsafe())")
    uvicorn mcp_server:app
"""

import os

from mcp.server.mcpserver import MCPServer

from lockgate import Catalogue, Gate, Limit, run
from lockgate.mcp import caller, hold, protect, requires

gate = Gate(
    "memory://",
    brand="acme",
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
    catalogue=Catalogue.of(["search", "notes"]),
)
SEARCHES = Limit("searches", "30/minute", by="key")
TOKENS = Limit("tokens", "10000/minute;100000/day")
NOTES = {"tea": "Green tea brews at 80 degrees.", "coffee": "Coffee brews at 93 degrees."}

server = MCPServer("notes")


@server.tool()
@requires("search:read", limits=[SEARCHES])
async def search(query: str) -> list[str]:
    """Find notes; each key at most 30 times a minute."""
    return [name for name, text in NOTES.items() if query.lower() in text.lower()]


@server.tool()
@requires("notes:write", cost=5)
async def write(name: str, text: str) -> str:
    """Write a note, at the cost of five requests."""
    NOTES[name] = text
    return f"written for {caller().organization}"


@server.tool()
@requires("notes:read", slot=True)
async def summarize(name: str, max_tokens: int = 1000) -> str:
    """Summarize a note: holds the most tokens that it can use, and pays for those that it used."""
    async with hold({TOKENS: max_tokens}) as held:
        words = NOTES[name].split()[:max_tokens]
        held.used(len(words))
    return " ".join(words)


@server.resource("notes://{name}")
@requires("notes:read")
async def note(name: str) -> str:
    """A note by its name."""
    return NOTES[name]


protect(server, gate, rules={"tools/list": "search:read"}, strict=True)
app = server.streamable_http_app(stateless_http=True)

run(gate.organizations.place("org_1", "starter"))
print("key:", run(gate.keys.create("org_1", "first key", ["search:*", "notes:*"])).text)
