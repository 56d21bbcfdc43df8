"""The examples of the README and the pages run: Python unchanged, `console` blocks by a shell."""

import ast
import asyncio
import doctest
import inspect
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.blackbox.demo import Demo, Face

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
SOURCES = sorted([*(ROOT / "examples").glob("*.py"), *(ROOT / "src").rglob("*.py")])
SECRET = re.compile(r'os\.environ\["(\w+)"\]')
GIVEN = re.compile(r"(?:peppers|session_secrets)=\[b?['\"]|SignedCookie\(\s*\[b?['\"]")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path, language: str) -> Iterator[tuple[int, str]]:
    """The blocks of a page in one language, each with the line it begins after."""
    text = page.read_text()
    for block in BLOCK.finditer(text):
        if block[1] == language:
            yield text.count("\n", 0, block.start(2)), block[2]


def pages_with(language: str) -> list[Any]:
    return [pytest.param(p, id=p.name) for p in PAGES if any(blocks(p, language))]


@pytest.mark.parametrize("page", pages_with("python"))
def test_the_python_of_a_page_runs(
    page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in sorted({*SECRET.findall(page.read_text())}):
        monkeypatch.setenv(name, f"{name} of these tests")
    monkeypatch.setattr(logging.getLogger("lockgate"), "handlers", [])
    module = ModuleType("page")  # Some frameworks look up the types of a handler in its module.
    monkeypatch.setitem(sys.modules, "page", module)
    names = module.__dict__
    for line, source in blocks(page, "python"):
        # Line feeds in front make a traceback point at the page's own line.
        code = compile("\n" * line + source, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        value = eval(code, names)  # the pages are ours
        if inspect.iscoroutine(value):
            asyncio.run(value)
    assert "Traceback" not in capsys.readouterr().out


def test_no_page_example_or_docstring_shows_a_secret_to_copy() -> None:
    """Readers copy examples, and a published secret is not secret."""
    assert [str(path) for path in (*PAGES, *SOURCES) if GIVEN.search(path.read_text())] == []


@pytest.mark.parametrize("page", pages_with("console"))
def test_the_shell_shows_what_the_page_shows(page: Path) -> None:
    """One shell for the whole page, so that a variable set above is there below."""
    steps = [step for _, block in blocks(page, "console") for step in commands(block)]
    mark = "---- the next command ----"
    script = f"\necho; echo '{mark}'\n".join(command for command, _ in steps)
    with Demo(Face("starlette", "memory://")) as demo:
        free = demo["free"]
        variables = {"BASE": demo.base_url, "KEY": free.api_key, "SESSION": free.session_cookie}
        ran = subprocess.run(
            ["bash", "-uc", script],
            env={"PATH": "/usr/bin:/bin", **variables},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    shown = ran.stdout.replace("\r\n", "\n").split(f"{mark}\n")
    assert len(shown) == len(steps), ran.stderr
    checker = doctest.OutputChecker()
    for (command, expected), got in zip(steps, shown, strict=True):
        same = checker.check_output(expected.strip() + "\n", got.strip() + "\n", doctest.ELLIPSIS)
        assert same or not expected.strip(), f"{command}\nexpected:\n{expected}\ngot:\n{got}"


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a block, with its output on the page."""
    for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = step.partition("\n")
        yield command, expected
