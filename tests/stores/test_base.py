"""The docstring of the store contract lists its verbs by part."""

from __future__ import annotations

import re
from inspect import isfunction

import pytest

from lockgate.stores import base

PARTS = [base.KeyStore, base.WindowStore]
# Every store inherits these from the base class, and few have work to do there.
OF_FEW = {"cancel_waits", "reset_connections"}


@pytest.mark.parametrize("part", [*PARTS, base.Store])
def test_the_docstring_lists_the_verbs_of_each_part(part: type) -> None:
    listed = re.search(rf"^{part.__name__} +(.*(?:\n {{14}}.*)*)", base.__doc__ or "", re.MULTILINE)
    assert listed is not None
    verbs = {name for name, one in vars(part).items() if isfunction(one)} - OF_FEW
    assert verbs <= set(re.findall(r"\w+", listed[1]))
