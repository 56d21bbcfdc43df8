"""Changes over HTTP are recorded as those of the session or key, with the client's address."""

from __future__ import annotations

import pytest

from lockgate.core.changes import Actor, Change
from lockgate.sessions import Session

from ..driving import ask
from .test_accounts import CLAIM, KEYS, PEOPLE, Desk

PEER = "198.51.100.7"
CLIENT = (PEER, 4711)


async def log(desk: Desk, organization: str) -> list[Change]:
    return (await desk.gate.changes.list(organization)).changes


def by(changes: list[Change]) -> list[tuple[str, Actor]]:
    return [(change.action, change.actor) for change in changes]


@pytest.mark.parametrize("behind_middleware", [True, False])
async def test_a_session_and_a_key_are_recorded_with_their_address(
    behind_middleware: bool,
) -> None:
    desk = Desk()
    app = desk.app if behind_middleware else desk.alone
    cookie = PEOPLE.issue(Session("org_1", "ada"))
    body = {"name": "ci", "scopes": ["*"]}
    answer = await ask(app, "POST", KEYS, session=cookie, json_body=body, client=CLIENT)
    made = answer.json()
    path = f"{KEYS}/{made['id']}"
    gone = await ask(app, "DELETE", path, key=made["key"], client=CLIENT)
    assert gone.status == 200
    assert by(await log(desk, "org_1")) == [
        ("key_revoked", Actor("key", made["id"], PEER)),
        ("key_created", Actor("user", "ada", PEER)),
    ]


async def test_registration_sign_in_and_claim_are_recorded_by_their_actors() -> None:
    desk = Desk()
    made = await desk.register()
    organization = desk.told[-1].fields["organization"]
    assert isinstance(organization, str)
    agent = await desk.sign_in(made["dashboard_token"])
    body = {"name": "by the agent", "scopes": ["jobs:read"]}
    assert (await ask(desk.app, "POST", KEYS, session=agent, json_body=body)).status == 201
    owner = PEOPLE.issue(Session(None, "ada", "ada@example.com"))
    wanted = {"organizationId": organization, "revokeKeys": True}
    for _ in range(2):
        answer = await ask(desk.app, "POST", CLAIM, session=owner, json_body=wanted, client=CLIENT)
        assert answer.status == 200
    changes = await log(desk, organization)
    kinds = [(change.action, change.actor.kind, change.actor.id) for change in changes]
    assert kinds == [
        ("account_claimed", "user", "ada"),
        ("key_created", "agent", None),
        ("account_registered", "agent", None),
    ]
    assert changes[0].actor.address == PEER
    assert all(change.actor.address for change in changes)
    assert ("revoke_keys", True) in changes[0].after
    key = changes[1].key
    assert key is not None
    page = await desk.gate.changes.list(organization, key=key)
    assert [change.action for change in page.changes] == ["account_claimed", "key_created"]
    assert "ada@example.com" not in repr(changes)
