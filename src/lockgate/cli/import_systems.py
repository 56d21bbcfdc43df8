"""The tables of known systems: how their columns become those of :mod:`lockgate.core.key_rows`."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

Row = Mapping[str, Any]


class KnownSystem(NamedTuple):
    """A system whose table or export the import reads."""

    table: str
    """The name of its table in a database."""
    columns: Callable[[Row], dict[str, Any]]
    """Returns a row by the columns of the import, with ``organization`` where the system has an
    owner."""
    name: Callable[[Row], str]
    """Returns the name of the :class:`~lockgate.ImportedKeyFormat` of a row."""


def _drf_api_key(row: Row) -> dict[str, Any]:
    return {
        "handle": row.get("prefix"),
        "digest": row.get("hashed_key"),
        "name": row.get("name"),
        "created_at": row.get("created"),
        "expires_at": row.get("expiry_date"),
        "revoked": row.get("revoked"),
    }


def _keyshield(row: Row) -> dict[str, Any]:
    """Return a row of keyshield. An inactive key is revoked, since lockgate has no such state."""
    return {
        "handle": row.get("key_id"),
        "digest": row.get("key_hash"),
        "revoked": _is_off(row, "is_active"),
        **_same(row, "name", "scopes", "created_at", "expires_at", "last_used_at"),
    }


def _safe_api_keys(row: Row) -> dict[str, Any]:
    """Return a row of safe-api-keys, without ``use_count``, which does not count requests."""
    return {
        "handle": row.get("key_id"),
        "digest": row.get("hash"),
        "organization": row.get("owner"),
        "prefix": f"{row.get('prefix')}_{row.get('key_id')}",
        **_same(row, "name", "scopes", "created_at", "expires_at", "revoked_at", "last_used_at"),
    }


def _unkey(row: Row) -> dict[str, Any]:
    """Return a row of Unkey. A disabled key is revoked, since lockgate has no such state."""
    return {
        "handle": row.get("hash"),
        "digest": row.get("hash"),
        "organization": row.get("owner_id") or row.get("identity_id"),
        "prefix": row.get("start"),
        "name": row.get("name"),
        "created_at": row.get("created_at_m") or row.get("created_at"),
        "expires_at": row.get("expires"),
        "revoked_at": row.get("deleted_at_m") or row.get("deleted_at"),
        "revoked": _is_off(row, "enabled"),
        **_same(row, "scopes"),
    }


def _better_auth(row: Row) -> dict[str, Any]:
    """Return a row of better-auth, by its names in camel case or snake case.

    Without ``requestCount``, which starts anew with each window. A disabled key is revoked.
    """

    def get(camel: str, snake: str) -> Any:
        return row.get(camel, row.get(snake))

    return {
        "handle": row.get("key"),
        "digest": row.get("key"),
        "organization": get("referenceId", "reference_id") or get("userId", "user_id"),
        "prefix": row.get("start"),
        "name": row.get("name"),
        "scopes": _permissions(row.get("permissions")),
        "created_at": get("createdAt", "created_at"),
        "expires_at": get("expiresAt", "expires_at"),
        "last_used_at": get("lastRequest", "last_request"),
        "revoked": _is_off(row, "enabled"),
    }


def _same(row: Row, *names: str) -> dict[str, Any]:
    return {name: row.get(name) for name in names}


def _is_off(row: Row, column: str) -> bool:
    """Return whether a boolean column, in any notation of a database, is false."""
    return str(row.get(column, True)).lower() in {"false", "f", "0"}


def _permissions(value: object) -> object:
    """Return permissions such as ``{"files": ["read"]}`` as scopes: ``files:read``.

    Any other value is returned unchanged, and refused where scopes are read.
    """
    try:
        granted: Any = json.loads(value) if isinstance(value, str) and value else value
        return [f"{area}:{name}" for area, names in granted.items() for name in list(names)]
    except (ValueError, TypeError, AttributeError):
        return None if value in _NO_PERMISSIONS else {"unreadable": True}


_NO_PERMISSIONS: Final = (None, "", "null")


def _pepper_version(row: Row) -> str:
    """Return the format's name for a row of safe-api-keys; none has it for another algorithm."""
    algorithm, _, version = str(row.get("hash_alg")).partition("$")
    known = algorithm in {"hmac-sha256", "sha256"}
    return f"safe-api-keys-{version}" if known else f"safe-api-keys with {algorithm}"


def _always(name: str) -> Callable[[Row], str]:
    return lambda row: name


SYSTEMS: Final[Mapping[str, KnownSystem]] = {
    "drf-api-key": KnownSystem(
        "rest_framework_api_key_apikey", _drf_api_key, _always("drf-api-key")
    ),
    "keyshield": KnownSystem("api_keys", _keyshield, _always("keyshield")),
    "safe-api-keys": KnownSystem("safe_api_keys", _safe_api_keys, _pepper_version),
    "unkey": KnownSystem("keys", _unkey, _always("unkey")),
    "better-auth": KnownSystem("apikey", _better_auth, _always("better-auth")),
}
