"""Gates of tests, whose arguments need not name the group that they are in."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from lockgate import Gate
from lockgate.options import KeyOptions, StoreOptions, WebOptions

GROUPS = {"key_options": KeyOptions, "web_options": WebOptions, "store_options": StoreOptions}
FEATURES = ("registration", "leak_reports", "usage_history")


def flat_gate(*store: Any, **given: Any) -> Gate:
    """Make a gate of its arguments, those of its options and features by name.

    Helpers that add arguments of their own to those of a test use it. An option by name replaces
    that of the group; a feature that is None is left out.
    """
    for group, kind in GROUPS.items():
        own = {one.name: given.pop(one.name) for one in fields(kind) if one.name in given}
        if own:
            given[group] = replace(given.get(group) or kind(), **own)
    switched = [given.pop(name, None) for name in FEATURES]
    features = [*given.pop("features", ()), *filter(None, switched)]
    return Gate(*store, features=features, **given)
