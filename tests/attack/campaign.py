"""The campaign: every pair of server and framework, every answer judged, findings told.

``python -m tests.attack.campaign --count 1500 --seed 1`` prints a table of pairs and, for each
finding, the shortest request that shows it.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from . import mcp_campaign
from .attack import Attack
from .generator import attacks
from .handlers import BY_NAME
from .oracle import Violation, is_preflight, judge, judge_lost
from .pairs import PAIRS, Target, served, side_by_side
from .record import LOST, Record, Run
from .service import BARE
from .wire import SECONDS, SILENT, Answer

KEPT = 5
"""How many requests of one kind are shown."""


class Finding(NamedTuple):
    """A request that broke a sentence, as short as it could be made."""

    pair: str
    kind: str
    """The sentence and the families of the changes: findings of one kind are one."""
    wire: bytes
    credential: str
    changes: tuple[str, ...]
    families: frozenset[str]
    violation: Violation

    def __str__(self) -> str:
        v = self.violation
        return (
            f"[{self.kind}] {self.pair}\n"
            f"    request   {self.wire!r}\n"
            f"    changes   {'; '.join(self.changes) or 'none'}; credential {self.credential}\n"
            f"    handler   {v.handler}: expected {v.expected}, found {v.found}"
        )


class Sent(NamedTuple):
    """A request that was judged."""

    attack: Attack
    answer: Answer
    lines: int
    """How much the log said of it then."""
    violations: tuple[Violation, ...]


@dataclass
class Report:
    """The results of the attacks on one pair."""

    pair: str
    requests: int = 0
    entered: int = 0
    """How many requests came to the gate: a server answers some by itself."""
    reached: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    """How many requests showed each kind of finding."""
    findings: list[Finding] = field(default_factory=list)
    deaths: int = 0
    """How often the server's process was replaced."""
    silent: Counter[str] = field(default_factory=Counter)
    """Changes after which the server kept silent."""
    hung: list[bytes] = field(default_factory=list)
    """Requests that took too long to leave the application."""
    late: list[bytes] = field(default_factory=list)
    """Requests that did something after they were judged, and were judged again."""
    lost: int = 0
    """How many requests came to the application without their headers."""
    seconds: float = 0.0


class Attacker:
    """Sends requests to one target and judges what each one did.

    Args:
        target: the attacked application.
        patience: how many seconds a server may take to answer.
    """

    def __init__(self, target: Target, patience: float = SECONDS) -> None:
        self.target = target
        self.report = Report(target.name)
        self._record: Record = target.record
        self._handlers = target.application.handlers
        self._connection = target.connect(patience)
        self._record.patience = patience
        self._http1 = target.server.protocol == "http/1.1"
        self._keys = target.keys
        self._names = {name: f"<{name}>" for name in self._keys}
        self._sent: dict[int, Sent] = {}
        self._record.run(LOST)
        self._pid = self._record.pid

    def close(self) -> None:
        self._connection.close()

    def fits(self, attack: Attack) -> bool:
        """Whether the protocol can carry the attack."""
        if self._http1:
            return True
        return not any(m.http1 for m in attack.mutations)

    def send(self, attack: Attack, *, bare: bool = False) -> tuple[int, Run, Answer]:
        """Send one request; return its id, its record and the response."""
        id = self._record.new_id()
        extra = ((BARE.encode(), b"1"),) if bare else ()
        answer = self._connection.send(attack.request.numbered(id), self._keys, extra)
        run = self._record.settled(id)
        if answer.status is None and answer is SILENT:
            self.report.silent["; ".join(m.name for m in attack.mutations)] += 1
        if self._record.pid != self._pid:
            self._pid, self._keys = self._record.pid, self.target.keys
            self.report.deaths += 1
        return id, run, answer

    def violations(self, attack: Attack) -> list[Violation]:
        """Send one request and judge it."""
        id, run, answer = self.send(attack)
        found = self._judged(attack, id, run, answer)
        self._sent[id] = Sent(attack, answer, run.lines, tuple(found))
        report = self.report
        report.requests += 1
        report.entered += bool(run.entered)
        report.reached.update(name for name, times in run.handlers.items() if times)
        return found

    def _judged(self, attack: Attack, id: int, run: Run, answer: Answer) -> list[Violation]:
        any_opens = self.target.server.any_method_opens
        found = list(judge(attack, id, run, answer, self._handlers, any_opens=any_opens))
        if any(v.clause in ("5xx", "fault") for v in found):
            _, run, answer = self.send(attack, bare=True)
            if run.faults or (answer.status or 0) >= 500:
                # The framework fails at this request by itself.
                found = [v for v in found if v.clause not in ("5xx", "fault")]
        if any(v.clause == "headers" for v in found) and self.target.application.around:
            found = [v for v in found if v.clause != "headers"]
        return found

    def _judge_late(self) -> None:
        """Judge again each request that did something after it was judged."""
        for id, sent in list(self._sent.items()):
            run = self._record.settled(id)
            if run.lines > sent.lines:
                self.report.late.append(sent.attack.request.wire(self._names))
                for violation in self._judged(sent.attack, id, run, sent.answer):
                    if violation not in sent.violations:
                        self._keep(kind_of(violation, sent.attack), sent.attack, violation)
        lost = self._record.run(LOST)
        self.report.lost = lost.entered
        for violation in judge_lost(lost, self._handlers):
            attack = Attack(BY_NAME[violation.handler], "GET", "none")
            self._keep("entry: headers lost", attack, violation)

    def attack(self, attack: Attack) -> None:
        """Send one request; minimize its findings, and keep one for each kind."""
        if not self.fits(attack):
            return
        for violation in self.violations(attack):
            kind = self._known(violation, attack)
            if kind is None:
                short, shown = self._shorten(attack, violation)
                self._keep(kind_of(shown, short), short, shown)
            else:
                self.report.kinds[kind] += 1

    def _keep(self, kind: str, attack: Attack, violation: Violation) -> None:
        """Count a finding, and show the first ones of its kind."""
        if self.report.kinds[kind] < KEPT:
            self.report.findings.append(self._finding(kind, attack, violation))
        self.report.kinds[kind] += 1

    def run(self, seed: int, count: int, *, alone: bool = True) -> Report:
        """Make the attacks that a seed stands for.

        Args:
            seed: chooses them.
            count: of attacks besides each handler's own requests.
            alone: whether to send requests that leave a server waiting for their rest.
        """
        began = time.monotonic()
        for attack in attacks(self._handlers, seed, count):
            if alone or not attack.request.alone:
                self.attack(attack)
        self.finish()
        self.report.seconds = time.monotonic() - began
        return self.report

    def finish(self) -> None:
        """Disconnect, and judge what requests did after they were judged."""
        self.close()
        self._judge_late()
        self.report.hung = [
            self._sent[id].attack.request.wire(self._names)
            for id in sorted(self._record.hung & self._sent.keys())
        ]

    def _finding(self, kind: str, attack: Attack, violation: Violation) -> Finding:
        wire = attack.request.wire(self._names)
        changes = tuple(f"{m.family}: {m.name}" for m in attack.mutations)
        parts = wire, attack.credential, changes, attack.families, violation
        return Finding(self.report.pair, kind, *parts)

    def _known(self, violation: Violation, attack: Attack) -> str | None:
        """Return the kind of a finding that a known change alone causes."""
        seen = Counter((f.kind, f.families, f.violation.clause) for f in self.report.findings)
        for (kind, families, clause), times in seen.items():
            if clause == violation.clause and families <= attack.families and times >= KEPT:
                return kind
        return None

    def _shorten(self, attack: Attack, violation: Violation) -> tuple[Attack, Violation]:
        """Leave out every change that the finding does not need."""
        while True:
            for simpler in attack.simpler():
                again = [v for v in self.violations(simpler) if v.clause == violation.clause]
                if again:
                    attack, violation = simpler, again[0]
                    break
            else:
                return attack, violation


def kind_of(violation: Violation, attack: Attack) -> str:
    """Return the family of a finding: the broken guarantee, and the change that breaks it."""
    clause, request = violation.clause, attack.request
    if clause in ("405", "public method", "method", "preflight"):
        return clause
    handler = BY_NAME[violation.handler]
    if is_preflight(request):
        about = "preflight"
    elif not request.alone and not handler.allows(request.method.decode("latin-1")):
        about = "unnamed method"
    elif not request.target.startswith(b"/"):
        about = "absolute form"
    else:
        about = "+".join(sorted(attack.families)) or "as named"
    return f"{clause}: {about}"


def attacked(pair: tuple[str, str], seed: int, count: int) -> Report:
    """Attack one pair."""
    with served(*pair) as target:
        return Attacker(target).run(seed, count)


def line(report: Report) -> str:
    """A line of the table."""
    server, application = report.pair.split(" ")
    figures = f"{report.requests:8} {report.entered:8} {len(report.reached):8}"
    rate = report.requests / report.seconds if report.seconds else 0
    others = report.deaths, len(report.hung), len(report.late), report.lost
    named = zip(("died", "hung", "late", "lost"), others, strict=True)
    died = "".join(f"  {what} {times} times" for what, times in named if times)
    found = f"{len(report.kinds):8} {sum(report.kinds.values()):8}"
    return f"{server:18} {application:22} {figures} {found} {rate:7.0f}/s{died}"


HEAD = (
    f"{'server':18} {'application':22} {'requests':>8} {'entered':>8} {'handlers':>8} "
    f"{'kinds':>8} {'findings':>8}"
)


def summary(reports: Iterable[Report]) -> str:
    """Kinds of findings, each with the pairs that it was found at."""
    pairs: dict[str, Counter[str]] = {}
    for report in reports:
        for kind, times in report.kinds.items():
            pairs.setdefault(kind, Counter())[report.pair] = times
    lines: list[str] = []
    for kind, counts in sorted(pairs.items()):
        lines.append(f"{kind}: {sum(counts.values())} requests at {len(counts)} pairs")
        lines += [f"    {times:6} {pair}" for pair, times in counts.most_common()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1500, help="requests at each pair")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", help="pairs that contain this text")
    options = parser.parse_args()
    pairs = [pair for pair in PAIRS if options.only in " ".join(pair)]
    print(HEAD)
    reports: list[Report] = []
    attack = partial(attacked, seed=options.seed, count=options.count)
    for report in side_by_side(attack, pairs, options.processes):
        print(line(report), flush=True)
        reports.append(report)
    findings = [finding for report in reports for finding in report.findings]
    for finding in findings:
        print(f"\n{finding}")
    requests = sum(report.requests for report in reports)
    print(f"\n{summary(reports)}\n\n{requests} requests, {len(reports)} pairs\n")
    calls = mcp_campaign.run(options.only, options.seed, options.count, options.processes)
    raise SystemExit(bool(findings or calls))


if __name__ == "__main__":
    main()
