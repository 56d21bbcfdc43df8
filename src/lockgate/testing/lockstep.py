"""Make each call on a store and on the model, and compare the answers."""

from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from ..core.api_keys import ApiKey
from ..core.holds import HoldAction, HoldAnswer, Look, Renew, Settle, Take, is_of_slots
from ..core.ledger import called
from ..core.sliding_window import Reading
from ..stores.answers import Admission, Verdict
from ..stores.base import Store
from .calls import Call, Raised, alike, differences, show
from .guarantees import Broken
from .model import World, expect

_USAGE: Final = ApiKey._fields.index("request_count")
_PLAIN: Final = frozenset({"W4", "W6", "W12"})
"""Guarantees that an answer can show to be broken in any check."""


class Lockstep:
    """Passes calls on to a store, and compares each answer with the model's.

    Verbs that depend on the time need ``now``.

    Args:
        store: the store under test.
        sentence: the id of the guarantee under test; None: derive it from the answer.
    """

    def __init__(self, store: object, sentence: str | None = None) -> None:
        self.store = store
        self.world = World()
        self._made: list[tuple[Call, Any]] = []
        self._sentence = sentence

    @classmethod
    def of(cls, store: object, sentence: str | None = None) -> Store:
        """Return a :class:`Lockstep` that can be called like its store."""
        return cast(Store, cls(store, sentence))

    def __getattr__(self, verb: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def both(*arguments: Any, **options: Any) -> Any:
            return await self.see(Call(verb, arguments, tuple(options.items())))

        return both

    async def see(self, call: Call) -> Any:
        """Make one call on both; None: the store does not have the verb, and it is left out.

        Raises:
            Broken: the answers differ.
        """
        if not hasattr(self.store, call.verb):
            return None
        before = self.world
        expected, self.world = expect(before, call)
        got = await call.on(self.store)
        self._made.append((call, got))
        if not alike(expected, got):
            sentence = diagnose(call, expected, got)
            if got == expected:  # Equal, but of another type.
                sentence = "W14"
            elif sentence not in _PLAIN:
                sentence = self._sentence or sentence
            raise Broken(sentence, f"In the last call {differences(expected, got)}.", self.trace)
        return got

    @property
    def trace(self) -> list[str]:
        """The calls with their answers, one per line."""
        return [f"{call} -> {show(got)}" for call, got in self._made]


def diagnose(call: Call, expected: object, got: object) -> str:
    """Return the guarantee that a wrong answer most likely breaks."""
    if isinstance(expected, Admission):
        return _of_admission(expected, got)
    if isinstance(expected, Reading):
        return _of_reading(expected, got)
    if isinstance(expected, ApiKey) and isinstance(got, ApiKey):
        return _of_key(expected, got)
    if isinstance(expected, HoldAnswer) and isinstance(got, HoldAnswer):
        action = call.arguments[1]
        if is_of_slots(action):
            return _of_slot(action, expected, got)
        return _of_hold(action, expected, got)
    if call.verb == "insert" and expected == Raised("HandleTaken"):
        return "D3"
    return _BY_VERB[called(call.arguments[1]) if call.verb == "charge" else call.verb]


def _of_admission(expected: Admission, got: object) -> str:
    if not isinstance(got, tuple) or len(cast(tuple[object, ...], got)) != len(expected):
        return "W14"
    verdict, key, plan, reading, limits, lease = cast(Admission, got)
    if verdict is not expected.verdict:
        ended = {Verdict.REVOKED: "K3", Verdict.EXPIRED: "K1", Verdict.UNKNOWN: "K1"}
        if {verdict, expected.verdict} == {Verdict.REVOKED, Verdict.EXPIRED}:
            return "D4"
        if expected.verdict in ended:
            return ended[expected.verdict]
        return "W1" if expected.verdict is Verdict.LIMITED else "W2"
    if plan != expected.plan:
        return "W13"
    if reading != expected.reading and expected.reading is not None:
        return _of_reading(expected.reading, reading)
    if limits != expected.limits:
        return "W9"
    if lease != expected.lease:
        return "H5" if verdict is Verdict.ADMITTED else "P2"
    return _of_key(expected.key, key) if expected.key and key else "K6"


def _of_reading(expected: Reading, got: object) -> str:
    if not isinstance(got, tuple) or len(cast(tuple[object, ...], got)) != len(expected):
        return "W14"
    reading = Reading(*cast(Reading, got))
    if reading.allowed != expected.allowed:
        return "W1" if reading.allowed else "W2"
    if reading.now != expected.now:
        return "W12"
    if reading.used != expected.used:
        pairs = zip(reading.used, expected.used, strict=False)
        if any(mine == theirs for mine, theirs in pairs):
            return "W9"
        return "W14" if expected.allowed else "W7"
    if reading.remaining != expected.remaining:
        return "W4"
    return "W6" if reading.wait != expected.wait else "W14"


def _of_slot(action: HoldAction, expected: HoldAnswer, got: HoldAnswer) -> str:
    if isinstance(action, Take):
        if expected.slots and got.slots:
            return "L6"
        return "L1" if got.slots else "L2"
    if isinstance(action, Look):
        return "L3"
    return "L4" if isinstance(action, Renew) else "L5"


def _of_hold(action: HoldAction, expected: HoldAnswer, got: HoldAnswer) -> str:
    if got.now != expected.now:
        return "W12"
    if got.done != expected.done:
        if isinstance(action, Take):
            return "H1" if got.done else "W2"
        return "H2" if isinstance(action, Renew) or got.done else "H3"
    if got.units != expected.units:
        reads_all = isinstance(action, Look) or (isinstance(action, Take) and not got.done)
        return "H1" if reads_all else "H3"
    if got.used != expected.used:
        if isinstance(action, Settle):
            return "H4"
        return "W9" if any(map(int.__eq__, got.used, expected.used)) else "H1"
    if got.deadline != expected.deadline or got.counts != expected.counts:
        return "H2"
    return "W6" if got.waits != expected.waits else "W14"


def _of_key(expected: ApiKey, got: ApiKey) -> str:
    if got.organization != expected.organization:
        return "K6"
    if got.revoked_at != expected.revoked_at:
        return "K3" if got.revoked_at is None else "D4"
    if got[_USAGE:] != expected[_USAGE:]:
        return "K7"
    return "K9" if got.kept != expected.kept else "K1"


_BY_VERB = {
    "insert": "K8",
    "find": "K1",
    "get": "K6",
    "list": "D10",
    "list_live": "D10",
    "revoke_if_live": "K3",
    "update_if": "D43",
    "rotate_if": "D43",
    "rehash_if": "K9",
    "add_usage": "K7",
    "remove_ended": "D45",
    "census": "K9",
    "search": "K1",
    "hit": "W14",
    "peek": "W14",
    "reset": "W2",
    "hitleased": "H3",
    "leasesout": "H1",
    "take": "H1",
    "settle": "H3",
    "renew": "H2",
    "look": "H1",
    "organizations": "D25",
    "organization": "D25",
    "put_organization": "D25",
    "change_log": "D44",
    "register": "R1",
    "account": "R1",
    "account_by_token": "D14",
    "unclaimed_by_email": "D14",
    "accounts_by_user": "D14",
    "claim_if_unclaimed": "R3",
    "remove_unclaimed": "D46",
    "sign_in": "D15",
    "sign_out": "D15",
    "rehash_token_if": "K9",
}
