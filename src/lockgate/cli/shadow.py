"""``lockgate shadow``: what shadow mode would have refused, from the log of all processes."""

import re
from ast import literal_eval
from collections import Counter
from collections.abc import Iterable, Iterator
from json import loads
from typing import IO, Any, Final

import click

from .output import json_option, print_json, print_table

_EVENT: Final = "shadow_summary"
_LINE: Final = re.compile(rf"{_EVENT} seconds=\d+ requests=(\d+) most=(\(.*\))")
_KIND: Final = re.compile(r"(\d+) x (.+)")
_NONE: Final = (
    "No summary of shadow mode in this log. A process writes one, as a WARNING of the logger "
    "'lockgate', if requests would have been refused: a minute after the last one, under WSGI with "
    "the next such request, and at an orderly end."
)


@click.command()
@click.argument("log", type=click.File(encoding="utf-8", errors="replace"), default="-")
@json_option
def shadow(log: IO[str], *, as_json: bool) -> int:
    """Add up the summaries of shadow mode in LOG, or standard input: the most frequent kinds first.

    Each process writes one a minute, as a line of the logger or as JSON, with its ten most frequent
    kinds: so the numbers of rare kinds are too low. The exit code is 1 for a LOG without a summary.
    """
    summaries, requests, kinds = 0, 0, Counter[str]()
    for number, most in _summaries(log):
        summaries += 1
        requests += number
        for found in filter(None, map(_KIND.fullmatch, most)):
            kinds[found[2]] += int(found[1])
    if as_json:
        print_json({"requests": requests, "most": dict(kinds.most_common())})
    elif summaries:
        print_table(["requests", "refused as"], [(n, kind) for kind, n in kinds.most_common()])
        click.echo(f"{requests:,} requests would have been refused.", err=True)
    if not summaries:
        click.echo(_NONE, err=True)
    return 0 if summaries else 1


def _summaries(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the requests and the kinds of each summary; other lines are left out."""
    for line in lines:
        if _EVENT not in line:
            continue
        found = _LINE.search(line)
        try:
            if found is None:
                fields: Any = loads(line)
                requests, most = fields["requests"], fields["most"]
            else:
                requests, most = int(found[1]), literal_eval(found[2])
            yield int(requests), [*map(str, most)]
        except (KeyError, SyntaxError, TypeError, ValueError):
            continue
