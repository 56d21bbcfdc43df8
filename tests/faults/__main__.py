"""The command: ``python -m tests.faults --help``."""

from __future__ import annotations

import logging
import time

from benchmarks.pages import Run, parser
from tests import servers

from .campaign import PAGE, broken, campaign, cells, ending, releases_used, rows
from .scenarios import SCENARIOS


def main() -> None:
    options = parser("tests.faults", __doc__)
    options.add_argument("--runs", type=int, default=1, help="of each scenario; the worst counts")
    options.add_argument("--seconds", type=float, default=2.0, help="of load after each fault")
    options.add_argument("--deadline", type=float, default=0.25, help="of a request, in seconds")
    options.add_argument("--only", default="", help="scenarios whose line contains this text")
    options.add_argument("--list", action="store_true", help="list the scenarios and stop")
    chosen = options.parse_args()
    about = Run("tests.faults", "redis", "psycopg")
    logging.getLogger("lockgate").addHandler(logging.NullHandler())
    wanted = "" if chosen.markdown else chosen.only.lower()
    staged = [
        (scenario, beside)
        for scenario in SCENARIOS
        for beside in scenario.beside
        for _ in range(chosen.runs)
        if wanted in f"{scenario.servers}: {scenario.name}, {beside}".lower()
    ]
    if chosen.list:
        for scenario, beside in staged:
            print(f"{scenario.servers}: {scenario.name}, {beside}")
        return
    began, results, faults = time.monotonic(), [], 0
    try:
        for scenario, figures in campaign(staged, chosen.seconds, chosen.deadline):
            results.append(figures)
            print(" | ".join(cells(figures)), flush=True)
            for text in broken(scenario, figures):
                faults += 1
                print(f"    broken: {text}", flush=True)
            for outcome, number in figures.outcomes:
                print(f"    answered {outcome}: {number}", flush=True)
    finally:
        servers.stop_shared()
    print(f"\n{len(results)} scenarios in {time.monotonic() - began:.0f} s, {faults} bounds broken")
    if chosen.markdown and not faults:
        PAGE.write(about.line(*releases_used()), rows(results), ending=ending(results))
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
