"""The command ``lockgate``, and ``python -m lockgate``."""

import atexit
import gc
import logging
import sys


def main() -> int:
    """Run the command, or name the extra that it needs; return the exit code."""
    # Imported objects stay, and are most of a short command's: each collection would walk them,
    # while they are made and at the exit, for a third of its CPU time.
    gc.set_threshold(20_000, 10, 10)
    atexit.register(gc.freeze)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        from .cli import main as command
    except ModuleNotFoundError as missing:
        print(f"lockgate needs {missing.name}: pip install 'lockgate[cli]'.", file=sys.stderr)
        return 2
    return command()


if __name__ == "__main__":
    sys.exit(main())
