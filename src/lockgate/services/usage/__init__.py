"""The usage of keys and organizations: count it, report it, and tell when a limit is near."""
