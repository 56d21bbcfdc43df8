"""A slow machine must not turn a property red: how long an example takes is no part of it."""

from hypothesis import settings

settings.register_profile("rules", deadline=None)
settings.load_profile("rules")
