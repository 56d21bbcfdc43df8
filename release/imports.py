"""Import what an installation offers: ``python -I imports.py EXTRA`` in a clean environment.

Each extra is installed alone from the wheel; every module that needs nothing else has to be there,
and a key has to be created. ``nox -s wheel`` runs it, without an extra as well.
"""

import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distributions, version
from pathlib import Path

import lockgate

STARLETTE = {"starlette", "fastapi", "mcp", "demo"}
NEEDS: dict[str, set[str]] = {
    "lockgate.cli": {"cli", "demo"},
    "lockgate.dashboard": {"dashboard", "demo"},
    "lockgate.dashboard.django_urls": set(),
    "lockgate.demo": {"demo"},
    "lockgate.django": set(),
    "lockgate.fastapi": {"fastapi"},
    "lockgate.flask": {"flask"},
    "lockgate.litestar": set(),
    "lockgate.mcp": {"mcp"},
    "lockgate.migrations": {"sql", "cli", "demo"},
    "lockgate.opentelemetry": {"otel"},
    "lockgate.prometheus": {"prometheus"},
    "lockgate.quart": set(),
    "lockgate.services.leaks.report_signatures": {"leaks", "jwt"},
    "lockgate.sessions.jwks": {"jwt"},
    "lockgate.sessions.jwt": {"jwt"},
    "lockgate.starlette": STARLETTE,
    "lockgate.stores.redis": {"redis"},
    "lockgate.stores.sql": {"sql", "cli", "demo"},
    "lockgate.stores.sql.migrations.env": set(),  # Alembic runs it.
    "lockgate.testing.state_machine": {"testing"},
    "lockgate.testing.strategies": {"testing"},
    "lockgate.testing.suite": {"testing"},
    "lockgate.web.django_responses": set(),
    "lockgate.web.mcp_dispatch": {"mcp"},
    "lockgate.web.mcp_servers": {"mcp"},
    "lockgate.web.starlette_cors": STARLETTE,
    "lockgate.web.starlette_errors": STARLETTE,
    "lockgate.web.starlette_routes": STARLETTE,
    "lockgate.web.starlette_stack": STARLETTE,
    "lockgate.web.werkzeug_routes": {"flask"},
}
"""The extras that bring what a module and those below it need; none where a user brings it."""
PASSWORDS = ("argon2", "bcrypt", "passlib.hash")


def modules(extra: str) -> Iterator[str]:
    """Yield the names of all modules that one extra, or none (``""``), has to make importable."""
    yield "lockgate"
    folders = [("lockgate.", list(lockgate.__path__))]
    while folders:
        prefix, path = folders.pop()
        for module in pkgutil.iter_modules(path, prefix):
            needed = NEEDS.get(module.name)
            if needed is None or extra in needed or (needed and extra == "all"):
                yield module.name
                if module.ispkg:
                    inner = Path(path[0], module.name.rpartition(".")[2])
                    folders.append((f"{module.name}.", [str(inner)]))


def check_weight(extra: str) -> None:
    """Check that an extra without need of Starlette and email-validator installs neither."""
    installed = {found.name.lower() for found in distributions()}
    print(f"lockgate[{extra}]: {' '.join(sorted(installed))}")
    heavy = installed & {"anyio", "email-validator", "starlette"}
    if extra not in {"all", "registration", *STARLETTE}:
        assert not heavy, heavy
    if extra == "flask":
        from flask import Flask

        from lockgate.flask import protect

        gate = lockgate.Gate("memory://", brand="acme")
        text = lockgate.run(gate.keys.create("org_1", "first key")).text
        app = protect(Flask(__name__), gate)
        app.add_url_rule("/models", view_func=lambda: "models")
        headers = {"Authorization": f"Bearer {text}"}
        assert app.test_client().get("/models", headers=headers).text == "models"


def main(extra: str) -> None:
    """Import the modules of an extra and use the installation."""
    names = list(modules(extra))
    for name in names:
        importlib.import_module(name)
    if extra in {"all", "legacy"}:
        for name in PASSWORDS:
            importlib.import_module(name)
    assert lockgate.__version__ == version("lockgate")
    gate = lockgate.Gate("memory://", brand="acme")
    assert lockgate.run(gate.keys.create("org_1", "first key")).text.startswith("acme_")
    check_weight(extra)
    command = Path(sys.executable).with_name("lockgate")
    done = subprocess.run([command, "--version"], check=False, capture_output=True, text=True)
    # Flask brings click, which is all that this option needs.
    if extra in {"all", "cli", "demo", "flask"}:
        assert done.stdout.split()[-1] == lockgate.__version__, done
    else:
        assert done.returncode == 2 and done.stderr.endswith("pip install 'lockgate[cli]'.\n"), done
    print(f"lockgate[{extra}]: {len(names)} modules")


if __name__ == "__main__":
    main(*sys.argv[1:] or [""])
