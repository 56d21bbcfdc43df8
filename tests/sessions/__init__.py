"""Tests of session verifiers."""
