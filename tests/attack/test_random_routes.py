"""Random routes, rules and spellings, in process: whichever handler runs, its rule was charged."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

import pytest
from litestar import Litestar
from litestar.exceptions import ImproperlyConfiguredException
from litestar.handlers import route as litestar_route
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from lockgate import PUBLIC, ConfigurationError, Rule
from lockgate import litestar as litestar_adapter
from lockgate import starlette as starlette_adapter
from lockgate.core.request_paths import Pattern
from tests.web.driving import Bench, ask

SEGMENTS = ("a", "b", "A", "a.b", "\xe9", "{x%d}", "{y%d:int}", "{z%d}-a")
SCOPES = ("models:read", "models:write", "jobs:read", "jobs:write", "account:read", "account:write")
WEAK = "upload:read"
MANY = 10**9
INSERTED = ("/", "/./", "/../", "%2f", "%0a", ";x", "\\", "%25", "%3f", " ", "%00", "x", ".")


class Place(NamedTuple):
    """A route of a random application."""

    method: str
    path: str
    """As Starlette writes it."""

    @property
    def named(self) -> str:
        """The path as rules write it."""
        return self.path.replace(":int}", "}")

    @property
    def stem(self) -> Pattern:
        return Pattern.of_route(self.named).stem


Rules: TypeAlias = dict[str, Rule | str]
Make: TypeAlias = Callable[[Bench, Sequence[Place], Rules, list[int]], Any]


def random_places(source: random.Random) -> list[Place]:
    places: list[Place] = []
    for _ in range(source.choice((2, 3, 4, 6))):
        chosen = source.choices(SEGMENTS, k=source.choice((1, 1, 2, 2, 3)))
        parts = [part % place if "%" in part else part for place, part in enumerate(chosen)]
        tail = source.choices(("", "/", "/{p:path}"), (5, 3, 2))[0]
        places.append(Place(source.choice(("GET", "GET", "POST")), f"/{'/'.join(parts)}{tail}"))
    return places


def random_rules(source: random.Random, places: Sequence[Place]) -> Rules:
    rules: Rules = {}
    for number, place in enumerate(places):
        if source.random() < 0.8:
            rule = PUBLIC if source.random() < 0.3 else Rule(SCOPES[number], cost=number + 2)
            rules.setdefault(f"{place.method} {place.named}", rule)
    if source.random() < 0.5:
        rules["GET /{p:path}"] = PUBLIC
    return rules


def random_target(source: random.Random, path: str) -> str:
    """A request target that a route may match, in some spelling."""
    texts = {":int": ("7", "07"), ":path": ("a", "a/b", ""), None: ("a", "b", "7", "A", "a-a")}
    target = re.sub(r"\{\w+?(:\w+)?\}", lambda found: source.choice(texts[found[1]]), path)
    for _ in range(source.choice((0, 0, 1, 1, 2))):
        at = source.randrange(1, len(target) + 1)
        change = source.choice(
            (
                target + "/",
                target.rstrip("/") or "/",
                target.swapcase(),
                f"/{target}",
                f"/x/..{target}",
                target.replace("a", "%61", 1),
                target[:at] + source.choice(INSERTED) + target[at:],
            )
        )
        target = change
    return quote(target, safe="/%;\\.-")


def demanded(places: Sequence[Place], rules: Mapping[str, Any], place: Place) -> Rule | None:
    """The guarded rule that names a route, unless a rule for one of its paths may stand for it."""
    own: Rule | None = None
    for key, rule in rules.items():
        method, _, path = key.partition(" ")
        stem = Pattern.of(path).stem
        if method != place.method:
            continue
        if stem.segments == place.stem.segments:
            own = own or rule
        elif place.stem.covers(stem) and not any(
            (other.method, other.stem.segments) == (method, stem.segments) for other in places
        ):
            return None
    return None if own is None or own.public else own


def of_starlette(bench: Bench, places: Sequence[Place], rules: Rules, ran: list[int]) -> Any:
    """Routes, some of them mounted below their first segment."""

    def route(number: int, path: str) -> Route:
        async def answer(_: Request) -> PlainTextResponse:
            ran.append(number)
            return PlainTextResponse("")

        return Route(path, answer, methods=[places[number].method])

    def routes() -> Iterator[Route | Mount]:
        for number, place in enumerate(places):
            first, _, rest = place.path[1:].partition("/")
            if number % 2 and rest:
                yield Mount(f"/{first}", routes=[route(number, f"/{rest}")])
            else:
                yield route(number, place.path)

    app = Starlette(routes=[*routes()])
    return starlette_adapter.protect(app, bench.gate, rules=rules)


def of_litestar(bench: Bench, places: Sequence[Place], rules: Rules, ran: list[int]) -> Any:
    def handler(number: int, place: Place) -> Any:
        async def answer() -> str:
            ran.append(number)
            return ""

        path = re.sub(r"\{(\w+)\}", r"{\1:str}", place.path)
        methods: Any = [place.method]
        return litestar_route(path, http_method=methods, status_code=200)(answer)

    app = Litestar(
        [handler(number, place) for number, place in enumerate(places)],
        middleware=[litestar_adapter.RouteMiddleware],
        openapi_config=None,
        logging_config=None,
    )
    return litestar_adapter.protect(app, bench.gate, rules=rules)


@pytest.mark.parametrize("make", [of_starlette, of_litestar])
async def test_the_rule_that_names_the_route_of_a_handler_was_charged_G1(make: Make) -> None:
    source, tables, runs = random.Random(7), 0, 0
    while tables < 20:
        bench, ran = Bench(rpm=MANY, anonymous=MANY, sessions=None), list[int]()
        places = random_places(source)
        rules = random_rules(source, places)
        try:
            app = make(bench, places, rules, ran)
        except (ConfigurationError, ImproperlyConfiguredException):
            continue  # Two rules contradict each other, or two routes.
        tables += 1
        weak, full = bench.key(WEAK, organization="org_2"), bench.key()
        for _ in range(40):
            wire = random_target(source, source.choice(places).path)
            method = source.choice(("GET", "GET", "POST", "HEAD"))
            for key in (weak, full):
                used = bench.used()
                await ask(app, method, unquote(wire), key=key, raw_path=wire.encode())
                for number in ran:
                    rule = demanded(places, rules, places[number])
                    told = f"{method} {wire} ran {places[number]}, its rule is {rule}: {rules}"
                    assert rule is None or key == full, told
                    assert rule is None or bench.used() - used >= rule.cost, told
                runs += len(ran)
                ran.clear()
    assert runs > 200
