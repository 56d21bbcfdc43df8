"""The Lua scripts: each compiles on a real server, and every file belongs to one of them."""

from __future__ import annotations

from importlib.resources import files

from lockgate.stores.redis import (
    admission,
    cache,
    change_counter,
    key_hints,
    ledger,
    rows,
    usage,
)
from lockgate.stores.redis.transport.commands import Script

from .backends import server

SCRIPTS = {
    f"{module.__name__}.{name}": script
    for module in (admission, cache, change_counter, key_hints, ledger, rows, usage)
    for name, script in vars(module).items()
    if isinstance(script, Script)
}


def test_every_script_compiles_and_has_its_own_digest() -> None:
    with server("single").client() as client:
        digests = {client.script_load(script.body) for script in SCRIPTS.values()}
    assert len(digests) == len({script.body for script in SCRIPTS.values()})
    for script in SCRIPTS.values():
        assert any(digest.encode() in script.by_digest for digest in digests)


def test_every_file_is_part_of_a_script_and_every_include_is_resolved() -> None:
    folder = files("lockgate.stores.redis") / "scripts"
    bodies = [script.body.decode() for script in SCRIPTS.values()]
    for file in folder.iterdir():
        lines = file.read_text().splitlines()
        code = [line for line in lines if line and not line.lstrip().startswith("--")]
        included = any(all(line in body for line in code) for body in bodies)
        assert included or file.name == "one_key.lua", file.name
    assert not any("-- include:" in body for body in bodies)
