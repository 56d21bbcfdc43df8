"""``lockgate demo``: the options of the demo."""

import re

import click

from ..errors import ConfigurationError
from ..stores.resilience.deadlines import DEADLINE
from .store_urls import HELP as STORE_HELP
from .store_urls import VARIABLE as STORE_VARIABLE
from .store_urls import store_url

_STORE = "sqlite:///lockgate-demo.db?mode=rwc"
_LAST_PORT = 65535


def _port(context: click.Context, parameter: click.Parameter, value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", value) or int(value) > _LAST_PORT:
        raise click.BadParameter(f"use a whole number from 0 to {_LAST_PORT}")
    return int(value)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="address to listen on")
@click.option(
    "--port",
    callback=_port,
    metavar="PORT",
    default="8000",
    show_default=True,
    help="port to listen on; 0 picks one",
)
@click.option("--store", metavar="URL", help=f"{STORE_HELP}; else {_STORE}")
@click.option(
    "--framework",
    type=click.Choice(["starlette", "fastapi", "flask"]),
    default="starlette",
    show_default=True,
    help="framework of the demo's application",
)
@click.option(
    "--deadline",
    type=float,
    default=DEADLINE,
    show_default=True,
    metavar="SECONDS",
    help="how long a request waits for a shared store",
)
@click.option("--json", "as_json", is_flag=True, help="print one line of JSON, no curl lines")
def demo(
    host: str, port: int, store: str | None, framework: str, deadline: float, *, as_json: bool
) -> int:
    """Serve a small generation service behind a gate."""
    from ..demo.command import demo as serve
    from ..demo.command import development_secrets

    url = store_url(store, _STORE)
    if store is None and url != _STORE and (used := development_secrets()):
        raise ConfigurationError(
            f"{STORE_VARIABLE} may be a service's own store, and the demo's secrets are published: "
            f"set {' and '.join(used)} to your own, or name a store for the demo by --store."
        )
    return serve(host, port, url, framework, deadline, as_json=as_json)
