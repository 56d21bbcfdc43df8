"""The testing kit: certify stores, simulate limits, and set up gates for tests.

These names need no extra. ``lockgate.testing.suite`` (a pytest class),
``lockgate.testing.state_machine`` and ``lockgate.testing.strategies`` (Hypothesis) need the extra
``lockgate[testing]``.
"""

from .certify import MakeStore, certify
from .checks import KEY_PARTS, WINDOW_PARTS
from .clock import HandClock
from .faults import FaultyStore
from .fixtures import Tenant, furnish
from .guarantees import GUARANTEES, Broken
from .history import Event, Recorder, Undecided, assert_linearizable
from .limiters import assert_limiter_keeps
from .simulation import Holding, Simulation, simulate
from .trace import Arrival, assert_never_exceeds, worst

__all__ = [
    "GUARANTEES",
    "KEY_PARTS",
    "WINDOW_PARTS",
    "Arrival",
    "Broken",
    "Event",
    "FaultyStore",
    "HandClock",
    "Holding",
    "MakeStore",
    "Recorder",
    "Simulation",
    "Tenant",
    "Undecided",
    "assert_limiter_keeps",
    "assert_linearizable",
    "assert_never_exceeds",
    "certify",
    "furnish",
    "simulate",
    "worst",
]
