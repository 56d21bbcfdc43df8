"""CachedStore: a database as primary, with a cache before it for admissions."""
