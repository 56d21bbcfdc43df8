"""``lockgate init``: a module with a gate to start from, and a pepper."""

from pathlib import Path
from secrets import token_urlsafe

import click

from ..errors import ConfigurationError
from .output import json_option, print_json

_MODULE = '''"""The gate of this service: who may call what, and how often."""

import os

from lockgate import Gate

gate = Gate(
    os.environ["LOCKGATE_STORE"],
    brand="{brand}",
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
)
'''


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path("gates.py"))
@click.option("--brand", default="acme", show_default=True, help="first part of every key")
@json_option
def init(path: Path, brand: str, *, as_json: bool) -> None:
    """Write a module with a gate to PATH (gates.py), and print a new pepper for the environment.

    The pepper belongs into the secrets of the service, never into its code or its database.
    """
    if not brand.isascii() or not brand.isalnum():
        raise ConfigurationError(f"The brand {brand!r} must be ASCII letters and digits.")
    if path.exists():
        raise ConfigurationError(f"{path} exists already: name another path.")
    path.write_text(_MODULE.format(brand=brand), encoding="utf-8")
    settings = {
        "LOCKGATE_PEPPER": token_urlsafe(32),
        "LOCKGATE_STORE": "sqlite:///keys.db",
        "LOCKGATE_GATE": f"{path.stem}:gate",
    }
    if as_json:
        print_json({"path": str(path), "environment": settings})
        return
    click.echo(f"Wrote {path}. Set these for the service and for lockgate's commands:", err=True)
    for name, value in settings.items():
        click.echo(f"export {name}={value}")
    click.echo("Then create the tables: lockgate db upgrade", err=True)
