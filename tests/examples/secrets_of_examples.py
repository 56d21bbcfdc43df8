"""The secrets that the examples take from the environment."""

from typing import Final

SECRETS: Final = {
    "LOCKGATE_PEPPER": "a pepper of the tests of the examples",
    "LOCKGATE_SESSION_SECRET": "a session secret of the tests of the examples",
    "DJANGO_SECRET_KEY": "a secret key of the tests of the examples",
}
