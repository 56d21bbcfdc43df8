"""The ground floor, one test file for each of its files."""
