"""Engines of the host's own that commit or read otherwise than ours, and options in URLs."""

from __future__ import annotations

import pytest

from lockgate import ConfigurationError, run
from lockgate.stores.sql import SqlStore


def test_an_option_that_pymysql_does_not_know_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError, match="option that its driver does not know"):
        SqlStore("mysql://user:secret@localhost/keys?conect_timeout=1")


def test_an_option_that_psycopg_does_not_know_is_told_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = SqlStore("postgresql://user:secret@localhost/keys?conect_timeout=1")
    with pytest.raises(Exception, match="conect_timeout"):
        run(store.list("org_1"))
    assert "option that the driver does not know" in caplog.text
    assert "secret" not in caplog.text
    run(store.close())
