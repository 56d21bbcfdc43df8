"""R1 in SQL: whatever breaks or is killed on the way, account and key are there, or neither."""

from __future__ import annotations

import subprocess
import sys

import pytest
from sqlalchemy import select

from lockgate.stores.sql.tables import Tables

from .backends import BACKENDS, Backend

REGISTER = r"""
import sys
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from lockgate import Gate, Registration, run
from lockgate.errors import StoreUnavailable
from lockgate.sessions import SignedCookie
from lockgate.stores.sql import SqlStore

url, prefix = sys.argv[1:]
registration = Registration(
    session_secrets=["a secret of the tests"],
    dashboard_url="https://console.example.com",
    per_address=10**6,
    per_email=10**6,
)
sessions = SignedCookie(["a secret of the tests"])
store = SqlStore(url, prefix=prefix)
gate = Gate(store, brand="acme", sessions=sessions, features=[registration])


def register(index):
    while True:
        email = f"u{index % 2}@example.com"
        try:
            made = run(gate.accounts.register("bot", email, address=f"192.0.2.{index}"))
        except StoreUnavailable:  # Connecting took longer than a request may wait.
            sleep(0.05)
            continue
        print(f"{made.account.organization}\n", end="", flush=True)


with ThreadPoolExecutor(4) as pool:
    list(pool.map(register, range(4)))
"""


def halves(backend: Backend, tables: Tables) -> int:
    """How many accounts there are, after seeing that each has one key, and each key an account."""
    accounts, keys = tables.accounts.c.organization, tables.keys.c.organization
    with backend.admin.connect() as connection:
        if backend.kind == "postgresql":  # A killed process's last commit may come in between.
            connection.execution_options(isolation_level="REPEATABLE READ")
        owners = list(connection.scalars(select(accounts)))
        owned = list(connection.scalars(select(keys)))
        organizations = set(connection.scalars(select(tables.organizations.c.id)))
    assert sorted(map(bytes, owners)) == sorted(map(bytes, owned))
    assert {bytes(owner) for owner in owners} <= {bytes(id) for id in organizations}
    return len(owners)


def killed(backend: Backend, after: int) -> None:
    """Kill a process that registers with four threads, while it does."""
    tables = backend.take()
    url = backend.admin.url.render_as_string(hide_password=False)
    process = subprocess.Popen(
        [sys.executable, "-c", REGISTER, url, tables.prefix], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        told = [process.stdout.readline().strip() for _ in range(after)]
        process.kill()
    assert all(told)
    assert halves(backend, tables) >= after
    backend.give(tables)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_r1_a_killed_process_leaves_no_partial_registration(kind: str) -> None:
    killed(BACKENDS[kind], 12)


@pytest.mark.campaign
@pytest.mark.parametrize("turn", range(20))
def test_r1_many_killed_processes_leave_no_partial_registration(
    backend: Backend, turn: int
) -> None:
    killed(backend, 3 + 7 * turn)
