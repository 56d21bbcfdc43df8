"""What the command line says and does."""

import argparse
import re
import sys
from collections.abc import Sequence

from ..errors import ConfigurationError

_LAST_PORT = 65535


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code: 0, or 2 for what was asked wrongly."""
    options = _parser().parse_args(arguments)
    try:
        from .demo import demo  # The demo's server is an extra: it loads when it is asked for.
    except ModuleNotFoundError as missing:
        print(f"lockgate demo needs {missing.name}: pip install 'lockgate[cli]'.", file=sys.stderr)
        return 2
    try:
        return demo(options.host, options.port, options.store, as_json=options.json)
    except (ConfigurationError, OSError) as problem:
        print(f"lockgate demo: {problem}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lockgate", description="API keys, scopes and rate limits that really hold."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="serve a small generation service behind a gate")
    demo.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    demo.add_argument(
        "--port", type=_port, default=8000, help="port to listen on; 0 picks one (%(default)s)"
    )
    demo.add_argument("--store", default="memory://", help="URL of the store (%(default)s)")
    demo.add_argument(
        "--framework", choices=["starlette"], default="starlette", help="(%(default)s)"
    )
    demo.add_argument(
        "--json", action="store_true", help="print one line of JSON instead of curl lines"
    )
    return parser


def _port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"use a whole number from 0 to {_LAST_PORT}")
    return int(text)
