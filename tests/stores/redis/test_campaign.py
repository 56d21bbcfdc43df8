"""Faults of one Redis under load, through the gate: no 500, no double, in time, back by itself.

What Sentinels and Clusters go through is in `tests/faults`.

The tests record what each fault cost; the end of the run prints it as a table. `python -m
tests.outages --markdown` runs them, and writes the table of `docs/measured.md`.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple

import pytest

from lockgate import Plan, PlanBook, run
from lockgate.stores.resilience.circuit_breaker import PAUSE
from tests.outages import PROPERTY, Figures
from tests.patience import until
from tests.servers import redis_server

from ..proxy import Proxy
from ..tls import SecureProxy, certificate
from .test_refusals import another_password, full, no_rights, replica, tell
from .traffic import Answer, Traffic, both_modes

LIMIT = 200
BOOK = PlanBook([Plan("free", 10**6, None, None, None), Plan("tight", LIMIT, None, None, None)])
WIDE = "wide"
"""The organization that is free."""
DEADLINE = 0.25
SLACK = 1.0
"""A tolerance for busy machines; the table has the measured values."""
CALLERS = 4


class Load(Traffic):
    """Four callers without a limit, and one that fills its minute.

    Attributes:
        counted: the store's count of the admissions of those without a limit.
    """

    def __init__(self, url: str, mode: str) -> None:
        callers = [*[WIDE] * CALLERS, "tight"]
        super().__init__(url, mode, callers, BOOK, DEADLINE, {"tight": "tight"})
        self.counted = 0

    def finish(self) -> None:
        key = run(self.gate.authenticate(self.tokens[WIDE])).key
        assert key is not None
        self.counted = key.request_count - 1

    def waits_for_admission(self, after: float) -> Answer:
        """Return the first admission that started after an instant."""
        found: list[Answer] = []

        def is_found() -> bool:
            found[:] = [a for a in self.of("admitted") if a.organization == WIDE]
            found[:] = [a for a in found if a.started > after][:1]
            return bool(found)

        until(is_found)
        return found[0]


class Scene(NamedTuple):
    """A store, and the fault to inject."""

    url: str
    happens: Callable[[], AbstractContextManager[None]]
    over: int = 0
    """Admissions that a server may have lost, and so may admit beyond the limit."""
    seen: bool = True
    """Whether callers notice at all."""


@contextmanager
def lasting(fault: AbstractContextManager[Any], seconds: float) -> Iterator[None]:
    with fault:
        sleep(seconds)
        yield


@contextmanager
def silenced(proxy: Proxy, *, hang_up: bool) -> Iterator[None]:
    proxy.swallows = True
    if hang_up:
        proxy.drop_all()
    try:
        yield
    finally:
        proxy.swallows = False


@contextmanager
def killed(server: Any) -> Iterator[None]:
    server.stop(signal.SIGKILL)
    yield
    server.start()


def own(stack: ExitStack) -> Any:
    logged = "--appendonly", "yes", "--appendfsync", "always"
    user = "--user", "me", "on", ">pass", "~*", "+@all"
    return stack.enter_context(redis_server(*logged, *user))


def by_user(port: int) -> str:
    return f"redis://me:pass@127.0.0.1:{port}"


def single(
    fault: Callable[[Any], AbstractContextManager[Any]], seconds: float
) -> Callable[[ExitStack], Scene]:
    def staged(stack: ExitStack) -> Scene:
        server = own(stack)
        return Scene(by_user(server.port), lambda: lasting(fault(server), seconds))

    return staged


def swallowing(*, hang_up: bool) -> Callable[[ExitStack], Scene]:
    def staged(stack: ExitStack) -> Scene:
        proxy = stack.enter_context(Proxy(own(stack).port))
        return Scene(by_user(proxy.port), lambda: lasting(silenced(proxy, hang_up=hang_up), 5))

    return staged


def loading(stack: ExitStack) -> Scene:
    server = own(stack)

    @contextmanager
    def loads() -> Iterator[None]:
        with server.client() as client:
            client.mset({f"key {number}": os.urandom(200_000) for number in range(40)})
        server.stop(signal.SIGKILL)
        server.options += ["--key-load-delay", "1000"]
        server.start()
        yield

    return Scene(by_user(server.port), loads)


def other_certificate(stack: ExitStack) -> Scene:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    right, wrong = certificate(folder), certificate(folder)
    proxy = stack.enter_context(SecureProxy(own(stack).port, right))

    @contextmanager
    def shown() -> Iterator[None]:
        proxy.shows = wrong
        proxy.drop_all()
        sleep(5)
        yield
        proxy.shows = right

    url = f"rediss://me:pass@127.0.0.1:{proxy.port}?ssl_ca_certs={right.file}"
    return Scene(url, shown)


def flushed(stack: ExitStack) -> Scene:
    server = own(stack)

    @contextmanager
    def again_and_again() -> Iterator[None]:
        for _ in range(50):
            tell(server, "SCRIPT", "FLUSH")
            sleep(0.1)
        yield

    return Scene(by_user(server.port), again_and_again, seen=False)


def paired(
    fault: Callable[[Any], AbstractContextManager[Any]], seconds: float, over: int = 0
) -> Callable[[ExitStack], Scene]:
    def staged(stack: ExitStack) -> Scene:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        server = stack.enter_context(redis_server())
        url = f"sqlite:///{folder}/keys.db?mode=rwc {server.url()}"
        return Scene(url, lambda: lasting(fault(server), seconds), over=over)

    return staged


SCENES: dict[str, dict[str, Callable[[ExitStack], Scene]]] = {
    "Redis": {
        "killed for 2 s, keeps a log": single(killed, 2),
        "stopped for 30 s": single(lambda server: server.stopped(), 30),
        "drops all packets for 5 s": swallowing(hang_up=False),
        "accepts connections, never answers, for 5 s": swallowing(hang_up=True),
        "killed, loads slowly": loading,
        "memory full for 5 s": single(full, 5),
        "demoted to a replica for 5 s": single(replica, 5),
        "rights withdrawn for 5 s": single(no_rights, 5),
        "password changed for 5 s": single(another_password, 5),
        "presents a wrong certificate for 5 s": other_certificate,
        "scripts flushed 50 times": flushed,
    },
    "pair": {
        "killed for 2 s, restarts empty": paired(killed, 2, over=LIMIT),
        # Redis does not know what this process admitted meanwhile: one share (W15).
        "stopped for 30 s": paired(lambda server: server.stopped(), 30, over=LIMIT),
    },
}


@pytest.mark.campaign
@both_modes
@pytest.mark.parametrize(
    ("store", "happens"), [(store, fault) for store, faults in SCENES.items() for fault in faults]
)
def test_admissions_recover_after_every_fault_of_redis(
    store: str, happens: str, mode: str, record_property: Callable[[str, object], None]
) -> None:
    with ExitStack() as stack:
        scene = SCENES[store][happens](stack)
        with Load(scene.url, mode) as load:
            load.waits_for_admission(monotonic())
            sleep(0.5)
            began = monotonic()
            with scene.happens():
                pass
            ended = monotonic()
            back = load.waits_for_admission(ended)
            sleep(1)
        figures = figures_of(f"{store}, {mode}", happens, load, began, back.ended - ended)
    record_property(PROPERTY, list(figures))
    assert {answer.outcome for answer in load.answers} <= {"admitted", "limited", "unavailable"}
    assert figures.slowest < DEADLINE + SLACK
    assert figures.back < PAUSE + SLACK
    assert (figures.detected is not None) == scene.seen
    assert figures.over is not None
    assert figures.over <= scene.over
    if store != "pair":  # There it is written a second later.
        unsure = sum(answer.organization == WIDE for answer in load.of("unavailable"))
        assert load.counted <= load.admitted[WIDE] + unsure
        assert load.counted >= load.admitted[WIDE] - scene.over


def figures_of(store: str, happens: str, load: Load, began: float, back: float) -> Figures:
    refused = [answer for answer in load.of("unavailable") if answer.ended > began]
    shown = [answer.ended for answer in refused]
    shown += [at for at, event in load.told if event.name == "limits_fell_back"]
    admitted = [a.started for a in load.of("admitted") if a.organization == "tight"]
    return Figures(
        store,
        happens,
        len(load.answers),
        len(refused),
        min(shown) - began if shown else None,
        max(answer.ended - answer.started for answer in load.answers),
        back,
        beyond(LIMIT, admitted),
    )


def beyond(limit: int, admitted: list[float]) -> int:
    """Return how many were admitted beyond a limit of a minute."""
    minutes = (sum(start <= one < start + 60 for one in admitted) for start in admitted)
    return max(0, max(minutes) - limit)
