"""``python -m benchmarks [name ...]``: run the named benchmarks, or all of them."""

import argparse
import importlib

from .measure import machine

# In the order in which they run. A profile is no benchmark, limits needs servers, and mcp an extra:
# these run only when they are asked for.
BENCHMARKS = ("asgi", "wsgi", "http", "growth", "memory")
NAMES = (*BENCHMARKS, "limits", "mcp", "profile")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that all runs")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(NAMES):
        parser.error(f"there is no {min(unknown)!r}: choose from {', '.join(NAMES)}")
    print(machine())
    for name in chosen.names or BENCHMARKS:
        importlib.import_module(f".{name}", __package__).main(quick=chosen.quick)


if __name__ == "__main__":
    main()
