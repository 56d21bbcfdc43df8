"""lockgate's own operations as a table of framework-free handlers."""

import json
import re
from collections.abc import Mapping
from typing import Final

from ...core.access_rule import Rule
from ...core.api_keys import ApiKey
from ...core.changes import Actor, acting
from ...core.key_search import KEY_ID
from ...errors import (
    ConfigurationError,
    Header,
    MethodNotAllowed,
    MissingAuth,
    NotFound,
    RateLimitExceeded,
    Refusal,
    SessionInvalid,
    SessionRequired,
)
from ...gate import Gate
from ...principal import Principal
from ...services.keys.new_keys import creator_of
from ...services.store_errors import asking
from ...services.usage.rate_limit_status import status_of
from ...stores.committed import collecting
from ..bodies import read_body, require_json
from ..error_bodies import answer_of
from ..request import SAFE_METHODS, RequestView, address_of
from .accounts import account_endpoints
from .health import HEALTH
from .leak_reports import LEAK_REPORTS
from .operation import Call, Endpoint, ReadBody, Reply
from .schemas import (
    CreateKey,
    KeyCreated,
    KeyDetail,
    KeyInDetail,
    KeyInList,
    KeyList,
    KeyRevoked,
    NamedUsage,
    PlanStatus,
    RateLimitStatus,
    rendered,
    shown,
    written,
)

_CREATED: Final = 201
_PARAMETER: Final = re.compile(r"\{(\w+)\}")


async def list_keys(call: Call) -> bytes:
    """Return the live keys of the caller's organization and the latest ended (D10, D45)."""
    gate, organization = call.gate, call.principal.organization

    def write(key: ApiKey, now: int) -> bytes:
        return written(shown(KeyInList, key, now, gate.events))

    keys = await gate.keys.write_overview(organization, write, call.caller.turn)
    return b'{"data":[' + b",".join(keys) + b"]}"


async def create_key(call: Call) -> KeyCreated:
    """Create a key; sessions only (D11), of a role that may write."""
    call.principal.need("account:write")
    wanted = read_body(call.body, CreateKey, call.gate)
    gate, organization = call.gate, call.principal.organization
    session = call.principal.session
    if session is not None:
        with asking(gate.events):
            await gate.session_access.check_new_key(
                session, organization, wanted.name, wanted.scopes
            )
    created = await gate.keys.create(
        organization,
        wanted.name,
        wanted.scopes,
        wanted.expires_in_days,
        created_by=creator_of(session),
    )
    if gate.accounts is not None and session is not None and session.agent:
        # A claim that ended the session may have come between (D46).
        try:
            await gate.accounts.agents.still(organization)
        except SessionInvalid:
            await gate.keys.revoke(organization, created.key.id)
            raise
    return KeyCreated(id=created.key.id, key=created.text, key_prefix=created.key.prefix)


async def get_key(call: Call) -> KeyDetail:
    """Return one key of the caller's organization (D9)."""
    key = await call.gate.keys.get(call.principal.organization, _id(call))
    now = await call.gate.keys.now()
    return KeyDetail(data=shown(KeyInDetail, key, now, call.gate.events))


async def revoke_key(call: Call) -> KeyRevoked:
    """Revoke a key: any key may revoke itself, for others it needs ``account:write`` (D9)."""
    own = call.principal.key
    if own is None or own.id != call.params["id"].lower():
        call.principal.need("account:write")
    await call.gate.keys.revoke(call.principal.organization, _id(call))
    return KeyRevoked()


async def rate_limits(call: Call) -> PlanStatus:
    """The status, this very request included if it is one with a key (D29)."""
    principal, gate = call.principal, call.gate
    named = await gate.named_usage(principal.organization, principal.key, principal.plan)
    status = status_of(principal.plan, principal.reading)
    if not named:
        return PlanStatus.of(status)
    found = RateLimitStatus.of(status)
    found.named = [NamedUsage.model_validate(one._asdict()) for one in named]
    return found


def _id(call: Call) -> str:
    id = call.params["id"].lower()
    if not KEY_ID.fullmatch(id):
        raise NotFound
    return id


_READ = Rule("account:read", accepts=("key", "session"), own=True)
_KEY_READ = Rule("account:read", own=True)
_FREE_READ = Rule("account:read", accepts=("key", "session"), own=True, free_for_sessions=True)

ENDPOINTS: Final = (
    Endpoint("GET", "/api-keys", _READ, list_keys, "List API keys", KeyList),
    Endpoint(
        "POST",
        "/api-keys",
        Rule(accepts=("session",), own=True),
        create_key,
        "Create an API key",
        KeyCreated,
        status=201,
        request=CreateKey,
    ),
    Endpoint("GET", "/api-keys/{id}", _READ, get_key, "Inspect an API key", KeyDetail),
    Endpoint(
        "DELETE",
        "/api-keys/{id}",
        Rule(accepts=("key", "session"), own=True),
        revoke_key,
        "Revoke an API key",
        KeyRevoked,
    ),
    Endpoint(
        "GET",
        "/account/rate-limits",
        _KEY_READ,
        rate_limits,
        "Read the rate limit status",
        RateLimitStatus,
    ),
)


def endpoints_of(gate: Gate) -> tuple[Endpoint, ...]:
    """Return the operations of a gate, by paths below its prefix, for those parts that it has."""
    return (
        *(_key_endpoints(gate) if gate.sessions is not None else ()),
        *(account_endpoints(gate) if gate.accounts is not None else ()),
        *(LEAK_REPORTS if gate.leaks is not None else ()),
    )


def _key_endpoints(gate: Gate) -> tuple[Endpoint, ...]:
    """Return the key operations; sessions read keys and limits for free if the gate says so."""
    if not gate.session_access.free_reads:
        return ENDPOINTS
    reads = {_READ, _KEY_READ}
    return tuple(e._replace(rule=_FREE_READ) if e.rule in reads else e for e in ENDPOINTS)


def endpoints(gate: Gate) -> dict[str, dict[str, Endpoint]]:
    """Return the operations of a gate by full path, then by method.

    Raises:
        ConfigurationError: the gate has neither sessions nor probes nor reports of leaked keys.
    """
    if not gate.has_operations:
        raise ConfigurationError(
            "The key operations need to know who has signed in: give the gate a session verifier, "
            "such as Gate(..., sessions=SignedCookie([secret]))."
        )
    by_path: dict[str, dict[str, Endpoint]] = {}
    for path, endpoint in _placed(gate):
        by_path.setdefault(path, {})[endpoint.method] = endpoint
    return by_path


def path_pattern(path: str) -> re.Pattern[str]:
    """Return the pattern of an operation's path, with a group for each parameter."""
    return re.compile(_PARAMETER.sub(r"(?P<\1>[^/]+)", path))


def rules(gate: Gate) -> dict[str, Rule]:
    """Return the rules of a gate's operations by ``"METHOD /path"``."""
    return {f"{endpoint.method} {path}": endpoint.rule for path, endpoint in _placed(gate)}


def _placed(gate: Gate) -> list[tuple[str, Endpoint]]:
    """Return the operations that can be mounted, each with its full path."""
    probes = () if gate.health is None else HEALTH
    return [
        *((gate.prefix + endpoint.path, endpoint) for endpoint in endpoints_of(gate)),
        *(((gate.health or "") + endpoint.path, endpoint) for endpoint in probes),
    ]


async def answer(
    gate: Gate,
    operations: Mapping[str, Endpoint],
    caller: RequestView,
    principal: Principal | None,
    params: Mapping[str, str],
    read: ReadBody,
) -> Reply:
    """Answer a request that is in.

    The rule of the operation is held against the principal once more: should it be mounted where
    the guard has no rule for it, it is closed all the same.

    A change that is committed is answered as committed, also if a later step failed (D52): what is
    new in its documented form, any other change by 503 ``CHANGE_COMMITTED`` with that form as its
    ``result``, since the old state may still be effective somewhere.

    Raises:
        Refusal: with what is to be answered instead.
    """
    method = "GET" if caller.method == "HEAD" else caller.method
    endpoint = operations.get(method)
    if endpoint is None:
        raise MethodNotAllowed({*operations, *(["HEAD"] if "GET" in operations else [])})
    who = None if endpoint.rule.public else check(endpoint.rule, principal)
    headers: list[Header] = []
    try:
        if endpoint.before_body is not None:
            endpoint.before_body(gate, caller)
        body = await read(endpoint.body_limit)
        if (who is None or who.session is not None) and body and method not in SAFE_METHODS:
            require_json(caller.header(b"content-type"))
        with acting(_actor(gate, caller, who)), collecting() as pending:
            value = await endpoint.handler(Call(gate, caller, who, params, body, headers))
    except Refusal as refusal:
        if endpoint.tells is not None:
            address = address_of(gate, caller)
            gate.events.emit(endpoint.tells, code=refusal.code, address=address)
        raise
    always = (b"content-type", b"application/json"), (b"cache-control", b"no-store")
    reply = Reply(endpoint.status, (*always, *headers), await rendered(value, caller))
    if not pending or endpoint.status == _CREATED:  # No copy can hide what is new.
        return reply
    told = pending.error(value)
    told.shown = json.loads(reply.body)
    answered = refused(told, gate, caller)
    return answered._replace(headers=(*answered.headers, *headers))


def _actor(gate: Gate, caller: RequestView, who: Principal | None) -> Actor:
    """Return the originator of the changes that an operation makes."""
    address = address_of(gate, caller)
    return Actor("client", None, address) if who is None else who.actor(address)


def check(rule: Rule, principal: Principal | None) -> Principal:
    """Hold a rule against a principal that is in already.

    Raises:
        Refusal: nobody is in, or not with what the rule asks for.
    """
    if principal is None:
        raise MissingAuth if rule.takes_key else SessionRequired
    if principal.key is not None and not rule.takes_key:
        raise SessionRequired
    if rule.requires is not None:
        principal.need(rule.requires)
    return principal


class Repeated(Refusal):
    """A refusal that was given before."""

    status = RateLimitExceeded.status
    code = RateLimitExceeded.code
    default_message = "Too many requests."

    def __init__(self, answer: Reply) -> None:
        super().__init__()
        self.answer = answer


def refused(refusal: Refusal, gate: Gate | None, caller: RequestView | None) -> Reply:
    """Return a refusal of a request as an answer, in the gate's error format."""
    if isinstance(refusal, Repeated):
        return refusal.answer
    return Reply(refusal.status, *answer_of(refusal, gate, caller))
