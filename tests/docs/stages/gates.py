"""The service's module of the pages on the command line."""

import os
from hashlib import sha256

from lockgate import Gate, ImportedKeyFormat, Plan, PlanBook, Registration, UsageHistory
from lockgate.options import KeyOptions, StoreOptions, WebOptions
from lockgate.sessions import SignedCookie

SECRET = "a session secret of the tests, long enough"
gate = Gate(
    os.environ["LOCKGATE_STORE"],
    brand="acme",
    peppers=[os.environ["LOCKGATE_PEPPER"].encode()],
    store_options=StoreOptions(deadline=30),
    plans=PlanBook([Plan("free", rpm=1000, rph=None, rpd=500, concurrent=2)]),
    features=[UsageHistory(), Registration(session_secrets=[SECRET[::-1]])],
    sessions=SignedCookie([SECRET]),
    web_options=WebOptions(public_url="https://console.example.com"),
    key_options=KeyOptions(
        legacy=[
            ImportedKeyFormat(
                "tokens",
                r"tok_[A-Za-z0-9]{40}",
                schemes=["sha256"],
                handle=lambda found: sha256(found[0].encode()).hexdigest(),
            )
        ]
    ),
)
