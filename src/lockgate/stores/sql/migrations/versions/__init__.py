"""The revisions, one a file, applied in the order of their numbers."""
