"""Deadlines, circuit breaker, refusal cache and local limits around a store."""
