"""Many streams that hold units, in processes that are killed: ``nox -s streams``."""
