"""The operations of a gate that are not part of each request, a package for each subject."""
