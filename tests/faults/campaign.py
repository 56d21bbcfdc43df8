"""The campaign: stages each scenario under load, judges it by the logs, and makes a table."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from math import inf
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple

import pytest

from benchmarks.pages import Part, Table
from lockgate import run
from tests import servers
from tests.campaigns import ENDING, start, tell, upgraded, wait_until_ready

from .callers import LIMIT, Group, Key, Orders, gate_of
from .oracle import (
    EXPECTED,
    Counts,
    Log,
    Refused,
    Revoked,
    admitted_though_revoked,
    back,
    begun,
    beyond,
    both,
    counts,
    refused,
)
from .scenarios import (
    ALONE,
    POSTGRES,
    SCENARIOS,
    Scenario,
    Scene,
    ServersFailed,
    release,
    releases,
    started,
)

TIGHT = 10
"""Organizations with a small limit, of each group."""
VICTIMS = 60
"""Keys to be revoked, of each group."""
STALLED = 0.3
"""The part of a deadline for which a process may be held up by the machine."""


class Figures(NamedTuple):
    """What one run of a scenario cost. Durations are in seconds."""

    servers: str
    name: str
    beside: str
    concerned: Refused
    others: Refused | None
    unchanged: int
    """Revocations that were answered 503."""
    changed: int
    """Return the calls that were answered."""
    beyond: int
    revoked: Revoked
    counts: Counts
    back: float | None
    """None: the servers answered all the time."""
    outcomes: tuple[tuple[str, int], ...]
    """Answers that are none of the expected ones."""
    stall: float
    """The longest time that one of the processes got no processor."""


class Load:
    """Two processes of callers, one that awaits and one that blocks, and their requests."""

    def __init__(
        self, stack: ExitStack, scenario: Scenario, scene: Scene, store: str, deadline: float
    ) -> None:
        self._scenario = scenario
        self._store = store
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.groups = self._made(scene)
        scene.prepare(self._in_use)
        self._processes = [self._process(stack, awaiting, deadline) for awaiting in (False, True)]
        for process in self._processes:
            wait_until_ready(process)

    def _in_use(self, number: int) -> list[str]:
        group = self.groups[0]
        keys = [*group["free"], *group["tight"]]
        return list(dict.fromkeys(key["organization"] for key in keys))[:number]

    def _made(self, scene: Scene) -> list[Group]:
        """Make organizations and keys; where a fault concerns only some, a group of others too."""
        gate = gate_of(self._store, None, 10.0)
        numbers = count()

        def organization(is_affected: bool) -> str:
            ids = (f"org {number}" for number in numbers)
            if scene.is_affected is None:
                return next(ids)
            return next(id for id in ids if scene.is_affected(id) == is_affected)

        def key(organization: str) -> Key:
            made = run(gate.keys.create(organization, "a key"))
            return Key(organization=organization, id=made.key.id, text=made.text)

        groups: list[Group] = []
        for is_affected in (True,) if scene.is_affected is None else (True, False):
            free = organization(is_affected)
            tight = [organization(is_affected) for _ in range(TIGHT)]
            # A revocation voids a pair's copies of all keys of the organization.
            homes = [organization(is_affected) for _ in range(VICTIMS // 10)]
            for id in tight:
                run(gate.organizations.place(id, "tight"))
            groups.append(
                Group(
                    free=[key(free), key(free)],
                    tight=[key(id) for id in tight],
                    victims=[key(home) for home in homes for _ in range(10)],
                )
            )
        run(gate.close())
        return groups

    def _process(self, stack: ExitStack, awaiting: bool, deadline: float) -> Any:
        victims = [key for group in self.groups for key in group["victims"]]
        revoked = victims[awaiting::2]
        orders = Orders(
            store=self._store,
            durability=self._scenario.durability,
            deadline=deadline,
            awaiting=awaiting,
            warm=self._scenario.warm,
            groups=self.groups,
            # Return the members of all groups, one of each group in turn.
            revokes=[*revoked[::2], *revoked[1::2]],
            pause=0.02,
            log=str(self._folder / f"{awaiting}.json"),
        )
        return start(stack, "tests.faults.callers", orders)

    def stop(self) -> list[Log]:
        """Let the processes finish, and read their logs."""
        for process in self._processes:
            tell(process)
        for process in self._processes:
            assert process.wait(ENDING) == 0
        files = (self._folder / f"{awaiting}.json" for awaiting in (False, True))
        return [Log.read(json.loads(file.read_text())) for file in files]

    def counted(self) -> dict[str, int]:
        """Read `requestCount` of each key that the store still has."""
        gate = gate_of(self._store, None, 10.0)
        found: dict[str, int] = {}
        for group in self.groups:
            for organization in {key["organization"] for key in _keys(group)}:
                page = run(gate.keys.list(organization, limit=1000))
                found |= {key.id: key.request_count for key in page.keys}
        run(gate.close())
        return found


def _keys(group: Group) -> list[Key]:
    return [*group["free"], *group["tight"], *group["victims"]]


_databases = count()


def suffer(
    scenario: Scenario, beside: str, seconds: float = 3.0, deadline: float = 0.25
) -> Figures:
    """Run one scenario, and return its measured cost.

    Args:
        scenario: which one.
        beside: the database of a pair, or `ALONE`.
        seconds: how long the load goes on before the fault, a third of it, and after.
        deadline: seconds that a request waits for its store.
    """
    with ExitStack() as stack:
        database = servers.shared("postgresql") if beside == POSTGRES else None
        scene = stack.enter_context(started(scenario, database))
        store = _store(stack, scene.url, beside, database)
        load = Load(stack, scenario, scene, store, deadline)
        sleep(seconds / 3)
        began = monotonic()
        answered = scene.act()
        sleep(seconds)
        logs = load.stop()
        return _figures(scenario, beside, load, logs, began, answered)


def _store(stack: ExitStack, redis: str, beside: str, database: servers.Server | None) -> str:
    """Give the URL of a store: of Redis alone or of a pair."""
    if beside == ALONE:
        return redis
    if database is None:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        return f"sqlite:///{folder}/keys.db?mode=rwc {redis}"
    return f"{upgraded(database.create(f'faults_{next(_databases)}'))} {redis}"


def _figures(
    scenario: Scenario,
    beside: str,
    load: Load,
    logs: list[Log],
    began: float,
    answered: float | None,
) -> Figures:
    answers = [answer for log in logs for answer in log.answers]
    by_group = [_refused_of(group, logs, began) for group in load.groups]
    tight = [key["organization"] for group in load.groups for key in group["tight"]]
    free = [key["id"] for key in load.groups[0]["free"]]
    changes = Counter(change.answered for log in logs for change in log.changes)
    odd = Counter(answer.outcome for answer in answers if answer.outcome not in EXPECTED)
    return Figures(
        scenario.servers,
        scenario.name,
        beside,
        by_group[0],
        by_group[1] if len(by_group) > 1 else None,
        changes[False],
        changes[True],
        max(beyond(LIMIT, (a for a in answers if a.organization == id)) for id in tight),
        admitted_though_revoked(logs),
        counts(logs, load.counted()),
        None if answered is None else max(back(log, free, answered) for log in logs),
        tuple(sorted(odd.items())),
        max(log.stall for log in logs),
    )


def _refused_of(group: Group, logs: list[Log], began: float) -> Refused:
    """Count the 503 of a group's live keys: others have no service to lose."""
    ids = {key["organization"] for key in _keys(group)}
    ended = begun(logs)
    # The other organizations have pauses of their own.
    steady = group["free"][0]["organization"]
    some = (
        [a for a in log.answers if a.organization in ids and a.started < ended.get(a.key, inf)]
        for log in logs
    )
    return both(*(refused(answers, began, steady) for answers in some))


def broken(scenario: Scenario, figures: Figures) -> list[str]:
    """Tell which promised bounds a run broke."""
    promise = scenario.promised(figures.beside)
    measured: list[tuple[str, float, float | None]] = [
        ("503", figures.concerned.number, promise.refused),
        ("seconds of 503", figures.concerned.longest, promise.longest),
        ("503 of others", figures.others.number if figures.others else 0, promise.others),
        ("seconds until back", figures.back or 0.0, promise.back),
        ("beyond the limit", figures.beyond, promise.beyond),
        ("admitted though revoked", figures.revoked.admissions, promise.lost),
        ("usage lost", figures.counts.lost, promise.usage),
        ("counted twice", figures.counts.doubled, 0),
        ("other answers", sum(n for _, n in figures.outcomes), 0 if promise.known else None),
    ]
    return [
        f"{what}: {value:g}, promised {bound:g}"
        for what, value, bound in measured
        if bound is not None and value > bound
    ]


def worst(runs: list[Figures]) -> Figures:
    """Take the worst of each figure of several runs of a scenario."""
    first = runs[0]
    others = [figures.others for figures in runs if figures.others is not None]
    backs = [figures.back for figures in runs if figures.back is not None]
    return first._replace(
        concerned=_sum(figures.concerned for figures in runs),
        others=_sum(others) if others else None,
        unchanged=sum(figures.unchanged for figures in runs),
        changed=sum(figures.changed for figures in runs),
        beyond=max(figures.beyond for figures in runs),
        back=max(backs, default=None),
    )


def _sum(some: Iterable[Refused]) -> Refused:
    total = Refused(0, 0, 0.0)
    for one in some:
        total = both(total, one)
    return total


def campaign(
    scenarios: Iterable[tuple[Scenario, str]], seconds: float, deadline: float
) -> Iterator[tuple[Scenario, Figures]]:
    """Stage scenarios one after the other; where a server is not installed, leave them out."""
    for scenario, beside in scenarios:
        try:
            yield scenario, _staged(scenario, beside, seconds, deadline)
        except pytest.skip.Exception as missing:
            print(f"{scenario.servers}: {scenario.name}, {beside}: {missing}", file=sys.stderr)


def _staged(scenario: Scenario, beside: str, seconds: float, deadline: float) -> Figures:
    """Stage a scenario, and once again where the machine or the servers kept it from counting."""
    try:
        figures = suffer(scenario, beside, seconds, deadline)
    except ServersFailed as failure:
        why = str(failure)
    else:
        faults = broken(scenario, figures)
        if not faults or figures.stall <= deadline * STALLED:
            return figures
        why = f"a process got no processor for {figures.stall:.2f} s, {'; '.join(faults)}"
    print(f"    repeated: {why}", flush=True)
    return suffer(scenario, beside, seconds, deadline)


def _refused(some: Refused | None) -> str:
    if some is None:
        return "-"
    if not some.number:
        return f"0 of {some.answers}"
    return f"{some.number} of {some.answers}, {some.longest:.2f} s"


def _revoked(some: Revoked) -> str:
    if not some.admissions:
        return "0"
    lost = f", {some.lost} for good" if some.lost else ""
    return f"{some.admissions} in {some.seconds:.2f} s{lost}"


HEADINGS = (
    "servers",
    "what happens",
    "beside",
    "503, longest",
    "503 of others",
    "changes: 503",
    f"beyond {LIMIT}",
    "twice",
    "revoked, admitted",
    "usage lost",
    "back after",
)


def cells(figures: Figures) -> tuple[str, ...]:
    """Write a line of the table."""
    return (
        figures.servers,
        figures.name,
        figures.beside,
        _refused(figures.concerned),
        _refused(figures.others),
        f"{figures.unchanged} of {figures.unchanged + figures.changed}",
        str(figures.beyond),
        str(figures.counts.doubled),
        _revoked(figures.revoked),
        f"{figures.counts.lost} of {figures.counts.answered}",
        "-" if figures.back is None else f"{figures.back:.2f} s",
    )


def line(servers: str, name: str, beside: str) -> str:
    """Return the name of a row in the docs, where the databases of a pair share one."""
    return f"{servers}: {name}, {ALONE if beside == ALONE else '`CachedStore`'}"


PAGE = Part(
    "faults",
    "measured.md",
    (
        Table(
            ("servers: what happens, Redis alone or in a pair", *HEADINGS[3:7], HEADINGS[10]),
            tuple(dict.fromkeys(line(s.servers, s.name, b) for s in SCENARIOS for b in s.beside)),
        ),
    ),
)
PARTS = (PAGE,)


def rows(some: Iterable[Figures]) -> dict[str, tuple[str, ...]]:
    """Write the rows for the docs: the worse of a pair's databases, no column of zeros."""
    lines: dict[str, list[Figures]] = {}
    for each in some:
        lines.setdefault(line(each.servers, each.name, each.beside), []).append(each)
    shown = {name: cells(worst(runs)) for name, runs in lines.items()}
    return {name: (*told[3:7], told[10]) for name, told in shown.items()}


def ending(some: Sequence[Figures]) -> str:
    """Write the line for the docs on what the rows leave out."""
    revoked = sum(each.revoked.admissions for each in some)
    doubled, lost, answered = (
        sum(each.counts[place] for each in some)
        for place in map(Counts._fields.index, ("doubled", "lost", "answered"))
    )
    return (
        f"In all of them together: {answered:,} answered admissions, of which {lost} are missing "
        f"from `requestCount`; {doubled} requests counted twice; {revoked} admissions with "
        "a key whose revocation was answered before.\n"
    )


def releases_used() -> tuple[str, ...]:
    """Return the servers with their releases, for the line on a run in the docs."""
    redis, postgres = servers.RedisServer.installed(), servers.PostgresServer.installation()
    assert redis is not None
    assert postgres is not None
    command = [str(postgres / "bin" / "postgres"), "--version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    also = f"{release(releases()[1])} for upgrades and `unknown-endpoint`"
    return f"Redis {release(redis)} ({also})", f"PostgreSQL {told.split()[2]}"
