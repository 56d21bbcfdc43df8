"""The measured tables of the pages have the columns and the rows that their benchmarks write.

No benchmark is run: the figures are those of the run that the line above a table names.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.pages import DOCS, MODULES, Part, Run, Table
from docs.marked import parts

PARTS: dict[str, tuple[str, Part]] = {
    part.name: (module, part)
    for module in MODULES
    for part in importlib.import_module(module).PARTS
}
REFERENCE = DOCS / "reference"
REWRITE = "run `python -m {}` with `--markdown`"
FORM = Table(("store", "time"), ("one", "two"))


def tables(text: str) -> list[Table]:
    """Return the columns and rows of the tables in a text."""
    found: list[Table] = []
    for block in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        head, _, *body = ([cell.strip() for cell in row[1:-1].split("|")] for row in lines(block))
        assert all(len(row) == len(head) and any(row[1:]) for row in body)
        found.append(Table(tuple(head), tuple(row[0] for row in body)))
    return found


def lines(block: str) -> list[str]:
    return block.strip().splitlines()


@pytest.mark.parametrize("name", PARTS)
def test_a_part_has_the_tables_of_its_benchmark_and_tells_of_its_run(name: str) -> None:
    """The date, the command, the machine and the versions."""
    module, part = PARTS[name]
    text = parts((DOCS / part.page).read_text())[name]
    assert tables(text) == list(part.tables), REWRITE.format(module)
    command = module.removesuffix(".campaign")
    told = (
        rf"Measured on \d+ \w+ \d{{4}} by `python -m {command} [^`]*--markdown[^`]*`: .*\d cores,"
    )
    assert re.match(told + r".* load [\d.]+ before and [\d.]+ after; lockgate \d", text)


def test_every_marked_part_of_the_pages_is_written_by_one_benchmark() -> None:
    marked = Counter(
        (name, str(page.relative_to(DOCS)))
        for page in DOCS.rglob("*.md")
        if REFERENCE not in page.parents
        for name in re.findall(r"<!-- table: (.*?) -->", page.read_text())
    )
    assert marked == Counter((name, part.page) for name, (_, part) in PARTS.items())


def test_writing_a_part_changes_nothing_else_and_a_second_time_nothing(tmp_path: Path) -> None:
    part = Part("mine", "page.md", (FORM,))
    page = tmp_path / "page.md"
    before = "# Page\n\n<!-- table: other -->\n\nkept\n\n<!-- end -->\n\n<!-- table: mine -->\n\n"
    after = "\n<!-- end -->\n\nThe rest | is kept.\n"
    page.write_text(f"{before}an old table\n{after}")
    part.write("A line.", {"two": ["2 us"], "one": ["1 us"]}, docs=tmp_path)
    table = "| store | time |\n| --- | --- |\n| one | 1 us |\n| two | 2 us |\n"
    assert page.read_text() == f"{before}A line.\n\n{table}{after}"
    assert tables(parts(page.read_text())["mine"]) == [FORM]
    part.write("A line.", {"one": ["1 us"], "two": ["2 us"]}, docs=tmp_path)
    assert page.read_text() == f"{before}A line.\n\n{table}{after}"


def test_an_incomplete_run_or_a_page_without_the_part_writes_nothing(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text := "<!-- table: mine -->\n\nold\n\n<!-- end -->\n")
    for cells in ({"one": ["1"]}, {"one": ["1"], "two": list[str]()}):
        with pytest.raises(ValueError, match=r"rows that differ|not 2 cells"):
            Part("mine", "page.md", (FORM,)).write("A line.", cells, docs=tmp_path)
    with pytest.raises(LookupError, match="not one part 'other'"):
        Part("other", "page.md", ()).write("A line.", docs=tmp_path)
    assert page.read_text() == text


def test_the_line_of_a_run_has_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/a/path/redis.py", "--markdown", "--rounds", "3"])
    line = Run("benchmarks.redis", "redis").line("Redis 7.0")
    assert "`python -m benchmarks.redis --markdown --rounds 3`" in line
    assert line.endswith(", Redis 7.0.")
    assert "/a/path" not in line
