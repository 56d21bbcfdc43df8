"""The cap of keys (D8, K8), in a separate file since it creates a thousand keys."""

from __future__ import annotations

from .demo import BLINK, Answer, Demo, at_once


def test_d8_a_thousand_live_keys_and_no_more(fresh: Demo) -> None:
    """An organization begins with one key. Expired and revoked ones leave room."""
    org = fresh["enterprise"]

    def create(_: int) -> list[Answer]:
        with fresh.client() as apart:
            return [apart.post_key(org.session_cookie, {"name": "many"}) for _ in range(127)]

    with fresh.client() as client:
        client.create(org, expiresInDays=BLINK)
        answers = [answer for part in at_once(8, create) for answer in part]
        created = [answer.json()["id"] for answer in answers if answer.status == 201]
        assert len(created) == 999
        refused = [answer for answer in answers if answer.status != 201]
        assert len(refused) == 8 * 127 - 999
        for answer in refused:
            answer.is_error(409, "KEY_LIMIT_REACHED")
        client.revoke(org, created[0])
        client.create(org)
        client.post_key(org.session_cookie, {"name": "one more"}).is_error(409, "KEY_LIMIT_REACHED")
        assert len(client.keys(org)) == 1_002
        assert sum(entry["isActive"] for entry in client.keys(org)) == 1_000
