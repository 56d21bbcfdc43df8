"""No version that lockgate asks for has a known vulnerability."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import lockgate
from release.imports import NEEDS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "versions.md"

# The first version without a known vulnerability, and the last vulnerable version.
SOUND = {
    "asyncmy": ("0.2.12", "CVE-2025-65896, SQL injection by the names of parameters"),
    "celery": ("5.2.2", "CVE-2021-23727, a command run from the result of a task"),
    "cryptography": ("50", "CVE-2026-69247, an oracle at the decryption of PKCS#7"),
    "flask": ("3.1.3", "CVE-2026-27205, pages with a session without Vary: Cookie"),
    "granian": ("2.7.4", "CVE-2026-42544, a header that ends a worker"),
    "gunicorn": ("23", "CVE-2024-6827, request smuggling"),
    "h2": ("4.3", "CVE-2025-57804, request splitting"),
    "jinja2": ("3.1.6", "CVE-2025-27516, a way out of the sandbox"),
    "litestar": ("2.22", "CVE-2026-48061, X-Forwarded-Host believed from any client"),
    "pydantic": ("2.4", "CVE-2024-3772, quadratic time for an e-mail address"),
    "pyjwt": ("2.13", "CVE-2026-48526, a forged token accepted"),
    "pymysql": ("1.1.1", "CVE-2024-36039, SQL injection by the names of parameters"),
    "pytest": ("9.0.3", "CVE-2025-71176, a predictable folder in /tmp"),
    "redis": ("4.5.5", "CVE-2023-28859, the answer to another caller's command"),
    "starlette": ("1.3.1", "CVE-2026-54283, forms without limits; CVE-2026-48710, a forged path"),
    "waitress": ("3.0.1", "CVE-2024-49768, a request handled after its connection was refused"),
}


def requirements() -> Iterator[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lists = [
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
    ]
    for texts in lists:
        yield from (Requirement(text) for text in texts if isinstance(text, str))


@pytest.mark.parametrize("needed", sorted({*requirements()}, key=str), ids=str)
def test_the_lower_bound_of_a_dependency_has_no_known_vulnerability(needed: Requirement) -> None:
    if needed.name == "lockgate":
        return
    bounds = [Version(s.version) for s in needed.specifier if s.operator in {">=", "=="}]
    assert len(bounds) == 1, f"{needed} has no lower bound"
    sound, why = SOUND.get(needed.name.lower(), ("0", ""))
    assert bounds[0] >= Version(sound), why


def test_the_table_names_only_dependencies() -> None:
    assert set(SOUND) <= {needed.name.lower() for needed in requirements()}


def test_the_page_on_versions_has_the_lower_bound_of_each_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    needed = [Requirement(t) for texts in (project["dependencies"], *extras) for t in texts]
    bounds = {r.name: str(r.specifier).removeprefix(">=") for r in needed if r.name != "lockgate"}
    rows = re.findall(r"(?m)^\| ([a-z0-9-]+) \| ([0-9.]+) \|", PAGE.read_text())
    assert dict(rows) == bounds


def test_a_module_that_imports_another_dependency_is_in_the_table_of_the_wheels_check() -> None:
    """`nox -s wheel` imports all others without an extra."""
    brought = {"itsdangerous", "lockgate", "pydantic", "pydantic_core"}
    root = Path(next(iter(lockgate.__path__)))
    for path in root.rglob("*.py"):
        name = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        needs = [NEEDS[module] for module in NEEDS if f"{name}.".startswith(f"{module}.")]
        if set() in needs:
            continue
        by_users = {"django", "litestar", "quart"}
        for node in ast.parse(path.read_bytes()).body:
            named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                named = [node.module or ""]
            top = {module.partition(".")[0] for module in named}
            assert not top & by_users, name
            assert needs or top <= brought | sys.stdlib_module_names, name
