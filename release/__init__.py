"""Checks of what is released: the distributions, their imports, the public interface."""
