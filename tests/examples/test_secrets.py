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


def named(paths: list[Path]) -> list[object]:
    return [pytest.param(path, id=path.stem) for path in paths]


@pytest.mark.parametrize("path", named(EXAMPLES))
def test_an_example_holds_no_secret(path: Path) -> None:
    """Every secret is a variable of the environment, without a default."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.keyword | ast.Call):
            continue
        for value in [node.value] if isinstance(node, ast.keyword) else node.args:
            name = node.arg if isinstance(node, ast.keyword) else ast.unparse(node.func)
            if re.search("pepper|secret|SignedCookie", name or "", re.IGNORECASE):
                assert NEEDED.search(ast.unparse(value).replace("'", '"')), ast.unparse(node)


@pytest.mark.parametrize("path", named(WITH_SECRETS))
def test_an_example_without_its_secrets_does_not_start(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, path],
        cwd=tmp_path,
        env=without_secrets(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "KeyError" in done.stderr
    assert any(name in done.stderr.splitlines()[-1] for name in NEEDED.findall(path.read_text()))


@pytest.mark.parametrize("path", named(WITH_SECRETS))
def test_an_example_shows_how_to_make_each_of_its_secrets(path: Path) -> None:
    text = path.read_text()
    made = {name: line for line, name in MADE.findall(text)}
    assert set(made) == set(NEEDED.findall(text))
    shown = "; ".join(f'{line}; echo "${name}"' for name, line in made.items())
    done = subprocess.run(
        ["bash", "-euc", shown],
        env={**without_secrets(), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    values = done.stdout.split()
    assert len(set(values)) == len(made)
    for value in values:
        refuse_weak("secret", value, "")
