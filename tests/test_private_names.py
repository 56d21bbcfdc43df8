"""lockgate uses no private name of another package, but for a few: each in one place, and there.

A release of a package may drop such a name without a word. These tests then say which place of
lockgate has to follow, where otherwise a route would miss in the audit or a call would hang.
"""

import ast
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pymysql
import pytest
from django.conf import settings
from django.core.handlers.wsgi import WSGIRequest
from fastapi import APIRouter, FastAPI
from fastmcp import FastMCP
from mcp.server.mcpserver import MCPServer

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"
PAGE = ROOT / "docs" / "extending" / "checks.md"
DOCUMENTED = {"_replace", "_asdict", "_make", "_fields", "_field_defaults", "_current_frames"}
"""Names of `typing.NamedTuple` and `sys` that Python's documentation lists."""

KNOWN = {
    ("lockgate/web/django_responses.py", "_body"),
    ("lockgate/stores/runtime/process_hooks.py", "_at_fork_reinit"),
    ("lockgate/stores/sql/raw_connections.py", "_sock"),
    ("lockgate/web/mcp_servers.py", "_components"),
    ("lockgate/web/mcp_servers.py", "_mcp_server"),
    ("lockgate/web/mcp_servers.py", "_prompt_manager"),
    ("lockgate/web/mcp_servers.py", "_resource_manager"),
    ("lockgate/web/mcp_servers.py", "_tool_manager"),
    ("lockgate/web/starlette_routes.py", "_effective_low_priority_routes_version"),
    ("lockgate/web/starlette_routes.py", "_low_priority_routes"),
}


def named(node: ast.AST) -> str | None:
    """The name that an expression looks up on an object, by a dot or by text."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
        looked_up = node.args[1]
        if node.func.id in {"getattr", "setattr", "hasattr"} and isinstance(
            looked_up, ast.Constant
        ):
            return str(looked_up.value)
    return None


def private_names(file: Path) -> Iterator[str]:
    """The private names of other packages in a module: it defines none of them itself."""
    nodes = [*ast.walk(ast.parse(file.read_text()))]
    own = {n.id for n in nodes if isinstance(n, ast.Name)}
    own |= {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            own |= {node.attr} if node.value.id in {"self", "cls"} else set()
    for node in nodes:
        name = named(node)
        if name and name[0] == "_" != name[1:2] and name not in own | DOCUMENTED:
            yield name
        if isinstance(node, ast.ImportFrom) and not node.level and node.module != "__future__":
            path = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            yield from (part for part in path if part.startswith("_"))


def test_private_names_of_other_packages_are_used_in_one_place_each() -> None:
    files = sorted(SOURCES.rglob("*.py"))
    found = [(str(f.relative_to(SOURCES)), name) for f in files for name in private_names(f)]
    assert sorted(found) == sorted(KNOWN)


def test_the_page_on_checks_lists_the_private_names() -> None:
    page = PAGE.read_text()
    assert [name for _, name in sorted(KNOWN) if f"`{name}`" not in page] == []


@pytest.mark.skipif(not hasattr(FastAPI, "frontend"), reason="This FastAPI has no front ends.")
def test_fastapi_keeps_front_ends_where_the_audit_looks_for_them(tmp_path: Path) -> None:
    router = APIRouter()
    router.frontend("/pages", directory=tmp_path)
    groups = getattr(router, "_low_priority_routes", None)
    assert groups, "FastAPI keeps front ends elsewhere: change web/starlette_routes.py"
    assert [pages.path for group in groups for pages in group.routes] == ["/pages"]
    app = FastAPI()
    app.include_router(router)
    (layer,) = (route for route in app.routes if hasattr(route, "effective_candidates"))
    name = "_effective_low_priority_routes_version"
    assert hasattr(layer, name), "FastAPI caches front ends otherwise: change starlette_routes.py"


def test_other_packages_keep_their_private_names() -> None:
    server, fast = MCPServer("tools"), FastMCP("tools")
    for name in ("_tool_manager", "_resource_manager", "_prompt_manager"):
        assert hasattr(server, name), "The SDK keeps it elsewhere: change web/mcp_servers.py"
    assert hasattr(fast, "_mcp_server"), "FastMCP's server is elsewhere: change web/mcp_servers.py"
    components = getattr(fast.local_provider, "_components", None)
    assert components == {}, "FastMCP keeps components elsewhere: change web/mcp_servers.py"
    connection = pymysql.Connection(defer_connect=True)
    assert hasattr(connection, "_sock"), "PyMySQL's socket is elsewhere: change raw_connections.py"
    lock = threading.Lock()
    lock.acquire()
    reset = getattr(lock, "_at_fork_reinit", None)
    assert reset, "Python resets locks otherwise: change stores/runtime/process_hooks.py"
    reset()
    assert not lock.locked()


def test_django_keeps_a_body_that_was_read() -> None:
    if not settings.configured:
        settings.configure()
    environ = {"REQUEST_METHOD": "POST", "CONTENT_LENGTH": "1", "wsgi.input": BytesIO(b"x")}
    request = WSGIRequest(environ)
    assert not hasattr(request, "_body")
    assert request.body == b"x"
    assert hasattr(request, "_body"), "Django keeps a body elsewhere: change _operate in django.py"
