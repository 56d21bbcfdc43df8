"""The command: ``python -m tests.streams --help``.

Run nothing beside it. The gates read the campaign's clock before a call, where in service a store
reads its own under its lock. A call that then waits seconds for a core is counted as by a clock
that has stepped back, and the judge knows of no such step: it reports a window above its limit.
"""

from __future__ import annotations

import time

from benchmarks.pages import Run, parser
from tests.campaigns import STORES

from .campaign import FULL, PAGE, cells, suffer


def main() -> None:
    options = parser("tests.streams", __doc__)
    options.add_argument("--only", default="", help="stores whose name contains this text")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--streams", type=int, default=FULL.streams, help="tried at once")
    options.add_argument("--seconds", type=float, default=FULL.lasts, help="of load on each store")
    chosen = options.parse_args()
    size = FULL._replace(
        streams=chosen.streams,
        limit=FULL.limit * chosen.streams // FULL.streams,
        lasts=chosen.seconds,
    )
    about = Run("tests.streams", "redis", "psycopg", "sqlalchemy")
    wanted = "" if chosen.markdown else chosen.only.lower()
    rows: dict[str, tuple[str, ...]] = {}
    faults = 0
    for store in STORES:
        if wanted not in store.lower():
            continue
        began = time.monotonic()
        figures = suffer(store, size, chosen.seed)
        rows[store] = cells(figures)
        print(store, *rows[store], f"({time.monotonic() - began:.0f} s)", sep=" | ", flush=True)
        for text in figures.broken:
            faults += 1
            print(f"    broken: {text}", flush=True)
    if chosen.markdown and not faults:
        PAGE.write(about.line(), rows)
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
