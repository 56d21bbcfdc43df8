"""Tests of the stores, and of their contract."""
