"""The workflows pin what they run, ask for few permissions, and call sessions that exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SESSIONS = {*re.findall(r"^@nox\.session.*\ndef (\w+)", (ROOT / "noxfile.py").read_text(), re.M)}
PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[0-9.]+$")


def matrix_values(job: dict[str, Any]) -> list[str]:
    matrix: dict[str, list[str]] = job.get("strategy", {}).get("matrix", {})
    others = "python", "include"
    return [value for name, values in matrix.items() if name not in others for value in values]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_actions_are_pinned_by_commit_and_sessions_exist(file: Path) -> None:
    text = file.read_text()
    used = re.findall(r"uses: (.*)$", text, re.M)
    assert [action for action in used if not PINNED.match(action)] == []
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {}
    called = [word for words in re.findall(r"nox -s ([\w ]+)", text) for word in words.split()]
    for job in workflow["jobs"].values():
        assert "timeout-minutes" in job
        called += matrix_values(job)
    assert {*called} <= SESSIONS


def test_tests_fail_where_a_server_is_missing() -> None:
    for name in ("tests", "campaigns"):
        workflow = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())
        assert workflow["env"] == {"CI": "true"}


def test_only_the_last_job_of_a_release_may_sign_in_at_the_package_index() -> None:
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    allowed = {name: job["permissions"] for name, job in release["jobs"].items()}
    assert allowed == {
        "tests": {"contents": "read"},
        "build": {"contents": "read"},
        "publish": {"id-token": "write", "attestations": "write"},
    }
    assert release["jobs"]["publish"]["environment"]["name"] == "release"


def test_a_release_is_published_after_its_tests_with_every_server() -> None:
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    assert release["publish"]["needs"] == ["tests", "build"]
    assert release["tests"]["env"] == {"CI": "true"}
    assert release["tests"]["steps"][-1]["run"] == "nox -s lint types tests"


def test_each_workflow_installs_the_servers_that_tests_start() -> None:
    lines = [
        line for file in WORKFLOWS for line in re.findall("apt-get install.*", file.read_text())
    ]
    assert len(lines) == 4
    for line in lines:
        assert line.endswith(" mariadb-server pgbouncer redis-server")
