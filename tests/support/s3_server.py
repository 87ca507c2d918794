"""A local S3 server for tests: latency, bandwidth, faults by rules, and a log of all requests.

A thread runs an event loop that answers all connections; `s3_objects` says what the answers are.
Half of the latency passes before a request has its effect and half after it, so requests of several
clients overlap as they do far away. A rule is asked once for each request and may name a fault.

    PYTHONPATH=tests python -m support.s3_server --port 9000 --latency 0.1
"""

import argparse
import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from enum import Enum
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from support.s3_objects import Objects, Reply, Request, Stored, error

BUCKET = "bucket"
_PIECE = 64 << 10
_LONGEST_HEAD = 1 << 20


class Fault(Enum):
    """What goes wrong with a request."""

    REFUSED = "503 SlowDown; nothing was done"
    CONFLICT = "409 ConditionalRequestConflict of a PUT; nothing was done"
    DROPPED = "the connection is closed; nothing was done"
    LOST = "it was done; the connection is closed without a reply"
    HUNG = "it was done; the reply never comes"
    CUT = "it was done; the connection is closed in the middle of the reply"


_REFUSALS = {
    Fault.REFUSED: error(503, "SlowDown"),
    Fault.CONFLICT: error(409, "ConditionalRequestConflict"),
}

Rule = Callable[[Request], Fault | None]


def nth(fault: Fault, verb: str, key: str = "", number: int = 1) -> Rule:
    """Return a rule that fails one request: the `number`th of a verb whose key has `key` in it."""
    count = 0

    def rule(request: Request) -> Fault | None:
        nonlocal count
        name = request.key or request.query.get("prefix", "")
        count += request.verb == verb and key in name
        if count != number or request.verb != verb or key not in name:
            return None
        count += 1
        return fault

    return rule


def share(part: float, faults: Iterable[Fault], seed: int = 0) -> Rule:
    """Return a rule that fails a part of all requests, each with one of `faults`."""
    draw, choices = random.Random(seed), list(faults)
    return lambda request: draw.choice(choices) if draw.random() < part else None


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its reply, as the server had them; a list has its prefix as `key`."""

    verb: str
    key: str
    range: str
    status: int
    received: int
    sent: int
    begun: float
    ended: float
    fault: Fault | None = None


class Log(list[Exchange]):
    """Exchanges in the order of their ends."""

    def of(self, verb: str, key: str = "") -> "Log":
        """Return the exchanges of a verb whose key has `key` in it."""
        return Log(one for one in self if one.verb == verb and key in one.key)

    @property
    def rounds(self) -> int:
        """Return how many exchanges followed one another: each began after another had ended.

        With a latency, requests that are sent together are one round.
        """
        rounds, end = 0, float("-inf")
        for one in sorted(self, key=lambda one: one.ended):
            if one.begun > end:
                rounds, end = rounds + 1, one.ended
        return rounds

    @property
    def at_once(self) -> int:
        """Return the largest number of exchanges that were under way at the same time."""
        moments = [(one.begun, 1) for one in self] + [(one.ended, -1) for one in self]
        most = now = 0
        for _, step in sorted(moments):
            now += step
            most = max(most, now)
        return most

    @property
    def sent(self) -> int:
        """Return the bytes of all replies, without their headers."""
        return sum(one.sent for one in self)


class S3Server:
    """An S3 on a port of this machine, from `with` until its end.

    Attributes
    ----------
    objects : Objects
        All buckets; tests look into them and change them.
    log : Log
        All exchanges since the server began, or since the log was cleared.
    latency : float
        Seconds of each exchange.
    bandwidth : float
        Bytes a second of each connection; 0 for no limit.
    """

    def __init__(
        self,
        *,
        latency: float = 0.0,
        bandwidth: float = 0.0,
        access_key: str | None = None,
        port: int = 0,
    ) -> None:
        """Answer on `port`, by default on a free one; with `access_key` refuse all other keys."""
        self.latency = latency
        self.bandwidth = bandwidth
        self.log = Log()
        self.objects = Objects(BUCKET, now=self.now)
        self._access_key = access_key
        self._port = port
        self._ahead = 0.0
        self._rules: list[Rule] = []
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._ready = threading.Event()

    @property
    def url(self) -> str:
        """Return the address of the server: the endpoint."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def keys(self) -> dict[str, Stored]:
        """Return the objects of the bucket by their keys."""
        return self.objects.buckets[BUCKET]

    def now(self) -> float:
        """Return the time of the server's clock."""
        return time.time() + self._ahead

    def advance(self, seconds: float) -> None:
        """Set the server's clock ahead, so that all objects are older."""
        self._ahead += seconds

    @contextmanager
    def recorded(self) -> Iterator[Log]:
        """Yield a log that has, at the end, the exchanges that ended meanwhile."""
        log, begin = Log(), len(self.log)
        yield log
        log.extend(self.log[begin:])

    @contextmanager
    def failing(self, *rules: Rule) -> Iterator[None]:
        """Fail requests by rules; the first one that names a fault decides."""
        self._rules.extend(rules)
        try:
            yield
        finally:
            for rule in rules:
                self._rules.remove(rule)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(30), "the server did not begin"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(
            self._connected, "127.0.0.1", self._port, limit=_LONGEST_HEAD, backlog=1024
        )
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._ended.wait()
        server.close()
        connections = dict(self._connections)
        for task, writer in connections.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # The client has gone, or the server ends.
        finally:
            writer.close()
            del self._connections[task]

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; return True if the connection goes on."""
        request = await _read_request(reader, writer)
        begun = time.monotonic()
        fault = next((fault for rule in self._rules if (fault := rule(request))), None)
        if fault is Fault.CONFLICT and request.method != "PUT":
            fault = None
        await self._wait(self.latency / 2 + self._seconds_of(request.body))
        reply = self._answer(request, fault)
        await self._wait(self.latency / 2)
        body = b"" if request.method == "HEAD" else reply.body
        if fault is Fault.CUT:
            body = body[: len(body) // 2]
        data = _head(reply, self.now()) + body
        if fault is Fault.CUT and not body:
            data = data[: len(data) // 2]
        if fault in (Fault.DROPPED, Fault.LOST, Fault.HUNG):
            data = body = b""
        await self._send_slowly(writer, data)
        last = data[-_PIECE:]
        # Logged before the end of the reply is sent: who has the reply finds it in the log.
        self._record(request, reply.status, len(body), begun, fault)
        writer.write(last)
        await writer.drain()
        if fault is Fault.HUNG:
            await reader.read()  # Until the client gives up.
        return fault is None or fault in _REFUSALS

    def _answer(self, request: Request, fault: Fault | None) -> Reply:
        """Do what is asked for, unless a fault or a wrong key prevents it."""
        if fault in _REFUSALS:
            return _REFUSALS[fault]
        if fault is Fault.DROPPED:
            return Reply(0)
        authorization = request.headers.get("authorization", "")
        if self._access_key is not None and f"Credential={self._access_key}/" not in authorization:
            sent = escape(authorization) + escape(request.headers.get("x-amz-security-token", ""))
            return error(403, "InvalidAccessKeyId", f"<AWSAccessKeyId>{sent}</AWSAccessKeyId>")
        return self.objects.answer(request)

    def _record(
        self, request: Request, status: int, sent: int, begun: float, fault: Fault | None
    ) -> None:
        self.log.append(
            Exchange(
                verb=request.verb,
                key=request.key or request.query.get("prefix", ""),
                range=request.headers.get("range", "").removeprefix("bytes="),
                status=status,
                received=len(request.body),
                sent=sent,
                begun=begun,
                ended=time.monotonic(),
                fault=fault,
            )
        )

    async def _send_slowly(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """Send all but the last piece, not faster than the bandwidth."""
        begun, view = time.monotonic(), memoryview(data)
        end = max(len(data) - _PIECE, 0)
        step = _PIECE if self.bandwidth else max(end, 1)
        for start in range(0, end, step):
            writer.write(view[start : min(start + step, end)])
            await writer.drain()
            await self._wait(begun + self._seconds_of(view[: start + step]) - time.monotonic())

    def _seconds_of(self, data: bytes | memoryview) -> float:
        return len(data) / self.bandwidth if self.bandwidth else 0.0

    async def _wait(self, seconds: float) -> None:
        if seconds > 0:
            await asyncio.sleep(seconds)


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
    """Read a request from a connection; IncompleteReadError at its end."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin1").split("\r\n")
    method, target, _ = lines[0].split(" ")
    pairs = (line.partition(":") for line in lines[1:] if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    if headers.get("expect") == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await _read_body(reader, headers)
    parts = urlsplit(target)
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return Request(method, bucket, key, query, headers, body)


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    """Read a body of known length or in chunks, and take the chunks of AWS apart."""
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while length := int((await reader.readline()).split(b";")[0], 16):
            body += await reader.readexactly(length)
            await reader.readline()
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    is_signed = headers.get("x-amz-content-sha256", "").startswith("STREAMING")
    return _unsigned(body) if is_signed else body


def _unsigned(body: bytes) -> bytes:
    """Return the bytes of a body that is sent in chunks, each with a signature."""
    data, at = b"", 0
    while at < len(body):
        end = body.index(b"\r\n", at)
        length = int(body[at:end].split(b";")[0], 16)
        if length == 0:
            break
        data += body[end + 2 : end + 2 + length]
        at = end + 2 + length + 2
    return data


def _head(reply: Reply, now: float) -> bytes:
    """Return the status line and the headers of a reply."""
    headers = {
        "content-length": str(len(reply.body)),
        "date": formatdate(now, usegmt=True),
        "x-amz-request-id": "1",
        **reply.headers,
    }
    if reply.status in (204, 304):
        del headers["content-length"]
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {reply.status} -\r\n{lines}\r\n".encode()


def main() -> None:
    """Run a server until Ctrl-C."""
    parser = argparse.ArgumentParser(description="An S3 in memory, for tests and measurements.")
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds of each request")
    parser.add_argument("--bandwidth", type=float, default=0.0, help="bytes/s of a connection")
    options = parser.parse_args()
    with S3Server(**vars(options)) as server:
        print(f"{server.url}, bucket {BUCKET!r}")
        threading.Event().wait()


if __name__ == "__main__":
    main()
