"""The code blocks of a page: find them, run those of Python, and compare those of a shell."""

import ast
import asyncio
import doctest
import inspect
import itertools
import logging
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
TUTORIALS = [ROOT / "README.md", ROOT / "docs" / "tutorial.md"]
OF_THE_SHELL = [ROOT / "docs" / name for name in ("on-call.md", "migrating.md")]
"""Pages whose commands are `lockgate`'s, not those of a client: see ``test_shell_pages.py``."""
SERVED = [ROOT / "docs" / "mcp.md"]
"""Pages whose commands call a server that the page writes, as a tutorial's do."""
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

_NUMBERS = itertools.count()
_SECRET = re.compile(r'os\.environ\["(\w+)"\]')
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(text: str, language: str) -> Iterator[tuple[int, str]]:
    """Yield the blocks of a page in one language, each with the line it begins after."""
    for block in _BLOCK.finditer(text):
        if block[1] == language:
            yield text.count("\n", 0, block.start(2)), block[2]


def run_python(page: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Run the ``python`` blocks of a page as one module, and return it."""
    for name in sorted({*_SECRET.findall(page.read_text())}):
        value = "memory://" if name == "LOCKGATE_STORE" else f"{name} of these tests"
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(logging.getLogger("lockgate"), "handlers", [])
    # Some frameworks look up the types of a handler in its module, and Celery knows a task by its
    # module and name in the whole process.
    module = ModuleType(f"page_{next(_NUMBERS)}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for line, source in blocks(page.read_text(), "python"):
        # Line feeds in front make a traceback point at the page's own line.
        code = compile("\n" * line + source, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        value = eval(code, module.__dict__)  # the pages are ours
        if inspect.iscoroutine(value):
            asyncio.run(value)
    return module


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a ``console`` block, with its output on the page."""
    for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = step.partition("\n")
        yield command, expected


def check_console(text: str, variables: Mapping[str, str]) -> None:
    """Run the ``console`` blocks of a page, and compare each output with the page's.

    One shell runs them all, so that a variable set above is there below.

    Args:
        text: the page; ``...`` in an output stands for any text.
        variables: the variables of the shell at the start.
    """
    steps = [step for _, block in blocks(text, "console") for step in commands(block)]
    mark = "---- the next command ----"
    script = f"\necho; echo '{mark}'\n".join(command for command, _ in steps)
    ran = subprocess.run(
        ["bash", "-uc", script],
        env={"PATH": "/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    shown = ran.stdout.replace("\r\n", "\n").split(f"{mark}\n")
    assert len(shown) == len(steps), ran.stderr
    checker = doctest.OutputChecker()
    for (command, expected), got in zip(steps, shown, strict=True):
        same = checker.check_output(expected.strip() + "\n", got.strip() + "\n", doctest.ELLIPSIS)
        assert same or not expected.strip(), f"{command}\nexpected:\n{expected}\ngot:\n{got}"
