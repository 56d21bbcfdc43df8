"""Choose the body of a refusal: :meth:`Refusal.body <lockgate.errors.Refusal.body>`, or the host's
``WebOptions(error_body=)``."""

from ..errors import Refusal
from ..events import logger
from ..gate import Gate
from .bodies import written


def error_body(refusal: Refusal, gate: Gate | None) -> bytes:
    """Return the JSON body of a refusal: from ``WebOptions(error_body=)``, or else lockgate's.

    A function that fails, or returns what JSON cannot hold, is logged; lockgate's body is sent.
    """
    if gate is not None and gate.error_body is not None:
        try:
            return written(gate.error_body(refusal))
        except Exception:
            logger.exception(
                "WebOptions(error_body=) failed for %s; sending the standard body.", refusal.code
            )
    return written(refusal.body())
