"""The code blocks of a page: find them, and run those that show a shell and its output."""

import doctest
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted([ROOT / "README.md", *(ROOT / "docs" / "tutorials").glob("*.md")])
OF_THE_SHELL = [ROOT / "docs" / name for name in ("cli.md", "migrating.md")]
"""Pages whose commands are `lockgate`'s, not those of a client: see ``test_shell_pages.py``."""
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(text: str, language: str) -> Iterator[tuple[int, str]]:
    """Yield the blocks of a page in one language, each with the line it begins after."""
    for block in _BLOCK.finditer(text):
        if block[1] == language:
            yield text.count("\n", 0, block.start(2)), block[2]


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
