"""Reservations of a gate: concurrency slots (D26) and holds of units (D41)."""
