"""The public interface equals ``__all__``: all names exist, and no other name is public."""

import importlib
import pkgutil
from types import ModuleType

import pytest

import lockgate


def public_packages() -> list[str]:
    """lockgate and each package inside it, unless its name is private."""
    inner = pkgutil.walk_packages(lockgate.__path__, "lockgate.")
    names = [module.name for module in inner if module.ispkg]
    return ["lockgate", *(name for name in names if "._" not in name)]


def isort_style(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest: the order in which ruff sorts ``__all__``."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


@pytest.mark.parametrize("package", public_packages())
def test_every_exported_name_exists_once(package: str) -> None:
    module = importlib.import_module(package)
    exported: list[str] = list(getattr(module, "__all__", []))
    assert [name for name in exported if not hasattr(module, name)] == []
    assert [name for name in exported if name.startswith("_")] == []
    assert len(exported) == len(set(exported))


def test_no_public_name_is_left_out() -> None:
    public = {
        name
        for name in dir(lockgate)
        if not name.startswith("_") and not isinstance(getattr(lockgate, name), ModuleType)
    }
    assert public == set(lockgate.__all__)
    assert list(lockgate.__all__) == sorted(lockgate.__all__, key=isort_style)
