"""The adapters of web frameworks. Decisions are made in :mod:`lockgate.web.guard`."""
