"""Work done in a process of its own, which may die, hang or want too much memory.

A `Captive` answers one request after the other; when it is lost, the next request has a new one.
Knows nothing of blztable.
"""

import contextlib
import faulthandler
import inspect
import multiprocessing
import os
import resource
import runpy
import signal
import tempfile
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

# Of address space, above what a worker has when it is ready: past it comes MemoryError.
SPACE = 1 << 30


class Lost(Exception):
    """The worker died, hung, or took too much memory; the message says which."""


class Captive:
    """A worker process, whose `prepare(*arguments)` gives the function that answers requests."""

    def __init__(self, prepare: Callable[..., Callable], *arguments, seconds=10, growth=64 << 20):
        """Let each request take so many seconds, and all together so much resident memory."""
        # By its file: pytest calls a file of tests by a name that a new process cannot import.
        self._made_of = (inspect.getfile(prepare), prepare.__name__, arguments)
        self._seconds = seconds
        self._growth = growth
        self._process: Any = None
        handle, path = tempfile.mkstemp(suffix=".trace")
        os.close(handle)
        self._trace = Path(path)

    def ask(self, request: Any) -> Any:
        """The answer; Lost if there is none, or it took more memory than it may."""
        if self._process is None:
            self._start()
        try:
            self._pipe.send(request)
            if not self._pipe.poll(self._seconds):
                os.kill(self._process.pid, signal.SIGABRT)  # leaves a trace of its threads
                raise self._lost(f"no answer in {self._seconds} s")
            answer, growth = self._pipe.recv()
        except (EOFError, ConnectionError):
            raise self._lost("died") from None
        if growth > self._growth:
            raise self._lost(f"took {growth >> 20} MiB of memory")
        return answer

    def close(self) -> None:
        """End the worker."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None
        self._trace.unlink(missing_ok=True)

    def __enter__(self) -> "Captive":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, str(self._trace), *self._made_of), daemon=True
        )
        self._process.start()
        theirs.close()
        with contextlib.suppress(EOFError):
            assert self._pipe.recv() == "ready"
            return
        raise self._lost("died before the first request")

    def _lost(self, how: str) -> Lost:
        """Put an end to the worker; what it left behind."""
        self._process.join(2)
        self._process.kill()
        self._process.join()
        code = self._process.exitcode
        trace = self._trace.read_text(errors="replace")
        self.close()
        return Lost(f"{how}, exit {code}\n{trace}".rstrip())


def _serve(pipe: Connection, trace: str, file: str, name: str, arguments: tuple) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(trace, "w") as opened:
        faulthandler.enable(opened)
        answer = runpy.run_path(file)[name](*arguments)
        warnings.simplefilter("error")
        _limit_space()
        before = _peak()
        pipe.send("ready")
        with contextlib.suppress(EOFError):
            while True:
                pipe.send((answer(pipe.recv()), _peak() - before))


def _peak() -> int:
    """The most resident memory this process ever had, in bytes."""
    with contextlib.suppress(FileNotFoundError):
        # Not ru_maxrss, which begins with the peak of the process that started this one.
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _limit_space() -> None:
    """Let the address space grow by `SPACE`; where nobody tells its size, let it be."""
    with contextlib.suppress(FileNotFoundError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + SPACE
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
