"""Ctrl-C put off while something must not be left half done.

Python raises KeyboardInterrupt between any two steps of the main thread: between the call that made
a file and the line that remembers it, or in the midst of cleaning up. `finally` alone is no remedy.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self

Handler = Callable[[int, FrameType | None], object]


class DeferInterrupt:
    """A context in which Ctrl-C is noted and not raised before its end; nothing in other threads.

    No generator: the lines of contextlib would be steps, too, in which an interrupt can come.
    """

    def __init__(self, stop: Callable[[], None] | None = None) -> None:
        """Call `stop` when Ctrl-C comes, if it will be raised at the end: to be there soon."""
        self._stop = stop
        self._before: Handler | None = None
        self._received: tuple[int, FrameType | None] | None = None

    def __enter__(self) -> Self:
        before = signal.getsignal(signal.SIGINT)
        if callable(before) and threading.current_thread() is threading.main_thread():
            self._before = before
            signal.signal(signal.SIGINT, self.note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self.deliver()

    def note(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signal meanwhile."""
        self._received = number, frame
        # A handler of the user's may not raise at all, and then the work is to be done.
        if self._stop is not None and self._before is signal.default_int_handler:
            self._stop()

    def deliver(self) -> None:
        """Hand what was noted to the handler there was before, which may raise."""
        received, self._received = self._received, None
        if received is not None and self._before is not None:
            self._before(*received)
            _deliver(self._before)


def deliver() -> None:
    """Let an interrupt that was put off be raised here after all: for a loop that waits."""
    if threading.current_thread() is threading.main_thread():
        _deliver(signal.getsignal(signal.SIGINT))


def _deliver(handler: object) -> None:
    owner = getattr(handler, "__self__", None)
    if isinstance(owner, DeferInterrupt):
        owner.deliver()
