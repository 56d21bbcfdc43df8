"""The seeded choice among attacks."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

from .attack import CREDENTIALS, Attack
from .handlers import Handler
from .header_mutations import OTHERS
from .path_mutations import PATHS

# A plain path, one with a last slash, one with a parameter, one with a tail, one below a mount,
# one of an application below a mount, and those whose routes take more paths than one.
_FORMS = frozenset(
    {"feed", "admin", "reports", "job", "upload", "metrics", "inner", "secret", "loose", "models"}
    | {"desk", "region", "lobby", "sheet", "erase"}
)
_BY_METHOD = frozenset({"method", "odd method", "preflight"})

# Entries of OTHERS that rarely reach a handler and cost a connection each.
_SLOW = frozenset({"hidden request", "writing", "upgrade"})


def plain(handlers: Iterable[Handler]) -> Iterator[Attack]:
    """Each handler's own request, by every credential."""
    for handler in handlers:
        method = "GET" if handler.methods == ("*",) else handler.methods[0]
        for credential in CREDENTIALS:
            yield Attack(handler, method, credential)


def singles(handlers: Sequence[Handler]) -> Iterator[Attack]:
    """Each change alone, with a key without scopes: a handler that it reaches is open without one.

    A path is changed for one handler of each form, a method for every handler.
    """
    for handler in handlers:
        method = "GET" if handler.methods == ("*",) else handler.methods[0]
        own = Attack(handler, method, "weak")
        if handler.name in _FORMS:
            yield from (own._replace(mutations=(mutation,)) for mutation in PATHS)
        for mutation in OTHERS:
            if mutation.family in _BY_METHOD:
                for credential in ("weak", "full"):
                    yield Attack(handler, method, credential, (mutation,))
            elif handler.name in ("admin", "start", "panel", "desk", "lobby", "erase", "region"):
                yield own._replace(mutations=(mutation,))


def combined(handlers: Sequence[Handler], source: random.Random) -> Iterator[Attack]:
    """Requests with several changes at once, without end."""
    light = [mutation for mutation in OTHERS if mutation.family not in _SLOW]
    heavy = [mutation for mutation in OTHERS if mutation.family in _SLOW]
    methods = ("GET", "POST", "DELETE", "HEAD", "PUT", "OPTIONS")
    while True:
        handler = source.choice(handlers)
        own = "GET" if handler.methods == ("*",) else handler.methods[0]
        method = own if source.random() < 0.7 else source.choice(methods)
        credential = source.choices(CREDENTIALS, (8, 8, 4, 4, 2, 1, 1))[0]
        changes = source.sample(PATHS, source.choice((1, 1, 1, 2, 2, 3)))
        if source.random() < 0.5:
            changes += source.sample(light, 1)
        if source.random() < 0.02:
            changes += source.sample(heavy, 1)
        source.shuffle(changes)
        yield Attack(handler, method, credential, tuple(changes))


def attacks(handlers: Sequence[Handler], seed: int, count: int) -> Iterator[Attack]:
    """The attacks on one application: each single change in a seeded order, then combinations.

    At least a fifth of them are combinations.
    """
    source = random.Random(seed)
    yield from plain(handlers)
    single = list(singles(handlers))
    source.shuffle(single)
    single = single[: count * 4 // 5]
    yield from single
    combinations = combined(handlers, source)
    for _ in range(count - len(single)):
        yield next(combinations)
