"""The recipe of `docs/recipes.md` takes events that Stripe has signed, and no others."""

import hashlib
import hmac
import json
import time
from typing import Any

import pytest
from starlette.testclient import TestClient

from lockgate import run
from tests.docs.blocks import ROOT, run_python


def test_a_signed_event_of_stripe_changes_the_plan_and_another_body_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page: Any = run_python(ROOT / "docs" / "recipes.md", monkeypatch)
    subscription = {
        "metadata": {"organization": "org_1"},
        "items": {"data": [{"price": {"id": "price_pro"}}]},
    }
    event = {"type": "customer.subscription.updated", "data": {"object": subscription}}
    body, now = json.dumps(event).encode(), int(time.time())
    signature = hmac.new(page.SECRET, f"{now}.".encode() + body, hashlib.sha256).hexdigest()
    headers = {"stripe-signature": f"t={now},v1={signature}"}
    with TestClient(page.shop) as client:
        assert client.post("/stripe", content=body + b" ", headers=headers).status_code == 400
        assert run(page.gate.organizations.plan("org_1")).name == "free"
        assert client.post("/stripe", content=body, headers=headers).status_code == 200
    assert run(page.gate.organizations.plan("org_1")).name == "pro"
