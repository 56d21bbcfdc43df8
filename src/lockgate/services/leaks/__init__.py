"""Reports of leaked keys by secret scanners."""
