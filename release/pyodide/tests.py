"""Run the tests of the pure rules where there are no sockets, threads or processes.

``release/pyodide/run.mjs`` hands this to Pyodide; the last expression is the exit code.
"""

import os
import sys
from types import ModuleType, SimpleNamespace

sys.dont_write_bytecode = True
sys.path[:0] = ["/repository/src", "/site", "/repository"]
os.chdir("/repository")

# The asynchronous part of SQLAlchemy imports it; no test of these awaits a database.
sys.modules["greenlet"] = ModuleType("greenlet")
vars(sys.modules["greenlet"]).update(greenlet=SimpleNamespace, getcurrent=lambda: None)

import hypothesis  # noqa: E402 - found on the path above
import pytest  # noqa: E402 - likewise

# WebAssembly is several times slower: fewer examples, as the usual run has tried the others.
hypothesis.settings.register_profile("pure", max_examples=10, deadline=None, database=None)
hypothesis.settings.load_profile("pure")
print(f"CPython {sys.version}", flush=True)
int(
    pytest.main(
        [
            *("-q", "-c/dev/null", "--rootdir=/repository", "--import-mode=importlib"),
            *("-pno:cacheprovider", "-pno:faulthandler", "--noconftest", "-panyio"),
            # Neither threads nor a clock of the processor are there.
            *("-mnot campaign", "-knot threads and not takes_no_longer"),
            "tests/core",
        ]
    )
)
