"""The demo's plain output is ready to paste."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from werkzeug.test import Client as WsgiClient

from lockgate import run
from lockgate.demo.command import demo as demo_command
from lockgate.demo.command import other_names
from lockgate.demo.servers import Loaded
from lockgate.errors import ConfigurationError


class Running:
    """A demo started from the command line, and its output."""

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
        self.text = ""

    def read(self) -> None:
        """Wait for the text that the demo prints once it listens."""
        assert self.process.stdout is not None
        lines: list[str] = []
        while not (lines and "rate-limits" in lines[-1]):
            line = self.process.stdout.readline()
            assert line, "the demo ended"
            lines.append(line)
        self.text = "".join(lines)

    @property
    def commands(self) -> list[str]:
        """The curl commands, with continuation lines joined."""
        joined = self.text.replace("\\\n", "\\\n ")
        return [
            match[0].strip()
            for match in re.finditer(r"^ +curl (?:.*\\\n)*.*$", joined, re.MULTILINE)
        ]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("demo"))
    with running.process as process:
        try:
            running.read()
            yield running
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        except BaseException:
            process.kill()
            raise
    assert (process.returncode, out) == (0, "")
    assert "development" in err
    assert len(err.splitlines()) == 1, err


def pasted(command: str) -> tuple[str, str]:
    """Return the status line and body that a shell command prints."""
    done = subprocess.run(
        ["bash", "-c", command.replace("curl ", "curl --silent --max-time 50 --noproxy '*' ", 1)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    head, _, body = done.stdout.replace("\r\n", "\n").partition("\n\n")
    return head.partition("\n")[0], body


def test_the_printed_commands_work_when_pasted(demo: Running) -> None:
    models, create, listing, revoke, register, claim, export, complete, tool, status = demo.commands
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
    assert {pasted(export)[0] for _ in range(10)} == {"HTTP/1.1 201 Created"}
    line, body = pasted(export)
    assert line == "HTTP/1.1 429 Too Many Requests"
    assert '"limits":{"type":"minute","limit":10,"used":10,"name":"exports"}' in body
    line, body = pasted(complete)
    assert line == "HTTP/1.1 200 OK"
    assert '"text":"SAY HELLO TO THE WORLD","usage":{"tokens":5}' in body
    line, body = pasted(complete)
    assert line == "HTTP/1.1 429 Too Many Requests"
    assert '"limits":{"type":"minute","limit":1000,"used":5,"name":"tokens","held":0}' in body
    line, body = pasted(
        f"{complete} -H 'Content-Type: application/json' -d '{{\"max_tokens\": 2}}'"
    )
    assert line == "HTTP/1.1 200 OK"
    assert '"text":"SAY HELLO","usage":{"tokens":2}' in body
    line, body = pasted(tool)
    assert line == "HTTP/1.1 200 OK"
    assert '"text":"acme-image-1"' in body


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


def test_only_a_demo_on_this_machine_has_other_names() -> None:
    for host, names in (
        *((host, 3) for host in ("0.0.0.0", "[::]", "[::1]", "localhost")),
        *((host, 0) for host in ("192.0.2.1", "demo.example")),
    ):
        assert len(other_names(f"http://{host}:80")) == names


OWN = {
    "LOCKGATE_PEPPER": "a pepper of these tests alone",
    "LOCKGATE_SESSION_SECRET": "a session secret of these tests alone",
}
EVERY_ADDRESS = ["0.0.0.0", "0", "::", "0:0:0:0:0:0:0:0", "::ffff:0.0.0.0"]
LOOPBACK = ["127.0.0.1", "127.8.9.10", "127.1", "localhost", "LocalHost", "::1", "::ffff:127.0.0.1"]


def load(host: str, framework: str = "starlette") -> Loaded:
    """Load the demo for an address, with a server that does no more."""
    loaded: list[Loaded] = []

    def serve(load: Callable[[], Loaded], listener: socket.socket) -> None:
        loaded.append(load())

    demo_command(host, 0, "memory://", framework, 1.0, as_json=True, serve=serve)
    return loaded[0]


def serve(load: Callable[[], Loaded], _: socket.socket) -> None:
    """Announce the demo and end it."""
    loaded = load()
    run(loaded.announce())
    run(loaded.close())


Start = Callable[[str], bool]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Start:
    """Start the demo on an address."""
    for variable in OWN:
        monkeypatch.delenv(variable, raising=False)
    return lambda host: bool(load(host))


def test_other_machines_are_served_with_secrets_of_ones_own_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This machine is served with the development secrets, too."""
    for host in LOOPBACK:
        assert start(host)
    for host in EVERY_ADDRESS:
        for given in ([], ["LOCKGATE_PEPPER"], ["LOCKGATE_SESSION_SECRET"]):
            for variable, value in OWN.items():
                monkeypatch.setenv(variable, value if variable in given else "")
            with pytest.raises(ConfigurationError, match=r"token_urlsafe.*127\.0\.0\.1") as caught:
                start(host)
            for variable in OWN:
                assert (variable in str(caught.value)) is (variable not in given)
        for variable, value in OWN.items():
            monkeypatch.setenv(variable, value)
        assert start(host)


def posts(app: Any, framework: str, **fields: str) -> tuple[int, str, str]:
    """Send the form to sign in; return the status, the cookie and the page."""
    if framework == "flask":
        answer = WsgiClient(app).post("/sign-in", data=fields)
        return answer.status_code, answer.headers.get("set-cookie", ""), answer.text
    client = TestClient(app, follow_redirects=False)
    said = client.post("/sign-in", data=fields)
    return said.status_code, said.headers.get("set-cookie", ""), said.text


@pytest.mark.parametrize("framework", ["starlette", "fastapi", "flask"])
def test_one_click_signs_nobody_in_where_other_machines_reach_the_demo(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, framework: str
) -> None:
    for variable, value in OWN.items():
        monkeypatch.setenv(variable, value)
    for host, status in (("127.0.0.1", 303), ("0.0.0.0", 403)):
        loaded = load(host, framework)
        run(loaded.announce())
        said = json.loads(capfd.readouterr().out)
        for name in ("free", "busy"):
            got, cookie, page = posts(loaded.app, framework, organization=name)
            assert (got, bool(cookie)) == (status, status == 303)
            assert ("start it on 127.0.0.1" in page) is (status == 403)
            assert 'value="free"' not in page
        printed = said["organizations"]["free"]["session_cookie"]
        got, cookie, _ = posts(loaded.app, framework, session=printed)
        assert got == 303
        assert printed in cookie
        run(loaded.close())


@pytest.mark.parametrize("address", ["192.0.2.7", "10.0.0.1", "169.254.1.1"])
def test_a_name_is_judged_by_the_address_that_it_is_bound_to(
    start: Start, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    class Bound(socket.socket):
        def getsockname(self) -> tuple[str, int]:
            return address, 8000

    monkeypatch.setattr(socket, "socket", Bound)
    with pytest.raises(ConfigurationError, match="localhost"):
        start("localhost")


def test_the_development_secrets_in_use_are_named(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCKGATE_SESSION_SECRET", raising=False)
    monkeypatch.setenv("LOCKGATE_PEPPER", OWN["LOCKGATE_PEPPER"])
    demo_command("127.0.0.1", 0, "memory://", "starlette", 1.0, as_json=True, serve=serve)
    said = capfd.readouterr().err
    assert "LOCKGATE_SESSION_SECRET" in said
    assert "LOCKGATE_PEPPER" not in said
    monkeypatch.setenv("LOCKGATE_SESSION_SECRET", OWN["LOCKGATE_SESSION_SECRET"])
    demo_command("127.0.0.1", 0, "memory://", "starlette", 1.0, as_json=True, serve=serve)
    assert capfd.readouterr().err == ""


def test_a_demo_starts_on_a_store_that_is_slower_than_the_deadline_of_its_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a busy machine: its own first calls are no requests that a client waits for."""
    url = f"sqlite:///{tmp_path}/keys.db?mode=rwc"
    demo_command("127.0.0.1", 0, url, "flask", 1e-6, as_json=True, serve=serve)
    assert len(json.loads(capsys.readouterr().out)["organizations"]) == 4
