"""``lockgate orgs create`` and ``claim``: new organizations, and the owners of accounts."""

from typing import Any

import click

from ..core.timestamps import iso8601
from ..errors import ConfigurationError
from ..gate import Gate
from ..services.accounts.claims import Claimable
from ..services.accounts.registration import AgentAccounts, Registered
from .keys import document_of
from .organizations import Use, own_limit_options, print_status, status_after
from .output import json_option, print_fields, print_json
from .settings import (
    call,
    checked_id,
    gate_of,
    gate_option,
    organization_argument,
    store_option,
)


@click.command("create")
@click.argument("organization", callback=checked_id, required=False)
@click.option("--plan", help="a plan of the gate; by default the default plan")
@own_limit_options
@click.option("--email", help="create an account instead, with this billing e-mail")
@click.option("--agent", help="the name of the account's agent")
@click.option("--company", help="the name of the account's company")
@gate_option
@store_option
@json_option
def create(
    organization: str | None,
    plan: str | None,
    email: str | None,
    agent: str | None,
    company: str | None,
    named: str | None,
    store: str | None,
    *,
    as_json: bool,
    **limits: int | None,
) -> None:
    """Put the new ORGANIZATION on a plan, or register an account by --email and --agent.

    An organization that has a key or a plan is refused. An account is an organization with a new
    id, a key and a dashboard token, whose texts are printed this once. Registering needs a gate
    with registration; the registration budgets are not charged.
    """
    given = {name: limit for name, limit in limits.items() if limit is not None}
    if (email is None) is not (agent is None) or (company and not email):
        raise click.UsageError("An account has an --email and an --agent.")
    if (organization is None) is (email is None):
        raise click.UsageError("Give ORGANIZATION, or --email and --agent for an account.")
    if email is not None and (plan or given):
        raise click.UsageError("An account begins on the default plan: see 'lockgate orgs place'.")
    gate = gate_of(named, store)
    if email is not None and agent is not None:
        accounts = _accounts(gate)
        kind = "company" if company else "personal"
        _print_account(call(gate, lambda: accounts.create(agent, email, kind, company)), as_json)
        return
    assert organization is not None, "or there is an e-mail"

    async def work() -> Use:
        placed = await gate.organizations.create(organization, plan, **given)
        return await status_after(gate, organization, gate.plans.plan_of(placed, 0))

    print_status(organization, call(gate, work), as_json=as_json)


@click.command("claim")
@organization_argument
@click.argument("user")
@click.option("--revoke-keys", is_flag=True, help="revoke all of its keys in the same step")
@click.option("--keep-token", is_flag=True, help="its agent may still sign in")
@click.option("--yes", is_flag=True, help="do not ask: a claim cannot be undone")
@gate_option
@store_option
@json_option
def claim(
    organization: str,
    user: str,
    named: str | None,
    store: str | None,
    *,
    revoke_keys: bool,
    keep_token: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Attach the account of ORGANIZATION to the login of USER, for good.

    USER is an id of the identity provider. The e-mail of the login is not compared: check that the
    account is theirs.
    """
    gate = gate_of(named, store)
    accounts = _accounts(gate)

    async def work() -> tuple[Claimable, int]:
        account = await gate.store.account(organization)
        if not yes and account is not None and account.claimed_by is None:
            keys = " and revoke its keys" if revoke_keys else ""
            question = f"Attach {account.agent_name!r} of {account.billing_email} to {user!r}{keys}"
            click.confirm(f"{question} for good?", abort=True, err=True)
        now = await gate.now()  # Before the change, whose result a failure would lose.
        claimed = await accounts.claims.assign(
            organization, user, revoke_keys=revoke_keys, keep_token=keep_token
        )
        return claimed, now

    claimed, now = call(gate, work)
    document = _document(claimed, now)
    if as_json:
        print_json(document)
    else:
        del document["keys"], document["more_keys"]
        print_fields([*document.items()])


def _accounts(gate: Gate) -> AgentAccounts:
    if gate.accounts is None:
        raise ConfigurationError(
            "This gate has no accounts: name the service's gate, with "
            "Gate(features=[Registration(...)]), by --gate or LOCKGATE_GATE."
        )
    return gate.accounts


def _document(claimed: Claimable, now: int) -> dict[str, Any]:
    account = claimed.account
    ended, at = account.token_revoked_at, account.claimed_at
    return {
        "organization_id": account.organization,
        "agent_name": account.agent_name,
        "billing_email": account.billing_email,
        "claimed_by": account.claimed_by,
        "claimed_at": None if at is None else iso8601(at),
        "token_revoked_at": None if ended is None else iso8601(ended),
        "keys": [document_of(key, now) for key in claimed.keys],
        "more_keys": claimed.more_keys,
    }


def _print_account(made: Registered, as_json: bool) -> None:
    fields = {
        "organization_id": made.account.organization,
        "agent_name": made.account.agent_name,
        "billing_email": made.account.billing_email,
        "account_type": made.account.account_type,
        "company_name": made.account.company_name,
        "api_key": made.api_key,
        "dashboard_token": made.dashboard_token,
        "dashboard_url": made.dashboard_url,
        "billing_url": made.billing_url,
    }
    if as_json:
        print_json(fields)
    else:
        print_fields([*fields.items()])
