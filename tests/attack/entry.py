"""The application that servers load: ``tests.attack.entry:app``, chosen by the environment."""

from .service import load

app = load()
