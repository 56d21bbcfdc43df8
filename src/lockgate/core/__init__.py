"""Pure rules: no I/O, no clock, no threads. Time is an argument, in microseconds."""
