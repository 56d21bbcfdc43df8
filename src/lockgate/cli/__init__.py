"""The command ``lockgate``."""

from .command import main

__all__ = ["main"]
