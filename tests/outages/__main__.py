"""The command: ``python -m tests.outages --help``.

Runs the tests on faults of one Redis, which print what each fault cost.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from ast import literal_eval
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.pages import Run, parser
from tests.faults.scenarios import release
from tests.servers import RedisServer
from tests.stores.redis import test_campaign

from . import PROPERTY, Figures
from .campaign import PAGE, rows


def main() -> None:
    chosen = parser("tests.outages", __doc__).parse_args()
    about = Run("tests.outages", "redis")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        # As a process of its own: the tests import lockgate after their settings are made.
        command = [*reported(report), "-m", "campaign", str(test_campaign.__file__)]
        ended = subprocess.run(command, check=False).returncode
        if chosen.markdown and not ended:
            redis = RedisServer.installed()
            assert redis is not None
            PAGE.write(about.line(f"Redis {release(redis)}"), rows(recorded(report)))
    raise SystemExit(ended)


def reported(report: Path) -> list[str]:
    """Return a command of pytest that writes a report with what tests record."""
    command = [sys.executable, "-m", "pytest", "-pno:cacheprovider", f"--junit-xml={report}"]
    return [*command, "-ojunit_family=xunit1"]  # The default has no properties of tests.


def recorded(report: Path) -> list[Figures]:
    """Read the figures that the tests recorded from their report."""
    found = ElementTree.parse(report).iter("property")
    return [
        Figures(*literal_eval(each.attrib["value"]))
        for each in found
        if each.attrib["name"] == PROPERTY
    ]


if __name__ == "__main__":
    main()
