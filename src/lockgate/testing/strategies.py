"""Hypothesis strategies for keys, scopes, plans and traffic.

Needs Hypothesis: ``pip install 'lockgate[testing]'``.
"""

from itertools import accumulate
from typing import Final

from ..core.extras import extra
from ..core.key_format import BASE62, KeyFormat, NewKey
from ..core.plans import Plan
from ..core.scopes import Catalogue
from ..core.timestamps import DAY, HOUR, MINUTE, SECOND
from .clock import START
from .factories import HOSTILE
from .trace import Arrival

with extra("testing", "lockgate[testing]", "hypothesis", "pytest"):
    from hypothesis import strategies as st

_FORMAT: Final = KeyFormat("acme")
_GAPS: Final = sorted({n + d for n in (0, SECOND, MINUTE, HOUR, DAY) for d in (-1, 0, 1)})[1:]


@st.composite
def keys(draw: st.DrawFn, format: KeyFormat = _FORMAT) -> NewKey:
    """Draw well-formed keys of a format: ``key.text`` is the text that a caller presents."""

    def some(length: int) -> str:
        return draw(st.text(BASE62, min_size=length, max_size=length))

    return KeyFormat(format.brand, format.environment, format.peppers, draw=some).generate()


def scopes(catalogue: Catalogue | None = None) -> st.SearchStrategy[list[str]]:
    """Draw lists of at least one scope that a key may be granted."""
    known = sorted((catalogue or Catalogue.of()).scopes)
    return st.lists(st.sampled_from(known), min_size=1, max_size=6, unique=True)


def organization_ids() -> st.SearchStrategy[str]:
    """Draw ids of organizations, including ones that are hard for stores (D36)."""
    return st.sampled_from(HOSTILE) | st.text(min_size=1, max_size=128)


def plans(*, name: str = "drawn", most: int = 200) -> st.SearchStrategy[Plan]:
    """Draw plans with limits up to ``most`` or none, coarse, fine and exact."""
    limits = st.none() | st.integers(0, 5) | st.integers(0, most)
    resolutions = st.sampled_from([None, 1, 2, 60])
    return st.builds(Plan, st.just(name), limits, limits, limits, limits, resolution=resolutions)


@st.composite
def arrivals(draw: st.DrawFn, *, start: int = START, most: int = 300) -> list[Arrival]:
    """Draw up to ``most`` calls in order: bursts and lulls, with gaps near window boundaries."""
    gap = st.sampled_from(_GAPS) | st.integers(0, 10 * SECOND) | st.integers(0, 2 * MINUTE)
    burst = st.tuples(gap, st.integers(1, 4) | st.integers(1, 80), st.just(1) | st.integers(1, 5))
    bursts = draw(st.lists(burst, max_size=12))
    gaps = [(gap, cost) for gap, times, cost in bursts for _ in range(times)][:most]
    times = accumulate((gap for gap, _ in gaps), initial=start)
    next(times)
    return [Arrival(at, cost) for at, (_, cost) in zip(times, gaps, strict=True)]
