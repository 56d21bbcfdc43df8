"""Labels of keys, ``name=value``, and the name of a key's creator: read and compare."""

import re
from collections.abc import Mapping
from typing import Final, cast

from .api_keys import ApiKey, Labels, read_name
from .credentials import holds_credential, without_credentials

LABELS_AT_MOST: Final = 16
LABEL_NAME_LENGTH: Final = 63
LABEL_VALUE_LENGTH: Final = 100
CREATOR_LENGTH: Final = 300
_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._/-]{{0,{LABEL_NAME_LENGTH - 1}}}")
_SHOWN: Final = 64
"""Characters of a wrong name that an error repeats."""


def read_labels(labels: Mapping[str, str]) -> tuple[Labels, list[str]]:
    """Return labels in the order of their names, and their problems.

    A value is trimmed. It has 1 to 100 characters, with the rule of names of keys (D8).
    """
    if not isinstance(cast(object, labels), Mapping):
        return (), ["Write each label as its name and its value, as in {'team': 'search'}."]
    if len(labels) > LABELS_AT_MOST:
        return (), [f"Give at most {LABELS_AT_MOST} labels."]
    problems: list[str] = []
    read: dict[str, str] = {}
    for name, value in labels.items():
        if not _NAME.fullmatch(name) or holds_credential(name):
            shown = without_credentials(name)[:_SHOWN]
            problems.append(
                f"{shown!a} is no name of a label: use 1 to {LABEL_NAME_LENGTH} of "
                "A-Z, a-z, 0-9, '.', '_', '/' and '-', a letter or digit first."
            )
            continue
        read[name], found = read_name(value, LABEL_VALUE_LENGTH)
        problems += [f"The value of {name}: {problem}" for problem in found]
    return tuple(sorted(read.items())), problems


def has_labels(key: ApiKey, wanted: Labels) -> bool:
    """Return whether a key has all of these labels, with these values."""
    return not wanted or (key.details is not None and {*wanted} <= {*key.details.labels})


def check_creator(creator: str | None) -> list[str]:
    """Return the problems of a creator's name: a text of 1 to 300 characters, or None."""
    if creator is None or 1 <= len(creator) <= CREATOR_LENGTH:
        return []
    return [f"Use 1 to {CREATOR_LENGTH} characters."]
