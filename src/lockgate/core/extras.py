"""Packages of extras: a missing one is named with the command that installs it."""

from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def extra(module: str, installs: str, *packages: str) -> Generator[None]:
    """Name the command that installs a package whose import fails inside.

    Args:
        module: the name of lockgate's module that needs it, without ``lockgate.``.
        installs: what pip installs, such as ``lockgate[starlette]``.
        packages: the names under which the packages are imported; none: ``module``.

    Raises:
        ModuleNotFoundError: one of the packages is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        name = (missing.name or "").partition(".")[0]
        if name not in (packages or (module,)):
            raise
        raise ModuleNotFoundError(
            f"lockgate.{module} needs {name}: pip install '{installs}'", name=missing.name
        ) from missing
