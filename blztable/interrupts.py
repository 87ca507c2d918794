"""Interrupts: defer Ctrl-C while an operation must not be left half done.

Knows nothing of tables.

Python raises KeyboardInterrupt between any two steps of the main thread, for example between the
call that creates a file and the line that records it, or in the middle of a clean-up. So `finally`
alone does not protect a clean-up.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self

Handler = Callable[[int, FrameType | None], object]


class DeferInterrupt:
    """A context that defers Ctrl-C to its end; it has an effect only in the main thread.

    It is not a generator: an interrupt could come between the lines of contextlib.
    """

    def __init__(self, stop: Callable[[], None] | None = None) -> None:
        """Call `stop` when Ctrl-C is deferred, so that the context ends sooner."""
        self._stop = stop
        self._before: Handler | None = None
        self._received: tuple[int, FrameType | None] | None = None

    def __enter__(self) -> Self:
        before = signal.getsignal(signal.SIGINT)
        if callable(before) and threading.current_thread() is threading.main_thread():
            self._before = before
            signal.signal(signal.SIGINT, self.record)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self.raise_pending()

    def record(self, number: int, frame: FrameType | None) -> None:
        """Record a signal: the signal handler inside of the context."""
        self._received = number, frame
        # A handler of the user may not raise; then the work must be finished.
        if self._stop is not None and self._before is signal.default_int_handler:
            self._stop()

    def raise_pending(self) -> None:
        """Pass a recorded signal to the handler from before the context, which may raise."""
        received, self._received = self._received, None
        if received is not None and self._before is not None:
            self._before(*received)
            _raise_pending(self._before)


def raise_pending() -> None:
    """Raise a deferred interrupt now; for a loop that waits."""
    if threading.current_thread() is threading.main_thread():
        _raise_pending(signal.getsignal(signal.SIGINT))


def _raise_pending(handler: object) -> None:
    owner = getattr(handler, "__self__", None)
    if isinstance(owner, DeferInterrupt):
        owner.raise_pending()
