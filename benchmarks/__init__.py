"""Benchmarks: lockgate beside its peers. Run ``python -m benchmarks``."""
