"""Rows that are not believed, and how a service comes to have none (D3, K1, K9)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from lockgate import ConfigurationError, Event, Gate, MemoryStore, run
from lockgate.core.accounts import Account
from lockgate.core.api_keys import ApiKey, KeyDetails, KeyDraft
from lockgate.core.key_format import checksum
from lockgate.errors import ClaimRefused, KeyNotFound, KeyRevoked, NoOrganization, TokenNotAccepted
from lockgate.options import KeyOptions
from lockgate.services.accounts.acting_organization import acting
from lockgate.services.keys.new_keys import CreatedKey
from lockgate.sessions import Session

from ..accounts.accounting import ADDRESS, EMAIL, Office, person
from ..bench import Bench, Hooked

OLD, NEW = b"an older pepper of the tests", b"a newer pepper of the tests"


class Service(Bench):
    """A gate on a store that others may have had before."""

    def __init__(self, store: Any, *peppers: bytes, **options: Any) -> None:
        super().__init__(store, peppers=peppers, clock=None, **options)

    def key(self, text: str) -> ApiKey:
        key = self.admit(text).key
        assert key is not None
        return key

    def reason(self, text: str) -> str:
        """Return the reason why a key is refused, which is reported once."""
        for _ in range(3):
            self.refuses(KeyNotFound, text)
        told = [event for event in self.told if event.name == "key_row_rejected"]
        assert len(told) == 1
        assert text not in str(told) and text[18:] not in str(told)
        return str(told[0].fields["reason"])


def change_row(store: MemoryStore, created: CreatedKey, **fields: Any) -> None:
    """Write other values of the digest, its scheme or the seal."""
    key = run(store.find(created.key.handle))
    assert key is not None
    assert run(store.rehash_if(key.handle, key.kept, key.kept._replace(**fields)))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.mark.parametrize(
    ("before", "changed", "reason", "remedy"),
    [
        ((), {}, "plain_digest", "accept_plain=True"),
        ((OLD,), {}, "unknown_pepper", "peppers=[...]"),
        ((NEW,), {"seal": None}, "unsealed", "accept_unsealed=True"),
        ((NEW,), {"scheme": "hmac-sha3:0a1b2c3d"}, "unknown_scheme", "release"),
    ],
    ids=str,
)
def test_a_row_that_is_not_believed_is_refused_and_told_once_with_the_remedy_K1(
    store: MemoryStore,
    caplog: pytest.LogCaptureFixture,
    before: tuple[bytes, ...],
    changed: dict[str, Any],
    reason: str,
    remedy: str,
) -> None:
    earlier = Service(store, *before)
    created = earlier.create()
    if changed:
        change_row(store, created, **changed)
    service = Service(store, NEW)
    assert service.reason(created.text) == reason
    assert remedy in str(service.told[0].fields["remedy"])
    (line,) = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert remedy in line and created.text not in line
    if reason == "unknown_pepper":
        assert service.told[0].fields["scheme"] == created.key.scheme
        service.refuses(KeyNotFound, earlier.create().text)  # Of the same pepper: it was told.
        assert service.names.count("key_row_rejected") == 1
    else:
        assert created.key.id in line and "org_1" in line
    if reason == "unknown_scheme":
        assert service.told[0].fields["scheme"] == changed["scheme"]
    assert run(service.gate.keys.census()).get("unsealed", 0) == (reason == "unsealed")


def test_a_wrong_secret_does_not_report_a_plain_row(store: MemoryStore) -> None:
    """Or anyone could use up the one line that is written of it."""
    created, other = Service(store).create(), Service(MemoryStore()).create()
    service = Service(store, NEW)
    body = other.text[:-6].replace(other.key.handle, created.key.handle)
    service.refuses(KeyNotFound, body + checksum(body.encode()).decode())
    assert service.told == []


def test_accept_plain_admits_plain_keys_and_logs_warnings(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    created = Service(store).create()
    service = Service(store, NEW, key_options=KeyOptions(accept_plain=True))
    assert "accept_plain=True" in caplog.text
    assert caplog.records[-1].levelno == logging.WARNING
    caplog.clear()
    assert service.key(created.text).seal is not None
    assert service.names == ["plain_key_used", "key_rehashed"]
    assert [r.levelno for r in caplog.records if "plain_key_used" in r.message] == [logging.WARNING]
    closed = Service(store, NEW)
    assert closed.key(created.text).organization == "org_1"
    assert closed.told == []


@pytest.mark.parametrize(
    ("url", "peppers", "warned"),
    [("memory://", [], False), ("sqlite", [], True), ("sqlite", [NEW], False)],
)
def test_a_gate_without_peppers_warns_unless_its_store_is_memory(
    url: str, peppers: list[bytes], warned: bool, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/keys.db?mode=rwc" if url == "sqlite" else url
    gate = Gate(url, brand="acme", peppers=peppers)
    assert ("peppers=[...]" in caplog.text) is warned
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * warned
    run(gate.close())


# --- rows from before -----------------------------------------------------------------------


def test_k9_rows_without_a_seal_are_sealed_when_they_are_used_and_by_one_call(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(store, NEW)
    created = [service.create() for _ in range(6)]
    for one in created[:4]:
        change_row(store, one, seal=None)
    moving = Service(store, NEW, key_options=KeyOptions(accept_unsealed=True))
    assert "accept_unsealed=True" in caplog.text
    for _ in range(2):
        assert moving.key(created[0].text).seal == created[0].key.seal
        assert moving.names == ["key_sealed"]
    assert run(service.gate.keys.seal()) == (0, 3)
    assert run(moving.gate.keys.seal(at_once=1)) == (3, 0)
    assert moving.told[-1] == Event("rows_sealed", {"sealed": 3, "refused": 0})
    assert run(moving.gate.keys.seal()) == (0, 0)
    for one in created:
        assert Service(store, NEW).key(one.text).id == one.key.id
    assert run(service.gate.keys.census()) == {service.gate.format.peppers.scheme: 6}


def test_k9_a_pepper_that_rotates_reseals_on_use_and_by_one_call(store: MemoryStore) -> None:
    created = [Service(store, OLD).create() for _ in range(2)]
    both = Service(store, NEW, OLD)
    moved = both.key(created[0].text)
    assert moved.seal is not None and moved.seal.startswith(both.gate.format.peppers.newest)
    assert run(both.gate.keys.seal()) == (1, 0)
    peppers = both.gate.format.peppers
    census = {peppers.scheme: 1, created[1].key.scheme: 1, f"seal:{peppers.newest}": 1}
    assert run(both.gate.keys.census()) == census
    # The digest of the other is still of the old pepper: it is moved with its text only.
    assert Service(store, NEW).reason(created[1].text) == "unknown_pepper"
    both.key(created[1].text)
    assert Service(store, NEW).key(created[1].text).id == created[1].key.id


def test_a_forged_row_is_not_sealed(store: MemoryStore) -> None:
    service = Service(store, NEW, OLD)
    created = Service(store, OLD).create()
    row = store._rows[created.key.handle]
    store._rows[created.key.handle] = (*row[:2], "org_2", *row[3:])
    assert run(service.gate.keys.seal()) == (0, 1)
    assert service.reason(created.text) == "wrong_seal"


def test_sealing_without_a_pepper_is_a_mistake(store: MemoryStore) -> None:
    with pytest.raises(ConfigurationError, match="pepper"):
        run(Service(store).gate.keys.seal())


def test_a_row_is_verified_once_in_a_process(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(store, NEW)
    created, peppers = service.create(), service.gate.format.peppers
    seals: list[object] = []
    verify = peppers.verify

    def counting(seal: object, message: bytes) -> bool:
        seals.append(seal)
        return verify(seal, message)

    monkeypatch.setattr(peppers, "verify", counting)
    for _ in range(5):
        service.key(created.text)
    assert seals == [created.key.seal]


# --- accounts -------------------------------------------------------------------------------


def write(office: Office, organization: str, **fields: Any) -> Account:
    """Change an account behind lockgate's back."""
    assert isinstance(office.store, MemoryStore)
    accounts = office.store._accounts
    account = Account._make(accounts.rows[organization])._replace(**fields)
    accounts.rows[organization] = tuple(account)
    accounts._organization_by_handle[account.handle] = organization
    accounts._unclaimed_by_email[account.billing_email] = ((account.created_at, organization),)
    if account.claimed_by is not None:
        accounts._claimed_by_user[account.claimed_by] = ((account.created_at, organization),)
    return account


def acts(office: Office, session: Session, wanted: str | None) -> Session:
    return run(acting(office.store, office.gate.events, office.gate.seal_is_valid, session, wanted))


def test_a_dashboard_token_copied_into_anothers_account_is_refused() -> None:
    """Otherwise a writer of the database could create keys for any organization."""
    office = Office()
    mine, theirs = office.register("eve@example.com"), office.register()
    cookie = run(office.accounts.agents.sign_in(mine.dashboard_token, address=ADDRESS)).cookie
    row = mine.account
    kept = {"handle": row.handle, "scheme": row.scheme, "digest": row.digest, "seal": row.seal}
    write(office, theirs.account.organization, **kept)
    with pytest.raises(TokenNotAccepted):
        run(office.accounts.agents.sign_in(mine.dashboard_token, address=ADDRESS))
    assert office.gate.sessions is not None
    assert run(office.gate.sessions.verify(cookie)) is None
    rejected = [event for event in office.told if event.name == "key_row_rejected"]
    assert [event.fields["reason"] for event in rejected] == ["wrong_seal"]
    assert rejected[0].fields["organization"] == theirs.account.organization


@pytest.mark.parametrize("fields", [{"claimed_by": "eve"}, {"billing_email": "eve@example.com"}])
def test_an_account_reassigned_by_a_writer_has_no_owner(fields: dict[str, str]) -> None:
    office = Office()
    organization = office.register().account.organization
    write(office, organization, **fields)
    eve = person("eve", "eve@example.com")
    with pytest.raises(ClaimRefused):
        run(office.accounts.claims.claim(eve, organization))
    for session, wanted in (eve, organization), (eve._replace(organization=organization), None):
        with pytest.raises(NoOrganization):
            acts(office, session, wanted)
    assert run(office.accounts.claims.list(eve)).accounts == []


def test_a_writer_can_bring_a_dashboard_token_back() -> None:
    """The revocation is not sealed: the older row, from before it, has a good seal too."""
    office = Office()
    made = office.register()
    organization = made.account.organization
    run(office.accounts.claims.claim(person(), organization, revoke_keys=True))
    with pytest.raises(TokenNotAccepted):
        run(office.accounts.agents.sign_in(made.dashboard_token, address=ADDRESS))
    write(office, organization, token_revoked_at=None)
    signed_in = run(office.accounts.agents.sign_in(made.dashboard_token, address=ADDRESS))
    assert signed_in.organization == organization


def test_k9_a_claim_is_sealed_and_outlives_a_rotation() -> None:
    office = Office(peppers=(OLD,))
    made = office.register()
    organization = made.account.organization
    run(office.accounts.claims.claim(person(), organization, revoke_keys=True))
    after = Office(office.store, peppers=(NEW, OLD), clock=office.clock)
    assert acts(after, person(), None).organization == organization
    old = office.gate.format.peppers.newest
    assert run(after.gate.keys.census()) == {f"seal:{old}": 1}
    assert run(after.gate.keys.seal()) == (2, 0)
    only = Office(office.store, peppers=(NEW,), clock=office.clock)
    assert acts(only, person(), None).organization == organization
    assert run(only.gate.keys.census()) == {f"seal:{only.gate.format.peppers.newest}": 1}


def test_a_claim_wins_although_the_token_moves_to_another_pepper_meanwhile() -> None:
    store, moves = Hooked(), [True]
    before = Office(store, peppers=(OLD,))
    made = before.register(EMAIL)
    office = Office(store, peppers=(NEW, OLD), clock=before.clock)

    async def moving(asked: Any, *arguments: Any, **options: Any) -> Any:
        if moves:
            moves.clear()
            await office.accounts.agents.sign_in(made.dashboard_token, address=ADDRESS)
        return await asked(*arguments, **options)

    store.on("claim_if_unclaimed", moving)
    claimed = run(office.accounts.claims.claim(person(), made.account.organization))
    assert claimed.account.claimed_by == "ada"
    assert acts(office, person(), None).organization


# --- limits of seals against a database writer ----------------------------------------------------


def test_a_writer_can_restore_older_rows_delete_rows_and_raise_plans(store: MemoryStore) -> None:
    service = Service(store, NEW)
    created, revoked = service.create(), service.create()
    run(service.gate.keys.revoke("org_1", revoked.key.id))
    store._keys.rows[revoked.key.handle] = revoked.key[:13]
    assert Service(store, NEW).key(revoked.text).revoked_at is None
    run(service.gate.organizations.place("org_1", "creator"))
    assert service.admit(created.text).plan.name == "creator"
    del store._keys.rows[created.key.handle]
    service.refuses(KeyNotFound, created.text)


def test_a_writer_can_clear_a_revocation_and_raise_a_keys_own_limits(store: MemoryStore) -> None:
    service = Service(store, NEW)
    created = service.create(limits={"export": "1/hour"})
    run(service.gate.keys.revoke("org_1", created.key.id))
    service.refuses(KeyRevoked, created.text)
    revoked = run(store.find(created.key.handle))
    assert revoked is not None
    details = KeyDetails(limits=(("export", "1000/hour"),))
    forged = revoked._replace(revoked_at=None, details=details)
    store._keys.rows[created.key.handle] = forged[:13]
    assert Service(store, NEW).key(created.text).limits == details.limits


def test_a_writer_makes_keys_where_there_is_no_pepper_or_the_pepper_is_known(
    store: MemoryStore,
) -> None:
    for peppers in ((), (NEW,)):
        theirs = Service(MemoryStore(), *peppers)
        made = theirs.create()
        run(store.insert(KeyDraft(*made.key[:9], made.key.expires_at), None))
        assert Service(store, *peppers).key(made.text).id == made.key.id
