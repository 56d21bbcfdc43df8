"""werkzeug's development server, as ``flask run`` starts it: ``development.py PORT``."""

from __future__ import annotations

import sys

from werkzeug.serving import run_simple

from .entry import app


def main() -> None:
    run_simple("127.0.0.1", int(sys.argv[1]), app, threaded=True)


if __name__ == "__main__":
    main()
