"""Limits of tools are exact over four workers on one Redis (W1), by the log of all runs."""

import os
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from lockgate import run
from tests.servers import redis_server, reserved_port
from tests.tracing import untraced

from .mcp_service import ACCEPT, call, named
from .mcp_worker import gate_of

WORKERS, CLIENTS = 4, 8
MINUTE, SECOND = 60_000_000, 1_000_000
ROOT = Path(__file__).parents[2]


@contextmanager
def workers(url: str, log: Path) -> Iterator[list[str]]:
    """Serve the tools by four processes; gives their addresses."""
    with ExitStack() as stack:
        addresses = []
        for _ in range(WORKERS):
            port = stack.enter_context(reserved_port())
            paths = [str(ROOT), str(ROOT / "src"), *os.environ.get("PYTHONPATH", "").split(":")]
            environment = {"REDIS": url, "LOG": str(log), "PYTHONPATH": ":".join(paths)}
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.web.mcp_worker", str(port)],
                cwd=ROOT,
                env={**untraced(os.environ), **environment},
            )
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
            addresses.append(f"http://127.0.0.1:{port}/mcp")
        for address in addresses:
            deadline = time.monotonic() + 120
            while True:
                try:
                    httpx.get(address, timeout=60)
                    break
                except httpx.TransportError:
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
        yield addresses


def most_in(instants: list[int], window: int) -> int:
    """The most instants in any span of a window's length, the earlier end excluded."""
    inside: deque[int] = deque()
    most = 0
    for instant in sorted(instants):
        inside.append(instant)
        while inside[0] <= instant - window:
            inside.popleft()
        most = max(most, len(inside))
    return most


@pytest.mark.usefixtures("untraced_processes")
@pytest.mark.parametrize(
    "calls", [1_000, pytest.param(10_000, marks=pytest.mark.campaign)], ids=str
)
def test_limits_of_tools_are_exact_over_workers_W1(calls: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    with redis_server() as server:
        url = f"redis://127.0.0.1:{server.port}"
        key = run(gate_of(url).keys.create("org_1", "key", scopes=["search:*"])).text
        with workers(url, log) as addresses:

            def client(number: int) -> Counter[tuple[str, int]]:
                answers: Counter[tuple[str, int]] = Counter()
                headers = {**ACCEPT, "authorization": f"Bearer {key}"}
                with httpx.Client(headers=headers, timeout=60) as http:
                    for turn in range(calls // CLIENTS):
                        tool = ("search", "tick")[turn % 2]
                        modern = turn % 3 > 0
                        more = named("tools/call", tool) if modern else {}
                        address = addresses[(number + turn) % WORKERS]
                        body = call(tool, modern=modern)
                        response = http.post(address, json=body, headers=more)
                        answers[tool, response.status_code] += 1
                return answers

            with ThreadPoolExecutor(CLIENTS) as pool:
                answers = sum(pool.map(client, range(CLIENTS)), Counter())
    runs = [line.split() for line in log.read_text().splitlines()]
    searches = [int(instant) for tool, instant in runs if tool == "search"]
    ticks = [int(instant) for tool, instant in runs if tool == "tick"]
    assert {status for _, status in answers} <= {200, 429}
    assert answers["search", 200] == len(searches)
    assert answers["tick", 200] == len(ticks)
    assert answers["tick", 429] > 0
    assert most_in(searches, MINUTE) <= 2_000
    assert most_in(ticks, SECOND) <= 40
    # And no limit refuses what fits: the busiest second is full, as is a minute of enough calls.
    assert most_in(ticks, SECOND) == 40
    if max(searches) - min(searches) < MINUTE:
        assert len(searches) == min(2_000, answers["search", 200] + answers["search", 429])
