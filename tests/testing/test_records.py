"""Records with reused versions are detected deterministically, without a race."""

from __future__ import annotations

import pytest

from lockgate import run
from lockgate.stores.base import IoMode
from lockgate.stores.key_value import Records, RecordStore
from lockgate.testing import Broken, certify


class Counted(Records):
    """Counts the versions of each value for itself, from one."""

    io: IoMode = "none"

    def __init__(self) -> None:
        self.kept: dict[str, tuple[bytes, int]] = {}

    async def get(self, name: str) -> tuple[bytes, int] | None:
        return self.kept.get(name)

    async def put_if(
        self, name: str, value: bytes | None, version: int | None, until: int | None
    ) -> bool:
        before = self.kept.get(name)
        if (before and before[1]) != version:
            return False
        self.kept.pop(name, None)
        if value is not None:
            self.kept[name] = (value, (version or 0) + 1)
        return True

    async def names(self, prefix: str) -> list[str]:
        return [name for name in self.kept if name.startswith(prefix)]


def test_a_repeated_version_is_detected() -> None:
    with pytest.raises(Broken, match="had the version 1 twice") as found:
        run(certify(lambda: RecordStore(Counted())))
    assert found.value.sentence == "W3"
