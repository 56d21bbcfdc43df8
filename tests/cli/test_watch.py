"""``lockgate watch``: rates and full windows of all processes, on shared stores."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

import pytest

from lockgate import Gate, run
from lockgate.cli import main
from lockgate.core.quota_leases import LeaseRequest
from lockgate.errors import RateLimitExceeded
from lockgate.options import StoreOptions
from tests.patience import SECONDS

from .calling import Said, done

PEPPER = "a-pepper-of-these-tests-8f2c41d0"


LIMITED = """
from lockgate import Gate, Limit, Plan, PlanBook
from lockgate.options import HoldOptions, StoreOptions

EXPORT, TOKENS = Limit("export", "3/hour"), Limit("tokens", "100/minute")
plan = Plan("busy", rpm=900, rph=None, rpd=None, concurrent=None)
gate = Gate({store!r}, brand="acme", plans=PlanBook([plan], default="busy"),
            hold_options=HoldOptions(limits=[TOKENS]),
            store_options=StoreOptions(deadline=30))
gate.know_limits([EXPORT])
"""


def gate() -> Gate:
    """The gate of another process, on the store of the environment."""
    url = os.environ["LOCKGATE_STORE"]
    return Gate(
        url, brand="acme", peppers=[PEPPER.encode()], store_options=StoreOptions(deadline=30)
    )


@pytest.mark.usefixtures("settings")
def test_a_line_of_json_for_each_tick_has_the_documented_shape(capsys: Said) -> None:
    busy = done(capsys, "keys", "create", "org_busy", "ci")
    full = done(capsys, "keys", "create", "org_full", "ci")
    done(capsys, "orgs", "place", "org_busy", "enterprise", *UNLIMITED)
    serving, ended = gate(), Event()
    run(serving.authenticate(busy["api_key"]))
    for _ in range(10):
        run(serving.authenticate(full["api_key"]))

    def serve() -> None:
        while not ended.is_set():
            run(serving.authenticate(busy["api_key"]))
            sleep(0.01)

    thread = Thread(target=serve)
    thread.start()
    # Uses are written once a second, or later under load.
    lines: list[Any] = []
    until = monotonic() + SECONDS
    try:
        while not any(line["admitted_per_second"] for line in lines) and monotonic() < until:
            assert main(["watch", "--json", "--every", "0.5", "--count", "3"]) == 0
            lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            assert len(lines) == 3
    finally:
        ended.set()
        thread.join()
        run(serving.close())
    for line in lines:
        assert set(line) == {
            *("at", "seconds", "admitted_per_second", "refused_per_second", "organizations")
        }
        assert line["seconds"] >= 0.5
    last = next(line for line in lines if line["admitted_per_second"])
    first, second = last["organizations"]
    assert (first["organization_id"], first["plan"], first["full"]) == (
        "org_busy",
        "enterprise",
        None,
    )
    assert first["usage"]["minute"]["used"] > 0
    (key,) = first["keys"]
    assert (key["id"], key["prefix"], key["name"]) == (busy["id"], busy["prefix"], "ci")
    assert key["admitted_per_second"] == first["admitted_per_second"] > 0
    assert (second["organization_id"], second["keys"]) == ("org_full", [])
    assert second["full"]["window"] == "minute"
    assert second["full"]["until"] > last["at"]


@pytest.mark.usefixtures("settings")
def test_refusals_a_second_are_told_of_organizations_and_their_keys(capsys: Said) -> None:
    quiet = done(capsys, "keys", "create", "org_1", "quiet")
    full = done(capsys, "keys", "create", "org_1", "batch")
    url = os.environ["LOCKGATE_STORE"]
    peppers = [PEPPER.encode()]
    serving = Gate(
        url,
        brand="acme",
        peppers=peppers,
        store_options=StoreOptions(deadline=30),
        usage_history=True,
    )
    run(serving.authenticate(quiet["api_key"]))
    for _ in range(9):
        run(serving.authenticate(full["api_key"]))
    ended = Event()

    def serve() -> None:
        while not ended.is_set():
            with suppress(RateLimitExceeded):
                run(serving.authenticate(full["api_key"]))
            sleep(0.05)

    run(serving.flush())
    thread = Thread(target=serve)
    thread.start()
    try:
        # Histories are written once a second, or later under load.
        lines: list[Any] = []
        until = monotonic() + SECONDS
        while not any(line["refused_per_second"] for line in lines) and monotonic() < until:
            assert main(["watch", "--json", "--every", "1.5", "--count", "1"]) == 0
            lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    finally:
        ended.set()
        thread.join()
        run(serving.close())
    (refused, *_) = [line for line in lines if line["refused_per_second"]]
    (one,) = refused["organizations"]
    assert one["refused_per_second"] == refused["refused_per_second"] > 0
    (key,) = [key for key in one["keys"] if key["refused_per_second"]]
    assert set(key) == {"id", "prefix", "name", "admitted_per_second", "refused_per_second"}
    assert key["id"] == full["id"]


UNLIMITED = "--rpm=1000000", "--rph=1000000", "--rpd=1000000", "--concurrent=1"


@pytest.mark.usefixtures("sqlite")
def test_a_table_shows_organizations_keys_and_full_windows(capsys: Said) -> None:
    made = done(capsys, "keys", "create", "org_1", "ci")
    serving = gate()
    for _ in range(10):
        run(serving.authenticate(made["api_key"]))
    with pytest.raises(RateLimitExceeded):
        run(serving.authenticate(made["api_key"]))
    run(serving.close())
    assert main(["watch", "--every", "0.1", "--count", "1"]) == 0
    out = capsys.readouterr().out
    assert "admissions a second" in out
    row = out.splitlines()[-1]
    assert "10 of 10" in row and "minute" in row and row.split()[-1] == "org_1"


@pytest.mark.usefixtures("sqlite")
def test_named_limits_holds_and_leases_are_shown(
    capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = f"service_{token_hex(4)}"
    (tmp_path / f"{module}.py").write_text(LIMITED.format(store=os.environ["LOCKGATE_STORE"]))
    service: Any = importlib.import_module(module)
    serving: Gate = service.gate
    for organization in ("org_1", "org_2"):
        text = run(serving.keys.create(organization, "ci")).text
        run(serving.authenticate(text))
    key = run(serving.keys.create("org_1", "ci")).text
    run(serving.authenticate(key, limits=[service.EXPORT]))
    run(serving.holds.take("org_1", {service.TOKENS: 60}))
    lease = LeaseRequest("0" * 16, 12, 60_000_000)
    run(serving.store.admit_leased(serving.format.parse(key), 1, serving.plans, lease))
    monkeypatch.setenv("LOCKGATE_GATE", f"{module}:gate")
    named = [
        {"name": "export", "type": "hour", "used": 1, "limit": 3, "held": 0},
        {"name": "tokens", "type": "minute", "used": 60, "limit": 100, "held": 60},
    ]
    (line,) = watched(capsys)
    first, second = sorted(line["organizations"], key=lambda one: one["organization_id"])
    assert (first["named"], first["leased"]["units"]) == (named, 12)
    assert [one["used"] for one in second["named"]] == [0, 0]
    assert second["leased"] is None
    shown = done(capsys, "orgs", "show", "org_1")
    assert (shown["named"], shown["leased"]) == (named, first["leased"])
    assert main(["orgs", "show", "org_1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    fields = dict(re.split(r" {2,}", line, maxsplit=1) for line in lines)
    assert (fields["export hour"], fields["tokens minute"]) == ("1 of 3", "60 of 100, 60 held")
    assert fields["leased"].startswith("12 of the units left, until ")
    assert main(["watch", "--every", "0.1", "--count", "1"]) == 0
    out = capsys.readouterr().out
    assert "export hour 1 of 3; tokens minute 60 of 100, 60 held  12" in out
    run(serving.close())


def watched(capsys: Said) -> list[Any]:
    """The JSON of one tick."""
    capsys.readouterr()
    assert main(["watch", "--json", "--every", "0.1", "--count", "1"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.usefixtures("sqlite")
def test_an_empty_store_is_watched_too(capsys: Said) -> None:
    assert main(["watch", "--every", "0.1", "--count", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["organizations"] == []


@pytest.mark.usefixtures("settings")
def test_ctrl_c_ends_it_with_exit_code_0_and_without_a_message() -> None:
    assert main(["orgs", "list"]) == 0  # Makes the tables of SQLite, which is reported.
    command = [sys.executable, "-m", "lockgate", "watch", "--json", "--every", "0.1"]
    # A shell starts a process in the background with SIGINT ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out = err = subprocess.PIPE
    with subprocess.Popen(command, stdout=out, stderr=err, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["organizations"] == []
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=SECONDS)
    assert (process.returncode, said.strip()) == (0, "")


@pytest.mark.usefixtures("sqlite")
def test_watch_exits_with_0_when_its_reader_closes_the_pipe() -> None:
    assert main(["orgs", "list"]) == 0
    command = f"{sys.executable} -m lockgate watch --json --every 0.1 | head -n 1"
    shell = ["bash", "-c", f"set -o pipefail; {command}"]
    ended = subprocess.run(shell, capture_output=True, text=True, timeout=4 * SECONDS, check=False)
    assert (ended.returncode, ended.stderr.strip()) == (0, "")
    assert json.loads(ended.stdout)["organizations"] == []


def test_a_store_that_does_not_answer_is_exit_code_3(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKGATE_STORE", "redis://127.0.0.1:1")
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.delenv("LOCKGATE_GATE", raising=False)
    assert main(["watch"]) == 3
    assert "lockgate watch: " in capsys.readouterr().err
