"""What the command line says and does."""

import argparse
import re
import sys
from collections.abc import Sequence

from ..errors import ConfigurationError, StoreUnavailable
from ..stores.resilience.deadlines import DEADLINE
from .store_urls import HELP as STORE_HELP
from .store_urls import VARIABLE as STORE_VARIABLE
from .store_urls import store_url

_DEMO_STORE = "sqlite:///lockgate-demo.db"
_LAST_PORT = 65535


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code: 0, 1 for a check that found something, or 2 for what
    was asked wrongly."""
    options = _parser().parse_args(arguments)
    name: str = options.command
    try:
        return _COMMANDS[name](options)
    except ModuleNotFoundError as missing:
        needed = f"pip install 'lockgate[{_extras(options)}]'"
        print(f"lockgate {name} needs {missing.name}: {needed}.", file=sys.stderr)
    except (ConfigurationError, StoreUnavailable, OSError) as problem:
        print(f"lockgate {name}: {problem}", file=sys.stderr)
    return 2


# What a command needs is an extra: it loads when the command is asked for.


def _extras(options: argparse.Namespace) -> str:
    if options.command == "db":
        return "sql"
    return "cli" if options.framework == "starlette" else f"cli,{options.framework}"


def _demo(options: argparse.Namespace) -> int:
    from ..demo.command import demo, development_secrets

    store = store_url(options.store, _DEMO_STORE)
    if options.store is None and store != _DEMO_STORE and (used := development_secrets()):
        raise ConfigurationError(
            f"{STORE_VARIABLE} may be a service's own store, and the demo's secrets are published: "
            f"set {' and '.join(used)} to your own, or name a store for the demo by --store."
        )
    return demo(
        options.host,
        options.port,
        store,
        options.framework,
        options.deadline,
        as_json=options.json,
    )


def _db(options: argparse.Namespace) -> int:
    from .db import db

    return db(options.action, store_url(options.store), options.prefix)


def _simulate(options: argparse.Namespace) -> int:
    from . import simulate

    limits = {"rpm": options.rpm, "rph": options.rph, "rpd": options.rpd}
    plan = simulate.plan_of(options.plan, limits, exact=options.exact)
    if options.trace is not None:
        arrivals = simulate.read_trace(options.trace)
    else:
        arrivals = simulate.made_up(options.pattern, options.rate, options.span, options.seed)
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # Not every terminal has the plot's characters.
    return simulate.run(plan, arrivals, options.svg)


_COMMANDS = {"demo": _demo, "db": _db, "simulate": _simulate}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lockgate", description="API keys, scopes and rate limits that really hold."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    demo = commands.add_parser("demo", help="serve a small generation service behind a gate")
    demo.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    demo.add_argument(
        "--port", type=_port, default=8000, help="port to listen on; 0 picks one (%(default)s)"
    )
    demo.add_argument("--store", metavar="URL", help=f"{STORE_HELP}; else {_DEMO_STORE}")
    demo.add_argument(
        "--framework",
        choices=["starlette", "fastapi", "flask"],
        default="starlette",
        help="what serves it (%(default)s)",
    )
    demo.add_argument(
        "--deadline",
        type=float,
        default=DEADLINE,
        metavar="SECONDS",
        help="how long a request waits for a shared store (%(default)s)",
    )
    demo.add_argument(
        "--json", action="store_true", help="print one line of JSON instead of curl lines"
    )
    db = commands.add_parser("db", help="see to the tables of a store in SQL")
    db.add_argument(
        "action",
        choices=["upgrade", "current", "check"],
        help="bring the tables up to date, say their revision, or fail if they are out of date",
    )
    db.add_argument("--store", metavar="URL", help=STORE_HELP)
    db.add_argument(
        "--prefix", default="lockgate_", help="what the tables' names start with (%(default)s)"
    )
    _describe(commands.add_parser("simulate", help="show what a plan does to traffic"))
    return parser


def _describe(simulate: argparse.ArgumentParser) -> None:
    simulate.add_argument("--plan", default="free", help="plan to start from (%(default)s)")
    for name, window in (("rpm", "minute"), ("rph", "hour"), ("rpd", "day")):
        simulate.add_argument(f"--{name}", type=int, metavar="N", help=f"other limit a {window}")
    simulate.add_argument("--exact", action="store_true", help="keep every call apart")
    simulate.add_argument(
        "--trace", metavar="FILE", help="calls to replay, one time a line; - reads them from stdin"
    )
    simulate.add_argument(
        "--rate", type=_rate, default="20/minute", help="calls to make up (%(default)s)"
    )
    simulate.add_argument(
        "--for", dest="span", type=_span, default="1h", help="for how long: 90s, 10m, 2h, 3d"
    )
    simulate.add_argument(
        "--pattern",
        choices=["steady", "random", "bursts"],
        default="random",
        help="evenly, each for itself, or all at the start of each minute (%(default)s)",
    )
    simulate.add_argument("--seed", type=int, default=0, help="for the same random calls again")
    simulate.add_argument("--svg", metavar="FILE", help="write a picture as well")


def _rate(text: str) -> tuple[int, int]:
    from .simulate import rate_of

    try:
        return rate_of(text)
    except ValueError:
        raise argparse.ArgumentTypeError("use a rate such as 90/minute or 2/second") from None


def _span(text: str) -> int:
    from .simulate import span_of

    try:
        return span_of(text)
    except ValueError:
        raise argparse.ArgumentTypeError("use a time such as 90s, 10m, 2h or 3d") from None


def _port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"use a whole number from 0 to {_LAST_PORT}")
    return int(text)
