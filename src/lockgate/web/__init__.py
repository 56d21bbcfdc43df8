"""Top floor: the faces. Thin; what they decide is decided in :mod:`lockgate.web.guard`."""
