"""No example runs with a secret that its readers know."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lockgate.core.weak_secrets import refuse_weak
from tests.tracing import untraced

from .secrets_of_examples import SECRETS

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
NEEDED = re.compile(r'os\.environ\["([A-Z_]+)"\]')
MADE = re.compile(r"^ +(?:# )?(export ([A-Z_]+)=\$\(.*\))$", re.MULTILINE)
WITH_SECRETS = [path for path in EXAMPLES if NEEDED.search(path.read_text())]


def without_secrets() -> dict[str, str]:
    return {k: v for k, v in untraced(os.environ).items() if k not in SECRETS}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_holds_no_secret(path: Path) -> None:
    """Every secret is a variable of the environment, without a default."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.keyword | ast.Call):
            continue
        for value in [node.value] if isinstance(node, ast.keyword) else node.args:
            name = node.arg if isinstance(node, ast.keyword) else ast.unparse(node.func)
            if re.search("pepper|secret|SignedCookie", name or "", re.IGNORECASE):
                assert NEEDED.search(ast.unparse(value).replace("'", '"')), ast.unparse(node)


_RUN_ALL = """
import runpy, sys
for path in sys.argv[1:]:
    try:
        runpy.run_path(path, run_name="__main__")
        print(path, "starts")
    except KeyError as missing:
        print(path, missing.args[0])
"""


def test_an_example_without_its_secrets_does_not_start(tmp_path: Path) -> None:
    """Each stops before it prints a line, at the variable that is missing."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN_ALL, *WITH_SECRETS],
        cwd=tmp_path,
        env=without_secrets(),
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    stopped = dict(line.split() for line in done.stdout.splitlines())
    assert stopped.keys() == set(map(str, WITH_SECRETS))
    for path, name in stopped.items():
        assert name in NEEDED.findall(Path(path).read_text()), path


def test_an_example_shows_how_to_make_each_of_its_secrets() -> None:
    shown: set[tuple[str, str]] = set()
    for path in WITH_SECRETS:
        text = path.read_text()
        made = MADE.findall(text)
        assert {name for _, name in made} == set(NEEDED.findall(text)), path
        shown |= {*made}
    done = subprocess.run(
        ["bash", "-euc", "; ".join(f'{line}; echo "${name}"' for line, name in shown)],
        env={**without_secrets(), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    values = done.stdout.split()
    assert len(set(values)) == len(shown)
    for value in values:
        refuse_weak("secret", value, "")
