"""Settings in lockgate.toml or pyproject.toml, beside the environment and options."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex

import pytest

from lockgate.cli import main
from lockgate.cli.output import progress

from .calling import Said, done


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, without settings in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("GATE", "STORE", "BRAND", "PEPPER", "NEXT_PEPPER", "ENVIRONMENT"):
        monkeypatch.delenv(f"LOCKGATE_{name}", raising=False)
    return tmp_path


def text_of_a_new_key(capsys: Said) -> str:
    made: str = done(capsys, "keys", "create", "org_1", "ci")["api_key"]
    return made


def test_a_file_names_store_and_brand_and_the_environment_replaces_them(
    capsys: Said, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = "store = 'sqlite:///one.db'\nbrand = 'tiny'\nenvironment = 'test'\n"
    (folder / "lockgate.toml").write_text(settings, "utf-8-sig")  # As Notepad writes it.
    assert main(["db", "upgrade"]) == 0
    assert (folder / "one.db").exists()
    assert text_of_a_new_key(capsys).startswith("tiny_test_")
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    assert text_of_a_new_key(capsys).startswith("acme_test_")
    monkeypatch.setenv("LOCKGATE_ENVIRONMENT", "live")
    assert text_of_a_new_key(capsys).startswith("acme_live_")
    monkeypatch.setenv("LOCKGATE_STORE", "sqlite:///two.db?mode=rwc")
    assert not done(capsys, "keys", "list", "org_1")["keys"]
    three = ["--store", "sqlite:///three.db?mode=rwc"]
    done(capsys, "keys", "create", "org_1", "ci", *three)
    assert len(done(capsys, "keys", "list", "org_1", *three)["keys"]) == 1
    assert not done(capsys, "keys", "list", "org_1")["keys"]


def test_a_file_names_the_gate_and_an_option_or_variable_replaces_it(
    capsys: Said, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"service_{token_hex(4)}" for _ in range(2)]
    for name, brand in zip(names, ("one", "two"), strict=True):
        text = f"from lockgate import Gate\ngate = Gate('memory://', brand='{brand}')\n"
        (folder / f"{name}.py").write_text(text)
    (folder / "pyproject.toml").write_text(f"[tool.lockgate]\ngate = '{names[0]}:gate'\n")
    assert text_of_a_new_key(capsys).startswith("one_")
    monkeypatch.setenv("LOCKGATE_GATE", f"{names[1]}:gate")
    assert text_of_a_new_key(capsys).startswith("two_")
    monkeypatch.delenv("LOCKGATE_GATE")
    monkeypatch.setenv("LOCKGATE_BRAND", "acme")
    monkeypatch.setenv("LOCKGATE_STORE", "memory://")
    assert text_of_a_new_key(capsys).startswith("acme_")
    monkeypatch.delenv("LOCKGATE_BRAND")
    (folder / "lockgate.toml").write_text("brand = 'four'\n")
    assert text_of_a_new_key(capsys).startswith("four_")


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("lockgate.toml", "pepper = 'hunter2'", "LOCKGATE_PEPPER"),
        ("lockgate.toml", "next_pepper = 'hunter2'", "LOCKGATE_NEXT_PEPPER"),
        ("lockgate.toml", "store = 'postgresql://ada:hunter2@db/keys'", "LOCKGATE_STORE"),
        ("lockgate.toml", "brnd = 'hunter2'", "'brnd': use gate, store, brand"),
        ("lockgate.toml", "brand = 3", "brand in lockgate.toml is no text"),
        ("lockgate.toml", "brand = hunter2", "lockgate.toml is not TOML"),
        ("pyproject.toml", "tool = 3", "is no table"),
        ("pyproject.toml", "[tool]\nlockgate = 3", "is no table"),
        ("pyproject.toml", "[tool.lockgate]\npepper = 'hunter2'", "LOCKGATE_PEPPER"),
    ],
)
def test_a_file_with_a_mistake_or_a_secret_is_refused_without_repeating_it(
    capsys: Said, folder: Path, file: str, text: str, said: str
) -> None:
    (folder / file).write_text(text)
    for arguments in (["keys", "list", "org_1"], ["db", "current"]):
        assert main(arguments) == 2
        out, err = capsys.readouterr()
        assert (out, said in err) == ("", True), err
        assert "hunter2" not in err and "Traceback" not in err


def test_a_project_without_settings_is_no_mistake(capsys: Said, folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[project]\nname = 'service'\n")
    assert main(["keys", "list", "org_1"]) == 2
    assert "lockgate.toml" in capsys.readouterr().err


def test_progress_is_silent_where_no_terminal_reads_it(capsys: Said) -> None:
    with progress("Reading") as show:
        show("half")
    assert capsys.readouterr() == ("", "")


def test_progress_shows_on_a_terminal(capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress("Reading") as show:
        show("half")
    out, err = capsys.readouterr()
    assert (out, "Reading" in err) == ("", True)
