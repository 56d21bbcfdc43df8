"""Ground floor: pure rules. No I/O, no clock, no threads; time is an argument."""
