"""The demo's plain output is ready to paste."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockgate.cli.demo import other_names


class Running:
    """A demo that was started as a person starts it, and what it printed."""

    def __init__(self, folder: Path) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LOCKGATE_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lockgate", "demo", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=folder,  # Its keys lie there: not those of an older version, from an earlier run.
        )
        assert self.process.stdout is not None
        lines: list[str] = []
        while not (lines and "rate-limits" in lines[-1]):
            line = self.process.stdout.readline()
            assert line, "the demo ended"
            lines.append(line)
        self.text = "".join(lines)

    @property
    def commands(self) -> list[str]:
        """The curl lines, those that go on in the next line put together."""
        joined = self.text.replace("\\\n", "\\\n ")
        return [
            match[0].strip()
            for match in re.finditer(r"^ +curl (?:.*\\\n)*.*$", joined, re.MULTILINE)
        ]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("demo"))
    yield running
    running.process.send_signal(signal.SIGINT)
    out, err = running.process.communicate(timeout=10)
    assert (running.process.returncode, out) == (0, "")
    assert "development" in err
    assert "Traceback" not in err


def pasted(command: str) -> tuple[str, str]:
    """Status line and body of what the shell makes of a command."""
    done = subprocess.run(
        ["bash", "-c", command.replace("curl ", "curl --silent --max-time 10 --noproxy '*' ", 1)],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    head, _, body = done.stdout.replace("\r\n", "\n").partition("\n\n")
    return head.partition("\n")[0], body


def test_the_commands_work_as_they_are_printed(demo: Running) -> None:
    models, create, listing, revoke, register, claim, status = demo.commands
    assert pasted(models)[0] == "HTTP/1.1 200 OK"
    line, body = pasted(create)
    assert line == "HTTP/1.1 201 Created"
    found = re.search(r'"id":"([0-9a-f-]{36})"', body)
    assert found is not None
    line, body = pasted(listing)
    assert line == "HTTP/1.1 200 OK"
    assert found[1] in body
    assert pasted(revoke)[0] == "HTTP/1.1 404 Not Found"
    line, body = pasted(revoke.replace("KEY_ID", found[1]))
    assert line == "HTTP/1.1 200 OK"
    assert '"success":true' in body
    line, body = pasted(register)
    assert line == "HTTP/1.1 201 Created"
    assert '"dashboard_token":"acme_dashboard_' in body
    line, body = pasted(claim)
    assert line == "HTTP/1.1 200 OK"
    assert '"agentName":"my bot","billingEmail":"owner@free.example"' in body
    line, body = pasted(status)
    assert line == "HTTP/1.1 200 OK"
    assert '"used":6,"limit":10' in body
    statuses = [pasted(models)[0] for _ in range(5)]
    assert statuses == ["HTTP/1.1 200 OK"] * 4 + ["HTTP/1.1 429 Too Many Requests"]


def test_every_plan_is_shown_with_a_key(demo: Running) -> None:
    for plan in ("free", "starter", "creator", "enterprise"):
        pattern = rf"^  {plan} +org_[0-9a-f]{{16}}  acme_live_[0-9A-Za-z]{{8}}_[0-9A-Za-z]{{43}}$"
        assert re.search(pattern, demo.text, re.MULTILINE)


def test_a_browser_on_this_machine_may_call_it_by_another_name(demo: Running) -> None:
    register = demo.commands[4].partition(" -d ")[0]
    nobody = """-d '{"dashboard_token": "none"}'"""
    sign_in = f"{register.replace('bot-register', 'bot-sign-in')} {nobody}"
    port = re.search(r"http://127\.0\.0\.1:(\d+)/", sign_in)
    assert port is not None
    for origin, status in (
        (f"http://localhost:{port[1]}", "401 Unauthorized"),
        (f"http://[::1]:{port[1]}", "401 Unauthorized"),
        (f"https://localhost:{port[1]}", "403 Forbidden"),
        ("http://localhost", "403 Forbidden"),
        (f"http://elsewhere.localhost:{port[1]}", "403 Forbidden"),
    ):
        line, _ = pasted(f"{sign_in} -H 'Origin: {origin}'")
        assert line == f"HTTP/1.1 {status}"


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("http://0.0.0.0:80", 3),
        ("http://[::]:80", 3),
        ("http://[::1]:80", 3),
        ("http://localhost:80", 3),
        ("http://192.0.2.1:80", 0),
        ("http://demo.example:80", 0),
    ],
)
def test_only_what_listens_here_has_these_names(url: str, names: int) -> None:
    assert len(other_names(url)) == names
