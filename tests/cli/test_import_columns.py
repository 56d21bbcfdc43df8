"""``lockgate keys import``: columns and tables that the source does not have."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from secrets import token_hex

import pytest
from sqlalchemy import text

from lockgate import ImportedKeyFormat, legacy
from lockgate.cli import main
from lockgate.stores.sql.engines import blocking_engine
from tests.cli.importing import TOKENS, Desk, digest, line, micros, table, token
from tests.servers import shared

TABLE = "rest_framework_api_key_apikey"
OLD = ("prefix", "hashed_key", "team_id")
DRF = ("--from", "drf-api-key", "--organization", "fallback", "--scope", "jobs:*")


def drf_rows() -> list[dict[str, str | None]]:
    """Two keys of djangorestframework-api-key; the second is of no team."""
    names = ("AbCd1234", "EfGh5678")
    hashes = ["sha512$$" + f"{number}" * 128 for number in range(2)]
    teams = ("org_1", None)
    return [dict(zip(OLD, row, strict=True)) for row in zip(names, hashes, teams, strict=True)]


def source(kind: str, tmp_path: Path) -> str:
    """Write the rows to a file or a database; return its path or URL."""
    rows = drf_rows()
    if kind == "csv":
        path = tmp_path / "keys.csv"
        lines = [",".join(OLD), *(",".join(value or "" for value in row.values()) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
        return str(path)
    if kind == "jsonl":
        path = tmp_path / "keys.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)
    url = f"sqlite:///{tmp_path}/old.db"
    if kind != "sqlite":
        url = shared(kind).create(f"imports_{token_hex(4)}")
    engine = blocking_engine(url)
    with engine.begin() as connection:
        columns = ", ".join(f"{name} VARCHAR(200)" for name in OLD)
        connection.execute(text(f"CREATE TABLE {TABLE} ({columns})"))
        values = ", ".join(f":{name}" for name in OLD)
        connection.execute(text(f"INSERT INTO {TABLE} VALUES ({values})"), rows)
    engine.dispose()
    return url


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb", "csv", "jsonl"])
def test_a_column_that_the_source_does_not_have_is_an_error_before_any_import(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    desk.formats = [legacy.drf_api_key()]
    monkeypatch.setenv("LOCKGATE_SOURCE", source(kind, tmp_path))
    for more in ((), ("--dry-run",)):
        said = desk.run(*DRF, "--organization-column", "team_idd", *more, code=2)
        assert "no column 'team_idd'" in said and "prefix, hashed_key, team_id." in said
    assert desk.keys("fallback") == {}
    report = desk.run(*DRF, "--organization-column", "team_id")
    assert report["imported"] == 2
    assert list(desk.keys("org_1")) == ["AbCd1234"]
    assert list(desk.keys("fallback")) == ["EfGh5678"]


def test_a_missing_column_is_told_also_where_unreadable_rows_come_first(
    desk: Desk, tmp_path: Path
) -> None:
    desk.formats = [legacy.drf_api_key()]
    path = tmp_path / "keys.jsonl"
    for unreadable in (1, 300):
        path.write_text("{\n" * unreadable + json.dumps(drf_rows()[0]) + "\n")
        desk.run(str(path), *DRF, "--organization-column", "team_idd", code=2)
    assert desk.keys("fallback") == {}
    path.write_text("key\n")
    assert desk.run(str(path), "--organization-column", "team_id")["rows"] == 0, "it has no row"


def test_a_json_line_may_leave_out_a_column_that_another_line_has(
    desk: Desk, tmp_path: Path
) -> None:
    desk.formats = [legacy.drf_api_key()]
    with_team, without = drf_rows()
    del without["team_id"]
    path = tmp_path / "keys.jsonl"
    path.write_text(json.dumps(without) + "\n" + json.dumps(with_team) + "\n")
    report = desk.run(str(path), *DRF, "--organization-column", "team_id")
    assert report["imported"] == 2
    assert len(desk.keys("fallback")) == len(desk.keys("org_1")) == 1


def test_a_missing_file_of_sqlite_is_named_and_not_created(desk: Desk, tmp_path: Path) -> None:
    desk.formats = [legacy.drf_api_key()]
    file = tmp_path / "nodb.sqlite3"
    for more in ((), ("--dry-run",)):
        said = desk.run(f"sqlite:///{file}", *DRF, *more, code=2)
        assert f"no file {str(file)!r}" in said and "db check" not in said
    assert not file.exists()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
def test_a_missing_table_is_named(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    desk.formats = [legacy.unkey()]
    monkeypatch.setenv("LOCKGATE_SOURCE", source(kind, tmp_path))
    said = desk.run("--from", "unkey", "--dry-run", code=2)
    assert "no table 'keys'" in said and "--table" in said and "db check" not in said


def test_columns_that_are_not_mapped_are_ignored_with_a_note(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/old.db"
    with sqlite3.connect(tmp_path / "old.db") as database:
        database.execute("CREATE TABLE keys (id, organization, handle, digest, scopes, note)")
        rows = [(n, "org_1", f"{n:06}", digest(token(n)), "jobs:read", None) for n in range(3)]
        database.executemany("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?)", rows)
    report = desk.run(url, "--table", "keys")
    assert (report["imported"], report["skipped"]) == (3, 0)
    assert report["ignored_columns"] == ["id", "note"]
    assert main(["keys", "import", url, "--table", "keys", "--column", "name=note"]) == 0
    assert "Ignored columns: id. --column NAME=THEIRS reads one." in capsys.readouterr().out
    file = table(tmp_path, line(3))
    assert desk.run(file)["ignored_columns"] == []
    assert main(["keys", "import", file]) == 0
    assert "gnored" not in capsys.readouterr().out


def test_a_report_lists_the_first_100_ignored_columns_and_reads_those_of_late_rows(
    desk: Desk, tmp_path: Path
) -> None:
    rows = [
        {"organization": "org_1", "scopes": "*", "handle": f"{n:06}", "digest": digest(token(n))}
        for n in range(130)
    ]
    for n in range(101):
        rows[n][f"c{n}"] = "1"
    rows[-1]["ends"] = "2999-01-01"
    path = tmp_path / "keys.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    report = desk.run(str(path), "--column", "expires_at=ends")
    assert (report["imported"], report["skipped"]) == (130, 0)
    assert report["ignored_columns"] == [f"c{n}" for n in range(100)]


def test_a_key_in_the_place_of_a_column_is_not_shown(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "keys.csv"  # Without a header.
    path.write_text(f"{token(1)},{digest('a')}\n{token(2)},{digest('b')}\n")
    more = ("--organization", "org_1", "--scope", "jobs:*")
    told = json.dumps(desk.run(str(path), *more, code=1))
    told += desk.run(str(path), *more, "--organization-column", "team", code=2)
    assert "tok_0000..." in told
    assert token(1)[:16] not in told and digest("a")[:16] not in told


def test_columns_of_another_name_are_mapped(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "keys.csv"
    path.write_text(
        f"team,label,token_hash,Ends on\norg_1,farm,{digest(token(1))},2098-01-01\n"
        f",spare,{digest(token(2))},\n"
    )
    desk.formats = [
        ImportedKeyFormat(
            "hashed", r"tok_\d{6}_[a-z0-9]{32}", schemes=["sha256"], handle=lambda m: digest(m[0])
        )
    ]
    maps = ("name=label", "handle=token_hash", "digest=token_hash", "expires_at=Ends on")
    options = [word for text in maps for word in ("--column", text)]
    more = ("--scope", "jobs:*", "--organization", "fallback")
    report = desk.run(str(path), *options, "--column", "organization=team", *more)
    assert report["imported"] == 2
    assert desk.admit(token(1)).id == desk.keys("org_1")["farm"].id
    assert desk.keys("org_1")["farm"].expires_at == micros("2098-01-01T00:00:00Z")
    assert desk.keys("fallback")["spare"].expires_at is None
    report = desk.run(str(path), *options, "--organization-column", "team", *more)
    assert report["present"] == 2


def test_a_mapped_column_replaces_that_of_a_known_system(desk: Desk, tmp_path: Path) -> None:
    desk.formats = [legacy.drf_api_key()]
    path = source("jsonl", tmp_path)
    assert desk.run(path, *DRF, "--column", "name=team_id")["imported"] == 2
    assert set(desk.keys("fallback")) == {"org_1", "EfGh5678"}


def test_a_mapping_or_delimiter_that_cannot_be_meant_is_an_error_before_any_import(
    desk: Desk, tmp_path: Path
) -> None:
    desk.formats = [legacy.drf_api_key()]
    two = "--column organization=team_id --organization-column prefix"
    for options, message in (
        ("--column name", "write NAME=THEIRS"),
        ("--column =label", "write NAME=THEIRS"),
        ("--column nam=prefix", "use organization, name"),
        ("--column name=lable", "no column 'lable'"),
        (two, "Two columns"),
    ):
        assert message in desk.run(source("csv", tmp_path), *DRF, *options.split(), code=2)
    assert desk.keys("fallback") == {}
    desk.formats = [TOKENS]
    path = tmp_path / "keys.csv"
    for sign in (":", " ", "^"):
        path.write_text(f"organization{sign}handle{sign}digest\norg_1{sign}000001{sign}aa\n")
        assert "comma, a semicolon, a tab" in desk.run(str(path), code=2)
    rows = table(tmp_path, line(1))
    path.write_text(Path(rows).read_text().replace(",", "|"))
    assert desk.run(str(path))["imported"] == 1


def test_a_source_that_cannot_be_read_is_no_fault_of_the_store(desk: Desk, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "old.db") as database:
        database.execute("CREATE VIEW broken AS SELECT * FROM gone")
    said = desk.run(f"sqlite:///{tmp_path}/old.db", "--table", "broken", code=2)
    assert "'broken' cannot be read" in said
    assert "lockgate db" not in said and "the store" not in said
    (tmp_path / "text.db").write_text("no database at all, and long enough to be read as one")
    said = desk.run(f"sqlite:///{tmp_path}/text.db", "--table", "keys", code=2)
    assert "cannot be read" in said and "the store" not in said
    assert desk.run(str(tmp_path), code=2)
