"""The campaign finds faults 1 to 6, each injected into a served gate."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .campaign import Attacker
from .generator import attacks
from .mutants import MUTANT
from .pairs import ROOT, served
from .test_attack import PATIENCE

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="gunicorn needs fork"),
    pytest.mark.usefixtures("untraced_processes"),
]


@pytest.mark.parametrize(
    ("mutant", "server", "application", "kind"),
    [
        ("preflights_run_handlers", "gunicorn", "django-wsgi", "preflight"),
        ("no_check_at_dispatch", "uvicorn-h11", "starlette-ordered", "entry: as named"),
        *(
            pytest.param(*fault, marks=pytest.mark.matrix)
            for fault in (
                ("last_slashes_are_other_paths", "hypercorn", "litestar", "entry: slash"),
                ("last_slashes_are_other_paths", "gunicorn", "flask-loose", "entry: slash"),
                ("unnamed_methods_take_any_key", "uvicorn-h11", "django-asgi", "method"),
                ("absolute_forms_are_paths", "hypercorn", "quart", "entry: absolute form"),
                ("control_characters_are_plain", "uvicorn-h11", "starlette", "entry: control"),
                ("declared_costs_are_not_charged", "gunicorn", "flask-closed", "charge: as named"),
            )
        ),
    ],
)
def test_the_campaign_finds_a_fault_that_was_once_there_G1(
    mutant: str, server: str, application: str, kind: str
) -> None:
    with served(server, application, mutant) as target:
        attacker = Attacker(target, PATIENCE)
        for attack in attacks(target.application.handlers, seed=7, count=1500):
            if not attack.request.alone and kind not in attacker.report.kinds:
                attacker.attack(attack)
        attacker.finish()
    assert kind in attacker.report.kinds


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("mutant", "tests"),
    [
        ("dead_patterns_are_rules", "test_dead_rules.py"),
        ("decorators_above_routes_do_nothing", "test_dead_rules.py"),
        ("declared_costs_of_methods_are_not_charged", "test_dead_rules.py"),
        ("made_up_scopes_are_scopes", "test_dead_rules.py"),
        ("costs_above_limits_are_silent", "test_dead_rules.py"),
        ("last_slashes_are_other_paths", "test_random_routes.py"),
    ],
)
def test_a_fault_that_was_once_there_fails_the_tests_about_it_G1(mutant: str, tests: str) -> None:
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.attack.mutants"),
            *("-p", "no:cacheprovider", f"tests/attack/{tests}"),
        ],
        cwd=ROOT,
        env={**os.environ, MUTANT: mutant},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stdout
    assert f"FAILED tests/attack/{tests}" in run.stdout
