"""``lockgate db``: the tables of a store in SQL."""

import click

from .store_urls import HELP as STORE_HELP
from .store_urls import store_url


@click.command()
@click.argument("action", type=click.Choice(["upgrade", "current", "check"]))
@click.option("--store", metavar="URL", help=STORE_HELP)
@click.option(
    "--prefix", default="lockgate_", show_default=True, help="first part of the tables' names"
)
def db(action: str, store: str | None, prefix: str) -> int:
    """Bring the tables of a store in SQL up to date, show their revision, or check it.

    With check the exit code is 1 where this version does not work with the tables.
    """
    from .tables import migrate

    return migrate(action, store_url(store), prefix)
