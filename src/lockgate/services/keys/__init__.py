"""The keys of a gate: create, list, find, update, rotate, revoke and remove them."""
