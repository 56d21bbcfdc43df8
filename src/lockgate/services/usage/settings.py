"""The settings of usage over time."""

from dataclasses import dataclass

from ...core.arguments import checks_arguments


@checks_arguments
@dataclass(frozen=True, kw_only=True)
class UsageHistory:
    """Keeps usage over time: ``Gate(features=[UsageHistory()])``, see :meth:`lockgate.Gate.usage`.

    Args:
        addresses: whether that includes the latest client address of each key.
    """

    addresses: bool = True
