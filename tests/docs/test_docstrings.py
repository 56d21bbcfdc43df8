"""Docstrings are valid reStructuredText on the site, after the numbers of decisions are removed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from docs.docstrings import without_numbers

from .test_names import MODULES, PACKAGE, parsed

DOCUMENTED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings() -> Iterator[tuple[str, list[str]]]:
    """Return each docstring of a class or function as the site has it, with its place."""
    for module in MODULES:
        for node in ast.walk(parsed(module)):
            if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
                place = f"{module.relative_to(PACKAGE)}:{node.lineno}"
                yield place, without_numbers(text.split("\n"))


def broken_line(lines: list[str]) -> str | None:
    """Return the first line that is only the rest of a sentence, or that ends an indented block at
    an indentation of no block."""
    indents = [0]
    for line in lines:
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if text.startswith((".", ",", ";", ")")) and not text.startswith(".."):
            return line
        while text and indent < indents[-1]:
            indents.pop()
            if indent > indents[-1]:
                return line
        if text and indent > indents[-1]:
            indents.append(indent)
    return None


def test_numbers_at_the_start_of_a_line_are_removed_with_the_line_break() -> None:
    lines = ["Args:", "    a: one (D3), two", "        (D41, W1).", "    b: three (D13 to D15)"]
    assert without_numbers(lines) == ["Args:", "    a: one, two.", "    b: three"]


def test_no_docstring_has_a_broken_line() -> None:
    faults = {place: line for place, lines in docstrings() if (line := broken_line(lines))}
    assert faults == {}


def test_a_line_of_another_indentation_than_its_paragraph_is_broken() -> None:
    assert broken_line(["Args:", "    a: one", "        two", "      three"]) == "      three"
    assert broken_line(["Args:", "    a: one", "       ."]) == "       ."
    assert broken_line(["Args:", "    a: one", "        two", "", "    - b", "      c"]) is None
