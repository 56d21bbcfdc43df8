import gc
import logging.handlers
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from .matrix import choose
from .outages import PROPERTY, Figures, table
from .parallel import with_a_loop_for_each_thread
from .patience import lengthen_waits
from .scratch import keep_in_memory
from .servers import stop_shared
from .stores.tls import certificate
from .tracing import TOLD_BY

# Hundreds of processes import lockgate: where none of them may keep the bytecode, each compiles it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

LONGEST = Path(__file__).parent / "stores" / "sql" / "test_contract.py"
"""The file of tests that takes longest, by far."""

# How long an example takes is no part of a property: a slow machine must not turn one red.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("bounded", patient, max_examples=50, stateful_step_count=30)
settings.register_profile("matrix", patient, max_examples=100, stateful_step_count=30)
settings.register_profile("nightly", patient, max_examples=2_000, stateful_step_count=80)
settings.load_profile("bounded")

lengthen_waits()
keep_in_memory()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--matrix", action="store_true", help="run every combination of each test")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Take more examples with ``--matrix``, unless Hypothesis has an option for their number."""
    if config.getoption("matrix"):
        settings.load_profile("matrix")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the tests and the modules that they import out of garbage collections.

    Those are some 700,000 objects, which each full collection would walk, for up to a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()  # Tuples of constants are tracked until then, and what holds one with them.
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what runs with ``--matrix`` alone, of what other options have left in."""
    if config.getoption("parallel_threads", None):  # An option of pytest-run-parallel.
        with_a_loop_for_each_thread(items)
    if not config.getoption("matrix"):
        items[:], left_out = choose(items)
        config.hook.pytest_deselected(items=left_out)
    # By its name it would come late, and run on for minutes after the other workers have ended.
    items.sort(key=lambda item: item.path != LONGEST)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Measure no coverage by what Hypothesis repeats: traced, it takes three times as long, and
    a line is to be covered by an example that an author chose.

    The marker of pytest-cov does not reach a worker of xdist, where two measurements are begun.
    """
    measured = item.config.pluginmanager.hasplugin("_cov")
    if not measured or not is_hypothesis_test(getattr(item, "obj", None)):
        return (yield)
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio alone: the servers and drivers that lockgate meets all do."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def shared_servers() -> Iterator[None]:
    """Whatever database servers the tests share are stopped at the end."""
    yield
    stop_shared()


@pytest.fixture(scope="session", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trust a single certificate by default, instead of the system's.

    PyMySQL loads what is trusted by default for each connection: 46 ms of CPU for the system's.
    """
    made = certificate(tmp_path_factory.mktemp("authority"), name="no server of the tests")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(made.file))
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("authorities")))
        yield


@pytest.fixture(scope="session", autouse=True)
def late_pruning() -> Iterator[None]:
    """Draw a minute for the first pruning of each store, whose clock is often behind in tests.

    By chance it could come between two charges that a test dates in the past, and remove the first.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module in (
            "stores.sql.pruning",
            "services.keys.retention",
            "services.accounts.registration",
        ):
            patch.setattr(f"lockgate.{module}.expovariate", lambda _: 1.0)
        yield


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """Give each test the root logger of a new process, whatever a framework set up before it.

    Litestar sets the level by default, also in fixtures that live longer than one test.
    """
    root = logging.getLogger()
    root.setLevel(logging.WARNING)
    yield
    root.setLevel(logging.WARNING)
    for handler in root.handlers[:]:
        if isinstance(handler, logging.handlers.QueueHandler):
            root.removeHandler(handler)


@pytest.fixture(scope="module")
def untraced_processes() -> Iterator[None]:
    """For files that start many processes with code that other tests cover: tracing is too slow."""
    with pytest.MonkeyPatch.context() as patch:
        for name in TOLD_BY:
            patch.delenv(name, raising=False)
        yield


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what outages cost, whichever process the tests ran in."""
    reports = [report for some in terminalreporter.stats.values() for report in some]
    outages = [
        Figures(*value)
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, value in report.user_properties
        if name == PROPERTY
    ]
    if outages:
        terminalreporter.section("outages")
        for line in table(outages):
            terminalreporter.write_line(line)
