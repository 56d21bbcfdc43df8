"""Explain an organization, a key or an open rule, and why a request would be refused."""
