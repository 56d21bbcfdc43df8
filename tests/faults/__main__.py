"""The command: ``python -m tests.faults --help``."""

from __future__ import annotations

import argparse
import logging
import time

from tests import servers

from .campaign import broken, campaign, cells, markdown, table
from .scenarios import SCENARIOS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--runs", type=int, default=1, help="of each scenario; the worst counts")
    parser.add_argument("--seconds", type=float, default=2.0, help="of load after each fault")
    parser.add_argument("--deadline", type=float, default=0.25, help="of a request, in seconds")
    parser.add_argument("--only", default="", help="scenarios whose line contains this text")
    parser.add_argument("--markdown", action="store_true", help="end with the table for the docs")
    parser.add_argument("--list", action="store_true", help="list the scenarios and stop")
    parser.add_argument("--told", action="store_true", help="print what the log told")
    options = parser.parse_args()
    logging.getLogger("lockgate").addHandler(logging.NullHandler())
    chosen = [
        (scenario, beside)
        for scenario in SCENARIOS
        for beside in scenario.beside
        if options.only.lower() in f"{scenario.servers}: {scenario.name}, {beside}".lower()
    ]
    if options.list:
        for scenario, beside in chosen:
            print(f"{scenario.servers}: {scenario.name}, {beside}")
        return
    began, results, faults = time.monotonic(), [], 0
    try:
        for scenario, figures in campaign(chosen, options.runs, options.seconds, options.deadline):
            results.append(figures)
            print(" | ".join(cells(figures)), flush=True)
            for text in broken(scenario, figures):
                faults += 1
                print(f"    broken: {text}", flush=True)
            for outcome, number in figures.outcomes:
                print(f"    answered {outcome}: {number}", flush=True)
            for text in figures.told if options.told else ():
                print(f"    told: {text}", flush=True)
    finally:
        servers.stop_shared()
    print(f"\n{(markdown if options.markdown else table)(results)}")
    print(f"\n{len(results)} scenarios in {time.monotonic() - began:.0f} s, {faults} bounds broken")
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
