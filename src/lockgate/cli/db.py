"""``lockgate db``: the tables of a store in SQL."""

import os

import click
from click.core import ParameterSource

from .config_file import file_settings
from .output import json_option
from .settings import gate_of, gate_option
from .store_urls import HELP as STORE_HELP
from .store_urls import VARIABLE, store_url


@click.command()
@click.argument("action", type=click.Choice(["upgrade", "current", "check"]))
@gate_option
@click.option("--store", metavar="URL", help=f"{STORE_HELP}; instead of the gate's")
@click.option("--prefix", help="first part of the tables' names (the gate's, or lockgate_)")
@json_option
def db(
    action: str, named: str | None, store: str | None, prefix: str | None, *, as_json: bool
) -> int:
    """Bring the tables of a store in SQL up to date, show their revision, or check it.

    The tables are those of the service's gate, or of --store. With check the exit code is 1 where
    this version does not work with the tables. It is 3 where the database does not answer.
    """
    from . import tables

    file = file_settings()
    if store is None and named is None and not os.environ.get(VARIABLE):
        named = file.get("gate")
    source = click.get_current_context().get_parameter_source("named")
    if store is not None and source is ParameterSource.COMMANDLINE:
        raise click.UsageError("Give --gate or --store, not both.")
    if store is not None or named is None:
        url = store_url(store, file.get("store"))
        return tables.migrate(action, tables.engine_of(url), prefix, as_json=as_json)
    engine, own = tables.of_gate(gate_of(named, None))
    return tables.migrate(action, engine, own if prefix is None else prefix, as_json=as_json)
