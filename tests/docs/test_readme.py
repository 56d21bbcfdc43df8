"""The links of the README work on a package index too, which shows it without the repository."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()
HOME = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
TARGETS = sorted(
    {*re.findall(r"\]\(([^)\s]+)\)", TEXT), *re.findall(r"(?:src|href)=\"([^\"]+)", TEXT)}
)
OF_THE_REPOSITORY = re.compile(rf"(?:{HOME}/(?:blob|tree|raw)/main/)([^#]+)(?:#(.+))?$")


@pytest.mark.parametrize("target", TARGETS)
def test_a_link_is_absolute_and_names_a_file_that_exists(target: str) -> None:
    assert target.startswith("https://")
    if target.startswith(HOME):
        link = OF_THE_REPOSITORY.match(target)
        assert link, f"{target} names no file"
        assert (ROOT / link[1]).exists()
        if link[2]:
            titles = re.findall(r"^#+ (.+)$", (ROOT / link[1]).read_text(), re.MULTILINE)
            assert link[2] in {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}


def test_the_addresses_of_the_project_name_files_that_exist() -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    for target in urls.values():
        link = OF_THE_REPOSITORY.match(target)
        assert target.startswith(HOME)
        assert link is None or (ROOT / link[1]).exists()
