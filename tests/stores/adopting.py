"""What every store must do with keys of other systems; each kind of store runs it by itself."""

from __future__ import annotations

import hashlib
from typing import Any

import bcrypt
import pytest

from lockgate import Gate, ImportedKeyFormat, run
from lockgate.core.api_keys import ApiKey
from lockgate.errors import HandleTaken, KeyNotFound, KeyRevoked
from lockgate.options import KeyOptions, StoreOptions
from lockgate.stores import Store

SYSTEM = ImportedKeyFormat(
    "old", r"old_(?P<handle>[a-z]{6})_[a-z ]{1,40}", schemes=["sha512", "bcrypt", "argon2"]
)
ARGON2 = "$argon2id$v=19$m=65536,t=3,p=4$cc65V0qpFYLwvjcGoNQ6pw$cyzogb7pS8GwJEGLKA9NoP+v2I8JF0glq6KheO9qtEw"  # noqa: E501 - as it is written


def check_adoption(store: Store) -> None:
    """Taken in, found, refused, moved, revoked; with the longest digests that are kept."""
    gate = Gate(
        store,
        brand="acme",
        peppers=[b"a pepper of the tests, long enough"],
        key_options=KeyOptions(legacy=[SYSTEM]),
        store_options=StoreOptions(deadline=30),
    )  # fmt: skip

    def adopt(handle: str, digest: str) -> ApiKey:
        fields: dict[str, Any] = {"organization": "org_1", "name": "an old key"}
        return run(gate.legacy.adopt("old", handle=handle, digest=digest, **fields))

    def admit(handle: str, secret: str) -> str:
        header = f"Bearer old_{handle}_{secret}".encode()
        return run(gate.authenticate(header)).organization

    fast = adopt("faster", hashlib.sha512(b"old_faster_right").hexdigest())
    slow = adopt("slower", bcrypt.hashpw(b"old_slower_right", bcrypt.gensalt(4)).decode())
    ended = adopt("ending", bcrypt.hashpw(b"old_ending_right", bcrypt.gensalt(4)).decode())
    longest = adopt("longer", ARGON2)
    assert run(gate.keys.get("org_1", longest.id)).digest == ARGON2.encode()
    with pytest.raises(HandleTaken):
        adopt("slower", ARGON2)
    for key, handle in ((fast, "faster"), (slow, "slower")):
        with pytest.raises(KeyNotFound):
            admit(handle, "wrong")
        assert [admit(handle, "right") for _ in range(2)] == ["org_1"] * 2
        moved = run(gate.keys.get("org_1", key.id))
        assert (moved.scheme, moved.request_count) == (gate.format.peppers.scheme, 2)
        with pytest.raises(KeyNotFound):
            admit(handle, "wrong")
    run(gate.keys.revoke("org_1", ended.id))
    run(gate.keys.revoke("org_1", fast.id))
    for handle in ("ending", "faster"):
        for _ in range(2):
            with pytest.raises(KeyRevoked):
                admit(handle, "right")
    assert run(gate.keys.get("org_1", ended.id)).revoked_at is not None
    peppers = gate.format.peppers
    left = {"legacy:old:argon2": 1, f"seal:{peppers.newest}": 1}
    assert run(gate.keys.census()) == {peppers.scheme: 1, **left}
    run(gate.close())
