"""Cold starts: the first requests of a fresh fleet, and of workers that are recycled."""
