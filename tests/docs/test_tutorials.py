"""The README and each tutorial, followed to the letter: files, server, calls and answers.

A comment before a block says what a reader does with it: ``<!-- file: PATH -->`` saves it,
``<!-- append: PATH -->`` adds it to a file, ``<!-- setup -->`` runs it, ``<!-- server -->`` runs
it in a terminal of its own, ``<!-- install -->`` is not run: the packages must be here already.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, SERVED, TUTORIALS, check_console
from tests.patience import until
from tests.servers import reserved_port
from tests.tracing import untraced

MARKED = re.compile(r"^<!-- (\w+)(?:: (\S+))? -->\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
KEY = re.compile(r"^KEY=(acme_live_\S+)$", re.MULTILINE)
REQUIREMENT = re.compile(r"([\w-]+)(?:\[([\w,]+)\])?")


def marked(text: str, kind: str) -> list[tuple[str, str]]:
    """Return the path and the text of each block that has this mark."""
    return [(path, block) for mark, path, block in MARKED.findall(text) if mark == kind]


def environment() -> dict[str, str]:
    """Return the environment of an activated ``.venv`` that has these tests' packages."""
    scripts = str(Path(sys.executable).parent)
    path = os.pathsep.join([scripts, os.environ["PATH"]])
    return {**untraced(os.environ), "PATH": path, "PYTHONUNBUFFERED": "1"}


@contextmanager
def served(command: str, folder: Path) -> Iterator[str]:
    """Run a server; yield the text of the key that it prints once it listens."""
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env=environment(),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

        def printed() -> str:
            log.seek(0)
            return log.read()

        try:
            until(lambda: KEY.search(printed()) or server.poll() is not None)
            found = KEY.search(printed())
            assert found is not None, printed()
            yield found[1]
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


@pytest.mark.parametrize("page", TUTORIALS + SERVED, ids=lambda page: page.stem)
def test_a_tutorial_ends_as_it_says(page: Path, tmp_path: Path) -> None:
    with reserved_port() as port:
        follow(page.read_text().replace("8000", str(port)), port, tmp_path)


def follow(text: str, port: int, tmp_path: Path) -> None:
    """Do as a page says, and see what it shows."""
    for _, command in marked(text, "setup"):
        subprocess.run(["bash", "-ec", command], cwd=tmp_path, env=environment(), check=True)
    for path, block in marked(text, "file"):
        (tmp_path / path).write_text(block)
    for path, block in marked(text, "append"):
        with (tmp_path / path).open("a") as file:
            file.write(block)
    [(_, server)] = marked(text, "server")
    with served(server, tmp_path) as key:
        ready = f"curl --retry 60 --retry-connrefused -so /dev/null http://127.0.0.1:{port}/health"
        subprocess.run(["bash", "-c", ready], check=True)
        check_console(re.sub(r"^\$ KEY=.*", f"$ KEY={key}", text, flags=re.MULTILINE), {})


@pytest.mark.parametrize("page", TUTORIALS + SERVED, ids=lambda page: page.stem)
def test_a_tutorial_installs_packages_and_extras_that_exist(page: Path) -> None:
    [(_, block)] = marked(page.read_text(), "install")
    line = next(line for line in block.splitlines() if line.startswith("pip install "))
    for name, extras in REQUIREMENT.findall(line.removeprefix("pip install ").replace(">=5.2", "")):
        distribution = importlib.metadata.metadata(name)
        offered = {"", *distribution.get_all("Provides-Extra", [])}
        assert offered >= set(extras.split(","))


def test_every_tutorial_ends_in_a_429_and_a_dashboard() -> None:
    frameworks = {"starlette", "fastapi", "flask", "django", "litestar", "quart"}
    assert {page.stem for page in TUTORIALS} == {"README", *frameworks}
    for page in TUTORIALS:
        assert "HTTP/1.1 429 Too Many Requests" in page.read_text()
        assert page.stem == "README" or "The limit of the minute was reached" in page.read_text()


def test_the_readme_links_to_no_file_that_the_package_index_lacks() -> None:
    assert re.findall(r"\]\((?!https://)[^)]*\)", (ROOT / "README.md").read_text()) == []
