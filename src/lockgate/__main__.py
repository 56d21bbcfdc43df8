"""The command ``lockgate``, and ``python -m lockgate``."""

import sys


def main() -> int:
    """Run the command, or name the extra that it needs; return the exit code."""
    try:
        from .cli import main as command
    except ModuleNotFoundError as missing:
        print(f"lockgate needs {missing.name}: pip install 'lockgate[cli]'.", file=sys.stderr)
        return 2
    return command()


if __name__ == "__main__":
    sys.exit(main())
