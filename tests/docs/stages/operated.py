"""What has happened to the service before an operator asks: a key has used the day up."""

from contextlib import suppress

from gates import gate  # type: ignore[import-not-found]

from lockgate import Actor, acting, run
from lockgate.errors import RateLimitExceeded

with acting(Actor("operator", "grace")):
    ci = run(gate.keys.create("org_1", "ci", ["jobs:*"]))
    batch = run(gate.keys.create("org_1", "batch"))
for text, times in ((ci.text, 2), (batch.text, 559)):
    for _ in range(times):
        with suppress(RateLimitExceeded):
            run(gate.authenticate(text, address="192.0.2.7"))
assert gate.accounts is not None
account = run(gate.accounts.create("Ada's bot", "ada@example.com", "personal", None))
run(gate.accounts.claims.assign(account.account.organization, "auth0|65f2"))
run(gate.close())
