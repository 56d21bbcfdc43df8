"""What the command line says and does."""

import argparse
import re
import sys
from collections.abc import Sequence

from ..errors import ConfigurationError, StoreUnavailable

_LAST_PORT = 65535


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code: 0, 1 for a check that found something, or 2 for what
    was asked wrongly."""
    options = _parser().parse_args(arguments)
    name: str = options.command
    try:
        return _demo(options) if name == "demo" else _db(options)
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
    from .demo import demo

    framework: str = options.framework
    return demo(options.host, options.port, options.store, framework, as_json=options.json)


def _db(options: argparse.Namespace) -> int:
    from .db import db

    return db(options.action, options.store, options.prefix)


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
    demo.add_argument(
        "--store", default="sqlite:///lockgate-demo.db", help="URL of the store (%(default)s)"
    )
    demo.add_argument(
        "--framework",
        choices=["starlette", "fastapi", "flask"],
        default="starlette",
        help="what serves it (%(default)s)",
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
    db.add_argument("--store", required=True, help="URL of the store")
    db.add_argument(
        "--prefix", default="lockgate_", help="what the tables' names start with (%(default)s)"
    )
    return parser


def _port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"use a whole number from 0 to {_LAST_PORT}")
    return int(text)
