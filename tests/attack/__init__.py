"""Attacks on guarded applications: whichever handler runs, its own rule was charged (D31, G1)."""
