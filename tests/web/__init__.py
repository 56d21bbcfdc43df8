"""The faces."""
