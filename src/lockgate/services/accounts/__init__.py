"""Accounts of agents and people: registration, approval, billing, claims and sessions."""
