"""Interrupts: defer Ctrl-C and other signals while an operation must not be left half done.

Knows nothing of tables.

Python calls a signal handler between any two steps of the main thread, for example between the call
that creates a file and the line that records it, or in the middle of a clean-up. The handler may
raise, as that of Ctrl-C does, and then `finally` alone does not protect a clean-up.
"""

import os
import signal
import threading

# The functions of `signal` make enums of handlers; each call takes 20 times as long as these.
from _signal import getsignal  # type: ignore[import-not-found]
from _signal import signal as set_handler
from collections.abc import Callable
from types import FrameType
from typing import Self

Handler = Callable[[int, FrameType | None], object]

# The other signals that programs handle. Not all signals: each one takes two calls of the system.
_OTHERS = [
    getattr(signal, name)
    for name in ("SIGALRM", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGPROF", "SIGVTALRM")
    if hasattr(signal, name)
]


# The identifier of the main thread; `threading` would make two calls of Python for it.
_main = threading.main_thread().ident


def _become_main() -> None:
    """Make the thread that forked the main thread of the child."""
    global _main
    _main = threading.get_ident()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_become_main)


class DeferInterrupt:
    """A context that defers signals to its end; it has an effect only in the main thread.

    It is not a generator: an interrupt could come between the lines of contextlib.
    """

    def __init__(self, stop: Callable[[], None] | None = None, *, others: bool = True) -> None:
        """Call `stop` when Ctrl-C is deferred, so that the context ends sooner.

        Without `others` it defers Ctrl-C alone, until `defer_others` is called.
        """
        self._stop = stop
        self._others = others
        self._is_deferring = False
        self._before: dict[int, Handler] = {}
        self._received: dict[int, FrameType | None] = {}

    def __enter__(self) -> Self:
        self._defer([signal.SIGINT, *_OTHERS] if self._others else [signal.SIGINT])
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_deferring:
            self.restore()
        if self._received:
            self.raise_pending()

    def defer_others(self) -> None:
        """Defer other signals than Ctrl-C too, until the end of the context."""
        if not self._others:
            self._others = True
            self._defer(_OTHERS)

    def restore(self) -> None:
        """Set the handlers from before the context again; doing it twice is harmless."""
        if not self._is_deferring:
            return
        try:
            for number, before in self._before.items():
                set_handler(number, before)
        except BaseException:
            # The handler of a signal has raised; the other ones must be restored all the same.
            self.restore()
            raise
        self._is_deferring = False

    def record(self, number: int, frame: FrameType | None) -> None:
        """Record a signal: the signal handler inside of the context."""
        self._received[number] = frame
        # A handler of the user may not raise; then the work must be finished.
        if self._stop is not None and self._before[number] is signal.default_int_handler:
            self._stop()

    def raise_pending(self) -> None:
        """Pass recorded signals to the handlers from before the context, which may raise."""
        if not self._received:
            return
        number, frame = self._received.popitem()
        before = self._before[number]
        try:
            before(number, frame)
            _raise_pending(before)
        finally:
            self.raise_pending()

    def _defer(self, numbers: list[int]) -> None:
        if threading.get_ident() != _main:
            return
        self._is_deferring = True
        try:
            for number in numbers:
                before = getsignal(number)
                if callable(before):
                    self._before[number] = before
                    set_handler(number, self.record)
        except BaseException:
            # The handler of a signal that is not deferred yet has raised.
            self.restore()
            raise


def raise_pending() -> None:
    """Raise a deferred interrupt now; for a loop that waits."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, *_OTHERS):
            _raise_pending(getsignal(number))


def _raise_pending(handler: object) -> None:
    owner = getattr(handler, "__self__", None)
    if isinstance(owner, DeferInterrupt):
        owner.raise_pending()
