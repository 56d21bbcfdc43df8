"""Attacks by a writer of the database on a gate with peppers, run for each kind of store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256

import pytest

from lockgate import Event, Gate, Plan, PlanBook, run
from lockgate.core.api_keys import ApiKey
from lockgate.errors import KeyNotFound
from lockgate.options import StoreOptions
from lockgate.services.keys.new_keys import CreatedKey
from lockgate.stores import Store

PEPPER = b"a pepper of the tests, long enough"
OPEN = PlanBook([Plan("open", None, None, None, 1)], custom=(), default="open")
VICTIM = "org_victim"
Write = Callable[[ApiKey, ApiKey], None]
"""Writes a row in place of another, behind lockgate's back: the row as it was, as it becomes."""


class Attack:
    """A gate with a database that an attacker can write.

    Args:
        store: where its keys are.
        write: writes a row.
        again: another store on the same database, as of a process that starts later.
    """

    def __init__(self, store: Store, write: Write, again: Store) -> None:
        self.told: list[Event] = []
        self.store = store
        self.gate = self._gate(store)
        self.later = self._gate(again)
        self.write = write

    def _gate(self, store: Store) -> Gate:
        told = self.told.append
        return Gate(
            store,
            brand="acme",
            peppers=[PEPPER],
            plans=OPEN,
            observer=told,
            store_options=StoreOptions(deadline=30),
        )

    def key(self, organization: str = "org_1") -> CreatedKey:
        """A key of the attacker's own, admitted here before."""
        made = run(self.gate.keys.create(organization, "mine", ["jobs:read"], expires_in_days=1))
        assert self.admit(self.gate, made.text).organization == organization
        return made

    def admit(self, gate: Gate, text: str) -> ApiKey:
        key = run(gate.authenticate(text)).key
        assert key is not None
        return key

    def known(self, made: CreatedKey) -> bool:
        """Whether a process lets the key in that recognises it from before."""
        token = self.gate.format.parse(made.text).without_secret(made.key)
        return run(self.store.admit(token, 1, self.gate.plans)).key is not None

    def refuses(self, made: CreatedKey, reason: str) -> None:
        """Check that every process refuses the key, and that this is reported once."""
        self.told.clear()
        assert not self.known(made)
        for gate in (self.gate, self.later, self.gate, self.later):
            with pytest.raises(KeyNotFound):
                self.admit(gate, made.text)
        rejected = [event for event in self.told if event.name == "key_row_rejected"]
        assert len(rejected) == 2, "once by each process"
        for event in rejected:
            assert event.fields["reason"] == reason
            assert made.text not in str(event)
            assert event.fields["organization"] in ("org_1", VICTIM)


def changes(key: ApiKey, other: ApiKey, text: str) -> Iterator[tuple[ApiKey, str]]:
    """Replacements of a key's row, and the gate's response to each."""
    seal = key.seal or ""
    yield key._replace(organization=VICTIM), "wrong_seal"
    yield key._replace(scopes=("*",)), "wrong_seal"
    yield key._replace(scopes=("jobs:read", "jobs:write")), "wrong_seal"
    yield key._replace(expires_at=None), "wrong_seal"
    yield key._replace(expires_at=(key.expires_at or 0) + 1), "wrong_seal"
    yield key._replace(seal=other.seal), "wrong_seal"
    yield key._replace(seal=seal[:-1]), "wrong_seal"
    yield key._replace(seal=f"{seal}0"), "wrong_seal"
    yield key._replace(seal=seal[:9]), "wrong_seal"
    yield key._replace(seal="0" * 8 + seal[8:]), "unknown_pepper"
    yield key._replace(seal=":"), "unknown_pepper"
    yield key._replace(seal=None), "unsealed"
    plain = sha256(text.encode()).digest()
    yield key._replace(scheme="sha256", digest=plain), "plain_digest"
    yield key._replace(scheme="sha256", digest=plain, seal=None, scopes=("*",)), "plain_digest"
    yield key._replace(scheme="hmac-sha256:00000000"), "unknown_pepper"


def check_tampering(store: Store, write: Write, again: Store) -> None:
    """Every change of a row is refused by processes with and without a hint of the key."""
    attack = Attack(store, write, again)
    attack.key(VICTIM)
    other = attack.key().key
    for number in range(len([*changes(other, other, "")])):
        made = attack.key()
        row = run(attack.gate.keys.get("org_1", made.key.id))
        after, reason = [*changes(row, other, made.text)][number]
        write(row, after)
        attack.gate.rejections._told.clear()
        attack.later.rejections._told.clear()
        attack.refuses(made, reason)
        write(after, row)
        for gate in (attack.gate, attack.later):
            assert attack.admit(gate, made.text).organization == "org_1"
    # The digest of a key of the attacker's own, with its handle, in a row of the victim's.
    mine, theirs = attack.key(), attack.key(VICTIM)
    write(mine.key, mine.key._replace(handle="gone0000"))
    stolen = theirs.key._replace(
        handle=mine.key.handle, scheme=mine.key.scheme, digest=mine.key.digest
    )
    write(theirs.key, stolen)
    attack.refuses(mine, "wrong_seal")
    for gate in (attack.gate, attack.later):
        run(gate.close())
