"""Call the command as a script does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lockgate.cli import main

Said = pytest.CaptureFixture[str]


def done(capsys: Said, *arguments: str) -> Any:
    """The JSON that a command prints."""
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)
