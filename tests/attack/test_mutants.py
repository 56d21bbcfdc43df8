"""The campaign finds what it must find: faults 1 to 6, each made in a gate that is served."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .campaign import Attacker
from .generator import attacks
from .mutants import MUTANT
from .pairs import ROOT, served

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="gunicorn needs fork"),
    pytest.mark.usefixtures("untraced_processes"),
]


@pytest.mark.parametrize(
    ("mutant", "server", "application", "kind"),
    [
        ("preflights_run_handlers", "gunicorn", "django-wsgi", "preflight"),
        ("last_slashes_are_other_paths", "hypercorn", "litestar", "entry: slash"),
        ("last_slashes_are_other_paths", "gunicorn", "flask-loose", "entry: slash"),
        ("unnamed_methods_take_any_key", "uvicorn-h11", "django-asgi", "method"),
        ("absolute_forms_are_paths", "hypercorn", "quart", "entry: absolute form"),
        ("control_characters_are_plain", "uvicorn-h11", "starlette", "entry: control"),
        ("declared_costs_are_not_charged", "gunicorn", "flask-closed", "charge: as named"),
        ("no_check_at_dispatch", "uvicorn-h11", "starlette-ordered", "entry: as named"),
    ],
)
def test_the_campaign_finds_a_fault_that_was_once_there_G1(
    mutant: str, server: str, application: str, kind: str
) -> None:
    with served(server, application, mutant) as target:
        attacker = Attacker(target)
        for attack in attacks(target.application.handlers, seed=7, count=1500):
            if not attack.request.alone and kind not in attacker.report.kinds:
                attacker.attack(attack)
        attacker.close()
    assert kind in attacker.report.kinds


@pytest.mark.parametrize(
    "mutant",
    [
        "dead_patterns_are_rules",
        "decorators_above_routes_do_nothing",
        "declared_costs_of_methods_are_not_charged",
        "made_up_scopes_are_scopes",
        "costs_above_limits_are_silent",
    ],
)
def test_a_fault_of_dead_rules_fails_their_tests_D31(mutant: str) -> None:
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.attack.mutants"),
            *("-p", "no:cacheprovider", "tests/attack/test_dead_rules.py"),
        ],
        cwd=ROOT,
        env={**os.environ, MUTANT: mutant},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stdout
    assert "FAILED tests/attack/test_dead_rules.py" in run.stdout
