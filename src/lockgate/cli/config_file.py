"""Settings of commands in a file of the current folder, which never holds a secret.

The file is ``lockgate.toml``, or else the table ``[tool.lockgate]`` of ``pyproject.toml``.
"""

import tomllib
from pathlib import Path
from typing import Any, Final, cast

from ..errors import ConfigurationError
from .store_urls import VARIABLE, has_password

FILE: Final = "lockgate.toml"
_PROJECT: Final = "pyproject.toml"
_SETTINGS: Final = ("gate", "store", "brand", "environment")
_SECRETS: Final = {
    "pepper": "LOCKGATE_PEPPER",
    "peppers": "LOCKGATE_PEPPER",
    "next_pepper": "LOCKGATE_NEXT_PEPPER",
    "session_secret": "LOCKGATE_SESSION_SECRET",
}
"""Names that a file must not have, and the environment variable of each."""


def file_settings() -> dict[str, str]:
    """Return the settings in the file of the current folder; empty without one.

    Raises:
        ConfigurationError: the file is malformed, has an unknown setting, or holds a secret.
    """
    path = Path(FILE)
    found = _read(path)
    if found is None:
        path = Path(_PROJECT)
        found = _table(path, _table(path, _read(path) or {}, "tool"), "lockgate")
    for name, value in found.items():
        if name in _SECRETS:
            raise ConfigurationError(
                f"{path} holds {name!r}, and files are copied and committed: take it out, and set "
                f"{_SECRETS[name]} instead."
            )
        if name not in _SETTINGS:
            raise ConfigurationError(f"{path} has no setting {name!r}: use {', '.join(_SETTINGS)}.")
        if not isinstance(value, str):
            raise ConfigurationError(f"{name} in {path} is no text: write it in quotes.")
        if name == "store" and has_password(value):
            raise ConfigurationError(
                f"The store's URL in {path} holds a password, and files are copied and committed: "
                f"take it out, and set {VARIABLE} to the URL instead."
            )
    return cast(dict[str, str], found)


def _read(path: Path) -> dict[str, Any] | None:
    """Return the content of a TOML file; None without one."""
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))  # Editors of Windows add the mark.
    except FileNotFoundError:
        return None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigurationError(f"{path} is not TOML: {problem}.") from None


def _table(path: Path, parent: dict[str, Any], name: str) -> dict[str, Any]:
    found = parent.get(name, {})
    if not isinstance(found, dict):
        raise ConfigurationError(f"{name!r} in {path} is no table: write [tool.lockgate].")
    return cast(dict[str, Any], found)
