"""The command ``lockgate``."""

from .main import main

__all__ = ["main"]
