"""``lockgate simulate``: generated and recorded traffic, its output and its errors."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as Tree

import pytest

from lockgate.cli.simulate import made_up, rate_of, read_trace, span_of
from lockgate.core.timestamps import DAY, HOUR, MINUTE, SECOND
from lockgate.testing import Arrival

from .calling import Shell


def test_simulate_prints_admissions_and_draws_a_picture(shell: Shell, tmp_path: Path) -> None:
    picture = tmp_path / "calls.svg"
    command = "simulate --rate 20/minute --for 10m --pattern steady --svg"
    said = shell(command, str(picture)).out
    assert "free: 100 of 200 calls admitted (50.0 %)" in said
    assert "any minute: at most 10 of 10" in said
    assert "minute used |" in said
    assert Tree.fromstring(picture.read_text()).tag.endswith("svg")
    assert shell("simulate --seed 7").out.startswith("random traffic of --seed 7\n")


CREDITS = "--limit 'credits=100/calendar day' --limit burst=50/minute --rate 20/minute --for 1d"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            "--plan enterprise --rpm 3 --for 1m --exact",
            "any day: at most 3 no limit",
        ),
        ("--rate 10/minute --for 1m --pattern steady --cost 3", "free: 3 of 10 calls admitted"),
        (f"{CREDITS} --seed 1", "any credits calendar day: at most 100 of 100, 28,511 refused"),
        (f"{CREDITS} --seed 1 --soft", "any credits calendar day: at most 500 of 100\n"),
        # In Berlin the day ends at 23:00 of UTC, so two days are begun.
        (f"{CREDITS} --seed 1 --zone Europe/Berlin", "free: 200 of 28,728 calls admitted"),
    ],
)
def test_simulate_takes_other_limits_than_the_plans(shell: Shell, options: str, said: str) -> None:
    assert said in shell(f"simulate {options}").out


def test_calendar_quotas_may_start_on_the_day_of_a_contract(shell: Shell) -> None:
    """Generated traffic begins on 2024-10-04, so the period of 45 days has two months or three."""
    month = "simulate --limit credits=100/month --rpm 60 --rph 1000"
    traffic = "--rate 1/hour --for 45d --pattern steady"
    admitted = [
        shell.json(f"{month} {traffic} {starts}")["admitted"]
        for starts in ("", "--starts 2020-01-10")
    ]
    assert admitted == [200, 300]


def test_each_call_may_hold_units_until_it_ends(shell: Shell) -> None:
    """Two calls a second; each holds 100 of 1,000 units for 2 s, and then has used 10."""
    traffic = "simulate --plan enterprise --rate 2/second --for 1m --pattern steady"
    hold = f"{traffic} --hold tokens=1000/minute --units 100"
    said = shell(f"{hold} --used 10 --lasts 2s").out
    # Four calls run at a time until 600 units are used; from then on fewer do.
    assert "any tokens minute: at most 1,000 of 1,000, 32 refused" in said
    assert "enterprise: 88 of 120 calls admitted" in said
    told = shell.json(hold)  # All units are used.
    assert (told["admitted"], told["refused"]) == (10, 110)
    window = {"name": "tokens minute", "limit": 1000, "worst": 1000, "refused": 110}
    assert told["windows"][-1] == window


def test_a_trace_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "# when, cost\n1767225600\n1767225600.25,3\n\n2026-01-01T00:00:01Z\n2026-01-01\n"
    start = 1_767_225_600 * SECOND
    wanted = [
        Arrival(start),
        Arrival(start + SECOND // 4, 3),
        Arrival(start + SECOND),
        Arrival(start),
    ]
    (tmp_path / "trace").write_text(lines)
    assert list(read_trace(str(tmp_path / "trace"))) == wanted
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert list(read_trace("-")) == wanted


@pytest.mark.parametrize("pattern", ["steady", "random", "bursts"])
def test_traffic_has_the_requested_rate(pattern: str) -> None:
    calls = list(made_up(pattern, rate_of("60/minute"), span_of("2h"), seed=1))
    assert 6_800 <= len(calls) <= 7_400
    assert calls == sorted(calls)
    assert calls[-1].at - calls[0].at <= 2 * HOUR
    assert calls == list(made_up(pattern, rate_of("60/minute"), span_of("2h"), seed=1))


def test_rates_and_spans() -> None:
    assert rate_of("5/second") == (5, SECOND)
    assert [span_of(text) for text in ("90s", "3m", "3d")] == [90 * SECOND, 3 * MINUTE, 3 * DAY]


def test_wrong_arguments_of_simulate_are_an_error(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them prints a seed."""
    for arguments, said in (
        ("--soft --limit export=3/hour", "--zone and --soft are for calendar quotas"),
        ("--zone Europe/Berlin", "--zone and --soft are for calendar quotas"),
        ("--zone Nowhere --limit credits=9/month", "has the zone 'Nowhere'"),
        ("--starts 2024-01-15", "are for calendar quotas"),
        ("--used 3", "--units and --used are for --hold"),
        ("--cost 2 --trace -", "--cost is for made-up calls"),
        ("--hold t=9/hour --limit t=9/hour", "is charged and held of"),
        ("--plan golden", "There is no plan 'golden'"),
        ("--rpm -1", "use a whole number from 0"),
        ("--rate 15", "use a rate such as 90/minute"),
        ("--rate 0/minute", "use a rate such as 90/minute"),
        ("--for 1w", "use a time such as 90s"),
        ("--trace /nowhere/at/all", "No such file"),
        ("--svg /nowhere/at/all", "No such file"),
    ):
        out, err = shell(f"simulate {arguments}", code=2)
        assert (out, said in err) == ("", True), err
    for line in ("yesterday", "1767225600,many", "1767225600,0", "\xff", "9" * 40):
        trace = tmp_path / "trace"
        trace.write_bytes(b"1767225600\n" + line.encode("latin-1") + b"\n")
        err = shell("simulate --trace", str(trace), code=2).err
        assert "Line 2" in err or "A cost is at least 1" in err
    monkeypatch.setattr("lockgate.cli.simulate.CALLS_AT_MOST", 1_000)
    assert "more than 1,000 calls" in shell("simulate --for 999999d", code=2).err


def test_a_terminal_without_the_characters_of_the_plot() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lockgate", "simulate", "--for", "60s"],
        env={**os.environ, "PYTHONIOENCODING": "cp1252"},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"10 of 17 calls admitted" in done.stdout
    assert b"minute used |??" in done.stdout
