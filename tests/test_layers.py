"""No module imports upward, none imports itself in a circle, and ``core`` is pure."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import lockgate

# From the ground up. A module may import from its own floor and from those below it.
FLOORS = (
    {"core", "errors"},
    {"clock", "error_formats", "events", "legacy", "metrics", "stores", "sync"},
    {"gate", "migrations", "options", "principal", "services", "sessions"},
    {"asgi", "web", "wsgi"},
    {"dashboard", "opentelemetry", "prometheus"}
    | {"django", "fastapi", "flask", "litestar", "mcp", "quart", "starlette"},
    {"demo", "testing"},
    {"cli", "__init__", "__main__"},
)

GROUND = FLOORS[0]

# What does I/O, tells the time or starts a thread has no business on the ground floor.
IMPURE = {
    *("_thread", "asyncio", "concurrent", "logging", "multiprocessing", "os", "pathlib", "select"),
    *("selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile"),
    *("threading", "time"),
}

# `datetime` is welcome for its calendar; these of its methods are a clock.
CLOCKS = {"datetime.now", "datetime.today", "datetime.utcnow", "date.today"}


class Import(NamedTuple):
    """An imported module in full: ``from .core import plans`` names ``lockgate.core.plans``."""

    module: str
    line: int


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes(), str(path))


def imports(tree: ast.Module, package: str) -> Iterator[Import]:
    """Every import in a module of the package, wherever it stands and even if only for types."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield Import(name.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            # One dot is the package itself, each further dot the one around it.
            around = package.rsplit(".", node.level - 1)[0] if node.level else ""
            for name in node.names:
                parts = filter(None, (around, node.module, name.name))
                yield Import(".".join(parts), node.lineno)


def clocks(tree: ast.Module) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in CLOCKS:
            yield Import(ast.unparse(node), node.lineno)


def floor(room: str) -> int | None:
    return next((level for level, rooms in enumerate(FLOORS) if room in rooms), None)


def violations(root: Path) -> list[str]:
    """Return the violations of the layers in the folder ``root``, a line for each."""
    rooms = {path.stem for path in root.iterdir() if path.suffix == ".py" or path.is_dir()}
    found: list[str] = []
    for path in sorted(root.rglob("*.py")):
        where = path.relative_to(root)
        room = where.parts[0].removesuffix(".py")
        level = floor(room)
        if level is None:
            found.append(f"{where}: no floor is named for {room}, add it to FLOORS")
            continue
        tree = parsed(path)
        package = ".".join([root.name, *where.parent.parts])
        for module, line in imports(tree, package):
            top, _, rest = module.partition(".")
            if top == root.name:
                # A name that is not a module is re-exported by the package's __init__.
                inner = rest.partition(".")[0]
                target = inner if inner in rooms else "__init__"
                if (floor(target) or 0) > level:
                    found.append(f"{where}:{line}: imports upward, {module}")
            elif room in GROUND and (top in IMPURE or top not in sys.stdlib_module_names):
                found.append(f"{where}:{line}: impure, {module}")
        if room in GROUND:
            found += [f"{where}:{line}: reads a clock, {name}" for name, line in clocks(tree)]
    return found


def circle(root: Path) -> list[str]:
    """Return the modules of a circle of imports, each importing the next; none: there is none."""
    modules: dict[str, Path] = {}
    for path in root.rglob("*.py"):
        parts = [root.name, *path.relative_to(root).with_suffix("").parts]
        modules[".".join(parts).removesuffix(".__init__")] = path
    imported: dict[str, set[str]] = {}
    for module, path in modules.items():
        package = module if path.stem == "__init__" else module.rpartition(".")[0]
        names = {found.module for found in imports(parsed(path), package)}
        # A name that is not a module is one of the module before the dot.
        targets = {name if name in modules else name.rpartition(".")[0] for name in names}
        imported[module] = targets & modules.keys()
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        return [*reversed(error.args[1])]
    return []


def test_no_module_imports_upward_or_in_a_circle_not_even_for_types() -> None:
    package = Path(next(iter(lockgate.__path__)))
    assert (package / "core").is_dir()
    assert violations(package) == []
    assert circle(package) == []


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A sound little house, to plant faults in."""
    root = tmp_path / "lockgate"
    for name, source in {
        "__init__.py": "from lockgate.gate import Gate",
        "errors.py": "from http import HTTPStatus",
        "core/__init__.py": "",
        "core/api_keys.py": "import hmac\nfrom datetime import datetime\nfrom ..errors import X",
        "stores/__init__.py": "import time\nfrom lockgate.core import api_keys",
        "stores/sql/__init__.py": "from ...core import api_keys\nfrom .. import base",
        "stores/sql/tables.py": "import sqlalchemy\nfrom . import migrations",
        "gate.py": "from . import stores",
        "web/__init__.py": "",
        "starlette.py": "import starlette\nfrom lockgate import gate, errors",
        "cli/__init__.py": "from lockgate import Gate\nimport lockgate.starlette",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return root


def test_a_sound_package_passes(house: Path) -> None:
    assert violations(house) == []
    assert circle(house) == []


@pytest.mark.parametrize(
    ("where", "source", "fault"),
    [
        ("core/api_keys.py", "from ..stores import sql", "imports upward, lockgate.stores.sql"),
        ("core/api_keys.py", "from .. import gate", "imports upward, lockgate.gate"),
        ("core/__init__.py", "from ..gate import Gate", "imports upward, lockgate.gate.Gate"),
        ("stores/sql/tables.py", "from ...gate import Gate", "imports upward, lockgate.gate.Gate"),
        ("gate.py", "import lockgate", "imports upward, lockgate"),
        ("gate.py", "def f():\n from . import cli", "imports upward, lockgate.cli"),
        ("starlette.py", "if False:\n from .. import cli", "imports upward, lockgate.cli"),
        ("core/api_keys.py", "import pydantic", "impure, pydantic"),
        ("core/api_keys.py", "from threading import Lock", "impure, threading.Lock"),
        ("core/api_keys.py", "import os.path", "impure, os.path"),
        ("core/api_keys.py", "x = datetime.now(UTC)", "reads a clock, datetime.now"),
        ("cellar.py", "", "no floor is named for cellar, add it to FLOORS"),
    ],
)
def test_a_planted_fault_is_found(house: Path, where: str, source: str, fault: str) -> None:
    (house / where).write_text(source)
    (found,) = violations(house)
    assert found.startswith(where)
    assert found.endswith(f": {fault}")


@pytest.mark.parametrize(
    ("where", "source", "others"),
    [
        ("errors.py", "if TYPE_CHECKING:\n from .core.api_keys import Key", {"core.api_keys"}),
        ("stores/__init__.py", "def f():\n import lockgate.gate", {"gate"}),
        ("gate.py", "from . import gate", set()),
    ],
)
def test_a_planted_circle_is_found(house: Path, where: str, source: str, others: set[str]) -> None:
    (house / where).write_text(source)
    planted = where.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    found = circle(house)
    assert found[0] == found[-1]
    assert {*found} == {f"lockgate.{name}" for name in {planted, *others}}
