"""``python -m benchmarks.server NAME PORT``: serve one contender with uvicorn."""

import sys

import uvicorn

from . import contenders
from .workload import PLENTY


def main(name: str, port: str) -> None:
    app = getattr(contenders, name)(PLENTY)
    uvicorn.run(app, port=int(port), lifespan="off", log_level="warning", access_log=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
