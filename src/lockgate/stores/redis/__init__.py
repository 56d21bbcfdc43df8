"""Keys, windows, slots and organizations in Redis or Valkey: one server, Sentinel or a Cluster."""

from .store import RedisStore

__all__ = ["RedisStore"]
