"""Settings in lockgate.toml or pyproject.toml, beside the environment and options."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockgate.cli.output import progress

from .calling import Said, Service, Shell


@pytest.fixture
def shell(bare: None, capsys: Said, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell without settings in its environment."""
    return Shell(capsys, monkeypatch)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def text_of_a_new_key(shell: Shell) -> str:
    made: str = shell.json("keys create org_1 ci")["api_key"]
    return made


def test_a_file_names_store_and_brand_and_the_environment_replaces_them(
    shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = "store = 'sqlite:///one.db'\nbrand = 'tiny'\nenvironment = 'test'\n"
    (folder / "lockgate.toml").write_text(settings, "utf-8-sig")  # As Notepad writes it.
    shell("db upgrade")
    assert (folder / "one.db").exists()
    assert text_of_a_new_key(shell).startswith("tiny_test_")
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    assert text_of_a_new_key(shell).startswith("acme_test_")
    monkeypatch.setenv("LOCKGATE_ENVIRONMENT", "live")
    assert text_of_a_new_key(shell).startswith("acme_live_")
    monkeypatch.setenv("LOCKGATE_STORE", "sqlite:///two.db?mode=rwc")
    assert not shell.json("keys list org_1")["keys"]
    three = ["--store", "sqlite:///three.db?mode=rwc"]
    shell.json("keys create org_1 ci", *three)
    assert len(shell.json("keys list org_1", *three)["keys"]) == 1
    assert not shell.json("keys list org_1")["keys"]


def test_a_file_names_the_gate_and_an_option_or_variable_replaces_it(
    shell: Shell, service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "from lockgate import Gate\ngate = Gate('memory://', brand='BRAND')\n"
    names = [service.write(text.replace("BRAND", brand)) for brand in ("one", "two")]
    (folder / "pyproject.toml").write_text(f"[tool.lockgate]\ngate = '{names[0]}:gate'\n")
    assert text_of_a_new_key(shell).startswith("one_")
    monkeypatch.setenv("LOCKGATE_GATE", f"{names[1]}:gate")
    assert text_of_a_new_key(shell).startswith("two_")
    monkeypatch.delenv("LOCKGATE_GATE")
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_STORE", "memory://")
    assert text_of_a_new_key(shell).startswith("acme_")
    monkeypatch.delenv("LOCKGATE_BRAND")
    (folder / "lockgate.toml").write_text("brand = 'four'\n")
    assert text_of_a_new_key(shell).startswith("four_")


def test_a_file_with_a_mistake_or_a_secret_is_refused_without_repeating_it(
    shell: Shell, folder: Path
) -> None:
    for file, text, said in (
        ("lockgate.toml", "pepper = 'hunter2'", "LOCKGATE_PEPPER"),
        ("lockgate.toml", "next_pepper = 'hunter2'", "LOCKGATE_NEXT_PEPPER"),
        ("lockgate.toml", "store = 'postgresql://ada:hunter2@db/keys'", "LOCKGATE_STORE"),
        ("lockgate.toml", "brnd = 'hunter2'", "'brnd': use gate, store, brand"),
        ("lockgate.toml", "brand = 3", "brand in lockgate.toml is no text"),
        ("lockgate.toml", "brand = hunter2", "lockgate.toml is not TOML"),
        ("pyproject.toml", "tool = 3", "is no table"),
        ("pyproject.toml", "[tool]\nlockgate = 3", "is no table"),
        ("pyproject.toml", "[tool.lockgate]\npepper = 'hunter2'", "LOCKGATE_PEPPER"),
    ):
        (folder / file).write_text(text)
        for command in ("keys list org_1", "db current"):
            out, err = shell(command, code=2)
            assert (out, said in err) == ("", True), err
            assert "hunter2" not in err
        (folder / file).unlink()
    (folder / "pyproject.toml").write_text("[project]\nname = 'service'\n")
    assert "lockgate.toml" in shell("keys list org_1", code=2).err, "no settings are no mistake"


def test_progress_shows_on_a_terminal_alone(capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    with progress("Reading") as show:
        show("half")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress("Reading") as show:
        show("half")
    out, err = capsys.readouterr()
    assert (out, "Reading" in err) == ("", True)
