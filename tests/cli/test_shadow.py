"""``lockgate shadow``: the summaries of shadow mode, and how log lines look."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lockgate import Gate
from lockgate.web.shadow import Kind, Watch

from .calling import Shell


def test_the_summaries_of_all_processes_are_added_up(
    shell: Shell, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As the logger writes them, and as JSON; lines that only look alike are left out."""
    watch = Watch(Gate("memory://", brand="acme").events)
    limited = Kind("RATE_LIMIT_EXCEEDED", "5f0c", "free", "minute", None)
    for _ in range(4):
        watch.count(limited)
    watch.count(Kind("MISSING_AUTH", None, None, None, None))
    watch.tell()
    (line,) = (r for r in caplog.records if "shadow_summary" in r.getMessage())
    assert line.levelno == logging.WARNING
    written = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s").format(line)
    more = json.dumps({"event": "shadow_summary", "requests": 3, "most": ["3 x MISSING_AUTH"]})
    others = ["shadow_summary", "shadow_summary seconds=6 requests=1 most=('a)", '{"a": 1}', "[]"]
    log = tmp_path / "service.log"
    log.write_text("\n".join([written, more, *others]))
    found = shell.json("shadow", str(log))
    assert found == {
        "requests": 8,
        "most": {
            "RATE_LIMIT_EXCEEDED key=5f0c plan=free window=minute": 4,
            "MISSING_AUTH": 4,
        },
    }
    said = shell("shadow", str(log))
    assert "MISSING_AUTH" in said.out
    assert "8 requests would have been refused." in said.err


@pytest.mark.parametrize("text", ["", "a line of the service\n", "shadow_summary\n"])
def test_a_log_without_a_summary_is_exit_code_1(shell: Shell, tmp_path: Path, text: str) -> None:
    """It is no evidence that no request would have been refused."""
    log = tmp_path / "service.log"
    log.write_text(text)
    told = shell("shadow", str(log), code=1)
    assert told.out == ""
    assert told.err.startswith("No summary of shadow mode in this log. ")
    assert shell.json("shadow", str(log), code=1) == {"requests": 0, "most": {}}


@pytest.mark.usefixtures("operator")
def test_a_log_line_of_the_command_has_time_level_and_logger(tmp_path: Path) -> None:
    command = ["-m", "lockgate", "keys", "list", "org_1", "--store", "sqlite:///nothing.db"]
    ran = subprocess.run(
        [sys.executable, *command], capture_output=True, check=False, cwd=tmp_path, text=True
    )
    stamp = r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} "
    assert ran.returncode == 3
    assert re.search(stamp + "ERROR lockgate: There is no SQLite", ran.stderr)
