"""The command: ``python -m tests.clients --help``.

Calls a service with the clients of customers, and prints what they do when it refuses them.
"""

from __future__ import annotations

from benchmarks.pages import Run, parser

from .campaign import PAGE, rows


def main() -> None:
    chosen = parser("tests.clients", __doc__).parse_args()
    about = Run("tests.clients", "openai", "anthropic", "urllib3", "httpx", "httpx-retries")
    found = rows()
    print(PAGE.tables[0](found))
    if chosen.markdown:
        PAGE.write(about.line(), found)


if __name__ == "__main__":
    main()
