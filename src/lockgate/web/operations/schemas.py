"""The bodies of lockgate's own operations, as pydantic models."""

from collections.abc import Sequence
from logging import ERROR
from typing import Annotated, Any, Final, Self, TypeVar, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from ...core.api_keys import ApiKey, KeyState, count_scopes, read_lifetime, read_name, read_scopes
from ...core.plans import LIMITS
from ...core.timestamps import iso8601
from ...errors import StoreUnavailable
from ...events import Events
from ...gate import Gate
from ...services.usage.rate_limit_status import Status
from ...stores.resilience.failures import kind_of
from ..request import RequestView

_AT_ONCE: Final = 100
"""Keys that are turned into JSON before other requests have their turn: some 1 ms."""


class In(BaseModel):
    """A body that is read: exact types, and no field that is not known (D8)."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", strict=True)


class Out(BaseModel):
    """A body that is written."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


def fail(problems: list[str]) -> None:
    """Fail a field with sentences of our own, if there are any."""
    if problems:
        raise PydanticCustomError("unfit", "{sentences}", {"sentences": " ".join(problems)})


def display_name(value: str) -> str:
    """A display name, trimmed."""
    trimmed, problems = read_name(value)
    fail(problems)
    return trimmed


def _counted(values: object) -> object:
    """A list that is no longer than may be, before each item is read: there may be thousands."""
    fail(count_scopes(cast(list[str], values)) if isinstance(values, list) else [])
    return values  # pyright: ignore[reportUnknownVariableType] - of whatever type it is


def _scopes(values: list[str], info: ValidationInfo) -> list[str]:
    gate = info.context
    assert isinstance(gate, Gate), "read_body passes it on"
    scopes, problems = read_scopes(values, gate.catalogue)
    if problems:  # Told again without any key, which a caller may have taken for a scope (K2).
        fail(read_scopes([gate.format.redact(value) for value in values], gate.catalogue)[1])
    return list(scopes)


def _days(value: float | None, info: ValidationInfo) -> float | None:
    gate = info.context
    assert isinstance(gate, Gate), "read_body passes it on"
    fail(read_lifetime(value, gate.keys.max_age)[1])
    return value


class CreateKey(In):
    """The body of a request that creates a key (D7, D8)."""

    # Validated with the gate as context. The flow checks the same again for callers of the
    # library; here every fault of a body is reported at once, those of types included.

    name: Annotated[str, AfterValidator(display_name)] = Field(
        description="Display name, 1 to 100 characters.", examples=["render farm"]
    )
    scopes: Annotated[list[str], AfterValidator(_scopes), BeforeValidator(_counted)] = Field(
        default=["*"], description="Permission scopes, 1 to 50.", examples=[["jobs:*"]]
    )
    expires_in_days: Annotated[float | None, AfterValidator(_days)] = Field(
        default=None,
        description="Days until expiration, from 1/1440 to 36,500; null never expires.",
        examples=[30],
    )


class KeyInList(Out):
    """An API key, as the list shows it (D2, D4)."""

    id: str
    name: str
    key_prefix: str
    scopes: list[str]
    is_active: bool
    expires_at: str | None
    last_used_at: str | None
    request_count: int
    created_at: str
    revoked_at: str | None

    @classmethod
    def fields_of(cls, key: ApiKey, now: int) -> dict[str, object]:
        """What a key shows at an instant."""
        return {
            "id": key.id,
            "name": key.name,
            "key_prefix": key.prefix,
            "scopes": list(key.scopes),
            "is_active": key.state(now) is KeyState.ACTIVE,
            "expires_at": written_instant(key.expires_at),
            "last_used_at": written_instant(key.last_used_at),
            "request_count": key.request_count,
            "created_at": iso8601(key.created_at),
            "revoked_at": written_instant(key.revoked_at),
        }

    @classmethod
    def of(cls, key: ApiKey, now: int) -> Self:
        """A key as it is at an instant."""
        return cls.model_validate(cls.fields_of(key, now))


_Shown = TypeVar("_Shown", bound=KeyInList)


def shown(model: type[_Shown], key: ApiKey, now: int, events: Events) -> _Shown:
    """Return a key as it is shown at an instant.

    Raises:
        StoreUnavailable: a column of its row holds a value that cannot be shown.
    """
    try:
        return model.of(key, now)
    except Exception as failure:  # Any column may hold anything.
        events.emit("key_row_unreadable", ERROR, id=str(key.id), error=kind_of(failure))
        raise StoreUnavailable from failure


async def listed(
    keys: Sequence[ApiKey], now: int, caller: RequestView, events: Events
) -> list[KeyInList]:
    """Keys as the list shows them at an instant: some at a time, as there may be thousands (G5).

    Raises:
        StoreUnavailable: the row of one cannot be read.
    """
    entries: list[KeyInList] = []
    for start in range(0, len(keys), _AT_ONCE):
        async with caller.turn():
            some = keys[start : start + _AT_ONCE]
            entries += [shown(KeyInList, key, now, events) for key in some]
    return entries


class KeyInDetail(KeyInList):
    """An API key, as its own page shows it: with its organization."""

    organization_id: str

    @classmethod
    def of(cls, key: ApiKey, now: int) -> Self:
        """A key as it is at an instant."""
        fields = {**cls.fields_of(key, now), "organization_id": key.organization}
        return cls.model_validate(fields)


class KeyList(Out):
    """All live keys of an organization, and the newest 1,000 that are revoked or expired."""

    data: list[KeyInList]


class KeyDetail(Out):
    """One key."""

    data: KeyInDetail


class KeyCreated(Out):
    """A new key: the only answer that ever holds it whole (K2)."""

    id: str
    key: str = Field(repr=False)
    key_prefix: str
    message: str = "Store this key securely: it is not shown again."


class KeyRevoked(Out):
    """A key was revoked."""

    success: bool = True
    message: str = "The key is revoked: applications that use it have lost access."


class Limits(Out):
    """What a plan admits; null is no limit."""

    rpm: int | None
    rph: int | None
    rpd: int | None
    concurrent: int | None


class WindowUsage(Out):
    """What a window counts and admits."""

    used: int
    limit: int | None


class Usage(Out):
    """The usage of all windows."""

    minute: WindowUsage
    hour: WindowUsage
    day: WindowUsage


class NamedUsage(Out):
    """The usage of one window of a named limit."""

    name: str
    type: str = Field(description="The window, as `limits.type` of a refusal names it.")
    used: int
    limit: int
    held: int = Field(description="The units of used that are held, and may come back.")


class PlanStatus(Out):
    """The rate limit status of a service without named limits (D29)."""

    plan: str
    limits: Limits
    usage: Usage
    timestamp: str

    @classmethod
    def of(cls, status: Status) -> Self:
        """A status in its written form."""
        plan = status.plan
        return cls(
            plan=plan.name,
            limits=Limits.model_validate({name: getattr(plan, name) for name in LIMITS}),
            usage=Usage.model_validate(
                {name: usage._asdict() for name, usage in status.usage.items()}
            ),
            timestamp=iso8601(status.at),
        )


class RateLimitStatus(PlanStatus):
    """The rate limit status, with named limits (D40)."""

    named: list[NamedUsage] = Field(
        default=[],
        description="Of a service with named limits only: those of the organization and the key.",
    )


class Detail(Out):
    """What is wrong with one field; the empty name is the body as a whole."""

    field: str
    message: str


class RefusedLimits(Out):
    """The window that refused."""

    type: str
    limit: int
    used: int
    name: str = Field(default="", description="Of a named limit only: its name.")
    held: int = Field(
        default=0, description="Of a hold only: the units of used that are held, and may come back."
    )


class Error(Out):
    """Every error (D16)."""

    error: str
    code: str
    details: list[Detail] = Field(default=[], description="With VALIDATION_ERROR only.")
    retry_after: int = Field(default=1, description="Seconds to wait; with a 429 or 503 only.")
    limits: RefusedLimits | None = Field(default=None, description="With a 429 only.")
    result: dict[str, Any] | None = Field(
        default=None, description="With CHANGE_COMMITTED only: the response without the failure."
    )


async def rendered(value: BaseModel | bytes, caller: RequestView) -> bytes:
    """Return a body as JSON; a list some entries at a time, as there may be hundreds (G5)."""
    if isinstance(value, bytes):
        return value
    data: object = getattr(value, "data", None)
    if not isinstance(data, list):
        return written(value)
    entries = cast(list[BaseModel], data)
    parts: list[bytes] = []
    for start in range(0, len(entries), _AT_ONCE):
        async with caller.turn():
            parts += map(written, entries[start : start + _AT_ONCE])
    others = value.model_dump_json(exclude={"data"}, by_alias=True).encode()
    end = b"}" if others == b"{}" else b"," + others[1:]
    return b'{"data":[' + b",".join(parts) + b"]" + end


def written(value: BaseModel) -> bytes:
    """Return a model as JSON."""
    return value.model_dump_json(by_alias=True).encode()


def written_instant(instant: int | None) -> str | None:
    """An instant as bodies hold it; null stays null."""
    return None if instant is None else iso8601(instant)
