"""Options of ``lockgate keys`` for labels, addresses, limits and creators."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

SHELL: Final = "shell"
"""``created_by`` of a key that was created from the shell, unless the operator says otherwise."""


def _pairs_option(
    *names: str, metavar: str, example: str, help: str
) -> Callable[[Command], Command]:
    """Return an option that is repeated for each pair, such as the example, and gives a dict."""

    def read(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for value in values:
            name, equals, text = value.partition("=")
            if not equals:
                raise click.BadParameter(f"{value!r}: write NAME=VALUE, as in {example}.")
            if pairs.setdefault(name, text) != text:
                raise click.BadParameter(f"{name!r} has two values.")
        return pairs

    return click.option(*names, multiple=True, metavar=metavar, callback=read, help=help)


def labels_option(help: str) -> Callable[[Command], Command]:
    """Return the option ``--label NAME=VALUE``, repeated, which gives a dict."""
    return _pairs_option("--label", "labels", metavar="NAME=VALUE", example="team=ci", help=help)


def limits_option(help: str) -> Callable[[Command], Command]:
    """Return the option ``--limit NAME=RATES``, repeated, which gives a dict."""
    return _pairs_option(
        "--limit", "limits", metavar="NAME=RATES", example="export=3/hour", help=help
    )


addresses_option: Final = click.option(
    "--address",
    "addresses",
    multiple=True,
    help="an address or network that may use the key; repeat for more (any)",
)
creator_option: Final = click.option(
    "--created-by", default=SHELL, show_default=True, help="the creator, for people"
)


def replaced(
    given: Mapping[str, str] | Sequence[str], *, dropped: bool, options: tuple[str, str]
) -> Any:
    """Return what an update sets: the given values, an empty list, or None for no change."""
    if given and dropped:
        raise click.UsageError(f"Give {options[0]} or {options[1]}, not both.")
    return given if given or dropped else None
