"""Bodies of WSGI responses that are more than what the application gave."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Final

from ..errors import Refusal


class Held:
    """The body of an application that holds something until it is closed, as servers do.

    Args:
        body: as the application gave it; it is closed first.
        held: what is let go of then, and is no more the caller's to let go of.
    """

    def __init__(self, body: Iterable[bytes], held: ExitStack) -> None:
        close = getattr(body, "close", None)
        if close is not None:
            held.callback(close)
        self._body = body
        self.close: Final = held.pop_all().close

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)


class Late:
    """The body of an application that answers with its first chunk only, as a generator does.

    Until then it may still be refused.

    Args:
        body: as the application gave it.
        refuse: answers in its place.
        leave: to call once it is closed.
    """

    def __init__(
        self,
        body: Iterable[bytes],
        refuse: Callable[[Refusal], Iterable[bytes]],
        leave: Callable[[], None],
    ) -> None:
        self._body = body
        self._refuse = refuse
        self._leave = leave

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._body
        except Refusal as refusal:
            yield from self._refuse(refusal)

    def close(self) -> None:
        close = getattr(self._body, "close", None)
        try:
            if close is not None:
                close()
        finally:
            self._leave()
