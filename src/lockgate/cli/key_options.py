"""Options of ``lockgate keys`` for labels, addresses, limits and creators."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

SHELL: Final = "shell"
"""``created_by`` of a key that was created from the shell, unless the operator says otherwise."""


def _pairs(example: str) -> Callable[..., dict[str, str]]:
    """Return a callback that reads values such as the example into a dict."""

    def read(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for value in values:
            name, equals, text = value.partition("=")
            if not equals:
                raise click.BadParameter(f"{value!r}: write NAME=VALUE, as in {example}.")
            if pairs.setdefault(name, text) != text:
                raise click.BadParameter(f"{name!r} has two values.")
        return pairs

    return read


def labels_option(help: str) -> Callable[[Command], Command]:
    """Return the option ``--label NAME=VALUE``, repeated, which gives a dict."""
    return click.option(
        *("--label", "labels"),
        multiple=True,
        metavar="NAME=VALUE",
        callback=_pairs("team=ci"),
        help=help,
    )


def limits_option(help: str) -> Callable[[Command], Command]:
    """Return the option ``--limit NAME=RATES``, repeated, which gives a dict."""
    return click.option(
        *("--limit", "limits"),
        multiple=True,
        metavar="NAME=RATES",
        callback=_pairs("export=3/hour"),
        help=help,
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
