"""Work in another process, which may die, hang or take too much memory.

A `WorkerProcess` answers one request after the other. When its process is lost, the next request
starts a new one. Knows nothing of blztable.
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

# Address space above the size of a ready worker; more raises MemoryError.
SPACE = 1 << 30


class WorkerLost(Exception):
    """The worker died, hung or took too much memory; the message says which."""


class WorkerProcess:
    """A worker process; `prepare(*arguments)` returns its function that answers requests."""

    def __init__(self, prepare: Callable[..., Callable], *arguments, seconds=10, growth=64 << 20):
        """Limit each request to `seconds`, and the growth of resident memory to `growth` bytes."""
        # By its file: pytest's module name of a test file cannot be imported in a new process.
        self._made_of = (inspect.getfile(prepare), prepare.__name__, arguments)
        self._seconds = seconds
        self._growth = growth
        self._process: Any = None
        handle, path = tempfile.mkstemp(suffix=".trace")
        os.close(handle)
        self._trace = Path(path)

    def ask(self, request: Any) -> Any:
        """Return the answer; raise WorkerLost if the worker fails or takes too much memory."""
        if self._process is None:
            self._start()
        try:
            self._pipe.send(request)
            if not self._pipe.poll(self._seconds):
                os.kill(self._process.pid, signal.SIGABRT)  # prints the stacks of its threads
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

    def __enter__(self) -> "WorkerProcess":
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

    def _lost(self, how: str) -> WorkerLost:
        """End the worker; return the exception with its trace."""
        self._process.join(2)
        self._process.kill()
        self._process.join()
        code = self._process.exitcode
        trace = self._trace.read_text(errors="replace")
        self.close()
        return WorkerLost(f"{how}, exit {code}\n{trace}".rstrip())


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
    """Return the peak resident memory of this process, in bytes."""
    with contextlib.suppress(FileNotFoundError):
        # Not ru_maxrss, which starts with the peak of the parent process.
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _limit_space() -> None:
    """Limit the growth of the address space to `SPACE`, if the system reports its size."""
    with contextlib.suppress(FileNotFoundError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + SPACE
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
