"""The README and the tutorial of each framework, followed to the letter: files, server, calls.

A framework has the part of the tutorial below its ``<summary>``, and all that is outside of them.

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

from tests.docs.blocks import SERVED, TUTORIALS, check_console
from tests.patience import until
from tests.servers import reserved_port
from tests.tracing import untraced

MARKED = re.compile(r"^<!-- (\w+)(?:: (\S+))? -->\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
KEY = re.compile(r"^KEY=(acme_live_\S+)$", re.MULTILINE)
REQUIREMENT = re.compile(r"([\w-]+)(?:\[([\w,]+)\])?")
FRAMEWORK = re.compile(
    r"^<details [^>]*>\n<summary><b>(\w+)</b></summary>\n(.*?)^</details>$",
    re.DOTALL | re.MULTILINE,
)
README, TUTORIAL = (page.read_text() for page in TUTORIALS)


def tutorial_of(framework: str) -> str:
    """Return the tutorial without the parts of all other frameworks."""
    return FRAMEWORK.sub(lambda part: part[2] if part[1] == framework else "", TUTORIAL)


FRAMEWORKS = {name: tutorial_of(name) for name, _ in FRAMEWORK.findall(TUTORIAL)}
PAGES = {"README": README, **FRAMEWORKS, **{page.stem: page.read_text() for page in SERVED}}


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


@pytest.mark.parametrize("page", PAGES)
def test_a_tutorial_ends_as_it_says(page: str, tmp_path: Path) -> None:
    with reserved_port() as port:
        follow(PAGES[page].replace("8000", str(port)), port, tmp_path)


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


@pytest.mark.parametrize("page", PAGES)
def test_a_tutorial_installs_packages_and_extras_that_exist(page: str) -> None:
    [(_, block)] = marked(PAGES[page], "install")
    line = next(line for line in block.splitlines() if line.startswith("pip install "))
    named = line.removeprefix("pip install ").replace(">=5.2", "").replace("'.[", "'lockgate[")
    for name, extras in REQUIREMENT.findall(named):
        distribution = importlib.metadata.metadata(name)
        offered = {"", *distribution.get_all("Provides-Extra", [])}
        assert offered >= set(extras.split(","))


def test_every_tutorial_ends_in_a_429_and_a_dashboard() -> None:
    assert set(FRAMEWORKS) == {"Starlette", "FastAPI", "Flask", "Django", "Litestar", "Quart"}
    for page in FRAMEWORKS.values():
        assert "HTTP/1.1 429 Too Many Requests" in page
        assert "The limit of the minute was reached" in page


def test_the_readme_has_at_most_700_words() -> None:
    assert len(README.split()) <= 700


def test_the_readme_links_to_no_file_that_the_package_index_lacks() -> None:
    assert re.findall(r"\]\((?!https://)[^)]*\)", README) == []
