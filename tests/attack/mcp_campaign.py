"""The campaign against MCP servers: no tool runs that was not admitted and charged (D49, D31)."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from random import Random

from .mcp_applications import PARTS
from .mcp_calls import CREDENTIALS, HostileCall, Sessions, hostile, plain, simpler
from .oracle import may
from .pairs import Target, served, side_by_side
from .record import LOST, ORGANIZATIONS, Run
from .wire import SECONDS, SILENT, Answer

PAIRS = tuple(
    (server, application)
    for application in ("mcp-sdk", "mcp-fastmcp")
    for server in (
        *("uvicorn-h11", "uvicorn-httptools", "hypercorn-h2", "granian-asgi", "granian-h2"),
    )
)
KEPT = 5


@dataclass
class Report:
    """The results of the calls of one pair."""

    pair: str
    requests: int = 0
    entered: int = 0
    ran: Counter[str] = field(default_factory=Counter)
    """How often each part of the server ran."""
    statuses: Counter[int | None] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    silent: int = 0
    seconds: float = 0.0


class Caller:
    """Sends calls to one server, and judges what each one did.

    Args:
        target: the attacked application.
        patience: how many seconds a server may take to answer.
    """

    def __init__(self, target: Target, patience: float = SECONDS) -> None:
        self._connection = target.connect(patience)
        self._record, self._keys = target.record, target.keys
        self._record.patience = max(patience, 5.0)
        self.report = Report(target.name)
        self.sessions: Sessions = {}

    def open_sessions(self) -> None:
        """Open a session of an earlier protocol version with each key."""
        for owner in ORGANIZATIONS:
            call = plain("initialize", "", owner, {}, modern=False)
            answer, _ = self.send(call)
            session = dict(answer.headers).get(b"mcp-session-id", b"").decode()
            assert answer.status == 200 and session, answer
            self.sessions[owner] = session
            made = plain("notifications/initialized", "", owner, self.sessions, modern=False)
            note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            made.body = json.dumps(note).encode()
            assert self.send(made)[0].status == 202

    def send(self, call: HostileCall) -> tuple[Answer, Run]:
        """Send one call; return the answer, and what the call did."""
        id = self._record.new_id()
        answer = self._connection.send(call.request.numbered(id), self._keys)
        if answer is SILENT:  # A stream, which ends with its connection.
            self.report.silent += 1
        return answer, self._record.settled(id)

    def judge(self, call: HostileCall) -> None:
        """Send one call; keep what it shows and must not."""
        answer, run = self.send(call)
        report = self.report
        report.requests += 1
        report.entered += bool(run.entered)
        report.statuses[answer.status] += 1
        charged = run.charged[call.credential]
        needed = 0
        for part in PARTS:
            times = run.handlers[part.name]
            report.ran[part.name] += times
            needed += times * part.cost
            if times and not may(call.credential, part):
                self._keep(call, f"{part.name} ran with {call.credential}")
            if times > 1:
                self._keep(call, f"{part.name} ran {times} times")
        if charged < needed:
            self._keep(call, f"{charged} units charged for {needed}: {dict(run.handlers)}")
        if sum(run.charged.values()) != charged:
            self._keep(call, f"another organization was charged: {dict(run.charged)}")
        if not call.changes and call.credential in ORGANIZATIONS:
            [part] = [p for p in PARTS if p.sample == f"{call.method} {call.name}"]
            if (charged, run.handlers[part.name]) != (part.cost, may(call.credential, part)):
                self._keep(call, f"a plain call was charged {charged}: {dict(run.handlers)}")
        if run.faults or (answer.status or 0) >= 500:
            self._keep(call, f"status {answer.status}, {run.faults} exceptions")

    def finish(self) -> Report:
        """See that every session still is its owner's, and what calls did without their headers."""
        for owner in ORGANIZATIONS:
            for modern in (True, False):
                self.judge(plain("tools/call", "echo", owner, self.sessions, modern=modern))
        lost = self._record.run(LOST)
        if lost.handlers:
            self.report.findings.append(f"ran without headers: {dict(lost.handlers)}")
        self._connection.close()
        return self.report

    def _keep(self, call: HostileCall, what: str) -> None:
        short = simpler(call)
        if len(self.report.findings) < KEPT:
            self.report.findings.append(
                f"{self.report.pair}: {what}\n    changes {', '.join(call.changes) or 'none'}\n"
                f"    {short.http_method!r} {short.target!r} {short.credential} "
                f"{short.session} {short.headers}\n    {short.body!r}"
            )
        else:
            self.report.findings.append(what)


def attacked(pair: tuple[str, str], seed: int, count: int, patience: float = SECONDS) -> Report:
    """Call one server with a number of hostile calls, which a seed chooses."""
    random = Random(f"{seed} {pair}")
    with served(*pair) as target:
        caller = Caller(target, patience)
        caller.open_sessions()
        began = time.monotonic()
        for credential in CREDENTIALS:
            for part in PARTS:
                method, _, name = part.sample.partition(" ")
                for modern in (True, False):
                    caller.judge(plain(method, name, credential, caller.sessions, modern=modern))
        for _ in range(count):
            caller.judge(hostile(random, caller.sessions))
        report = caller.finish()
        report.seconds = time.monotonic() - began
        return report


HEAD = f"{'server and application':32} {'calls':>7} {'entered':>8} {'ran':>7} {'findings':>8}"


def line(report: Report) -> str:
    """A line of the table."""
    ran = sum(report.ran.values())
    figures = f"{report.requests:7} {report.entered:8} {ran:7} {len(report.findings):8}"
    rate = report.requests / report.seconds if report.seconds else 0
    statuses = " ".join(f"{s}:{n}" for s, n in sorted(report.statuses.items(), key=str))
    return f"{report.pair:32} {figures} {rate:6.0f}/s  {statuses}"


def run(only: str, seed: int, count: int, processes: int) -> int:
    """Run the campaign, print its table, and return the number of findings."""
    pairs = [pair for pair in PAIRS if only in " ".join(pair)]
    findings = 0
    print(HEAD)
    for report in side_by_side(partial(attacked, seed=seed, count=count), pairs, processes):
        print(line(report), flush=True)
        findings += len(report.findings)
        for finding in report.findings[:KEPT]:
            print(f"  {finding}", flush=True)
    return findings
