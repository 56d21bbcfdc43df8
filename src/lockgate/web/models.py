"""The bodies of lockgate's own operations, as pydantic models (spec 2)."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from ..flows.status import Status
from ..rules.instants import iso8601
from ..rules.keys import ApiKey, KeyState, read_lifetime, read_name, read_scopes
from ..rules.scopes import Catalogue


class _In(BaseModel):
    """A body that is read: exact types, and no field that is not known (D8)."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", strict=True)


class _Out(BaseModel):
    """A body that is written."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, serialize_by_alias=True
    )


def _fail(problems: list[str]) -> None:
    if problems:
        raise PydanticCustomError("unfit", "{sentences}", {"sentences": " ".join(problems)})


def _name(value: str) -> str:
    name, problems = read_name(value)
    _fail(problems)
    return name


def _scopes(values: list[str], info: ValidationInfo) -> list[str]:
    catalogue = info.context
    assert isinstance(catalogue, Catalogue), "read_body passes it on"
    scopes, problems = read_scopes(values, catalogue)
    _fail(problems)
    return list(scopes)


def _days(value: float | None) -> float | None:
    _fail(read_lifetime(value)[1])
    return value


class CreateKey(_In):
    """What creates a key (spec 4.2)."""

    # Validated with the catalogue as context. The flow checks the same again for callers of the
    # library; here every fault of a body is told at once, those of types included.

    name: Annotated[str, AfterValidator(_name)] = Field(
        description="Display name, 1 to 100 characters.", examples=["render farm"]
    )
    scopes: Annotated[list[str], AfterValidator(_scopes)] = Field(
        default=["*"], description="Permission scopes, 1 to 50.", examples=[["jobs:*"]]
    )
    expires_in_days: Annotated[float | None, AfterValidator(_days)] = Field(
        default=None,
        description="Days until expiration, more than 0 and at most 36,500; null never expires.",
        examples=[30],
    )


class KeyInList(_Out):
    """An API key, as the list shows it (spec 2.1)."""

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
            "expires_at": _written(key.expires_at),
            "last_used_at": _written(key.last_used_at),
            "request_count": key.request_count,
            "created_at": iso8601(key.created_at),
            "revoked_at": _written(key.revoked_at),
        }

    @classmethod
    def of(cls, key: ApiKey, now: int) -> "KeyInList":
        """A key as it is at an instant."""
        return cls.model_validate(cls.fields_of(key, now))


class KeyInDetail(KeyInList):
    """An API key, as its own page shows it: with its organization."""

    organization_id: str

    @classmethod
    def of(cls, key: ApiKey, now: int) -> "KeyInDetail":
        """A key as it is at an instant."""
        fields = {**cls.fields_of(key, now), "organization_id": key.organization}
        return cls.model_validate(fields)


class KeyList(_Out):
    """All keys of an organization."""

    data: list[KeyInList]


class KeyDetail(_Out):
    """One key."""

    data: KeyInDetail


class KeyCreated(_Out):
    """A new key: the only answer that ever holds it whole (spec 2.3)."""

    id: str
    key: str = Field(repr=False)
    key_prefix: str
    message: str = "Store this key securely: it is not shown again."


class KeyRevoked(_Out):
    """A key was revoked."""

    success: bool = True
    message: str = "The key is revoked: applications that use it have lost access."


class Limits(_Out):
    """What a plan admits; null is no limit."""

    rpm: int | None
    rph: int | None
    rpd: int | None
    concurrent: int | None


class WindowUsage(_Out):
    """What a window counts and admits."""

    used: int
    limit: int | None


class Usage(_Out):
    """The usage of all windows."""

    minute: WindowUsage
    hour: WindowUsage
    day: WindowUsage


class RateLimitStatus(_Out):
    """The rate limit status (spec 2.6)."""

    plan: str
    limits: Limits
    usage: Usage
    timestamp: str

    @classmethod
    def of(cls, status: Status) -> "RateLimitStatus":
        """A status as it is written."""
        plan = status.plan
        return cls(
            plan=plan.name,
            limits=Limits(rpm=plan.rpm, rph=plan.rph, rpd=plan.rpd, concurrent=plan.concurrent),
            usage=Usage.model_validate(
                {name: usage._asdict() for name, usage in status.usage.items()}
            ),
            timestamp=iso8601(status.at),
        )


class Detail(_Out):
    """What is wrong with one field; the empty name is the body as a whole."""

    field: str
    message: str


class RefusedLimits(_Out):
    """The window that refused."""

    type: str
    limit: int
    used: int


class Error(_Out):
    """Every error (D16)."""

    error: str
    code: str
    details: list[Detail] = Field(default=[], description="With VALIDATION_ERROR only.")
    retry_after: int = Field(default=1, description="Seconds to wait; with a 429 only.")
    limits: RefusedLimits | None = Field(default=None, description="With a 429 only.")


def _written(instant: int | None) -> str | None:
    return None if instant is None else iso8601(instant)
