"""The pictures of the pages are as the code draws them."""

from __future__ import annotations

import re

import pytest

from benchmarks.worst import lockgate, of_limits
from docs.drawing import DRAWN, PICTURES, admitted
from lockgate.core.timestamps import MINUTE
from lockgate.testing import worst
from tests.docs.blocks import PAGES

IMAGE = re.compile(r"!\[([^]]*)\]\(([^)]+)\)")


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_as_drawn(name: str) -> None:
    assert (PICTURES / name).read_text() == DRAWN[name](), "run `python -m docs.drawing`"


def test_a_fixed_window_admits_199_where_lockgate_admits_100() -> None:
    assert worst(admitted(of_limits("FixedWindowRateLimiter")), MINUTE).admitted == 199
    assert worst(admitted(lockgate), MINUTE).admitted == 100


def test_every_picture_has_a_text_for_readers_who_do_not_see_it() -> None:
    pictures = [(page.name, *found) for page in PAGES for found in IMAGE.findall(page.read_text())]
    assert [one for one in pictures if len(one[1]) < 20] == []
