"""Keys of other systems: import their digests, verify them, and move them to lockgate's on use."""
