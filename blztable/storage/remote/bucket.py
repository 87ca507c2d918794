"""A bucket: the calls that a remote store makes of a library, and what their errors become.

Each call of a bucket is a request, or a few. Knows nothing of tables, and no library.

Secrets. A message of a library may have an address with a signature, or a header. So an error of
ours tells its kind, and of the message only words that are known.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol

from blztable.errors import AccessError, BlzError, StorageError
from blztable.storage.store import Buffer, KeyNotFound, ListedValue

# What is told of the message of a library, if it has one of these words.
_WORDS = (
    r"[45]\d\d [A-Z][A-Za-z ]+",
    "NoSuchBucket",
    "AccessDenied",
    "SignatureDoesNotMatch",
    "InvalidAccessKeyId",
    "ExpiredToken",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "PermanentRedirect",
    "connection refused",
    "connection reset",
    "connection closed",
    "dns error",
    "timed out",
    "certificate",
)
# What libraries in Rust raise where they did not expect an error. It is no Exception.
_PANIC = "PanicException"
_TOLD = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b", re.IGNORECASE)


class Content(NamedTuple):
    """What a value was when it was looked at.

    Attributes
    ----------
    etag
        Names the content; "" where the medium does not say it.
    time
        When it was stored, in seconds since 1970 by the clock of the medium; 0 if nobody knows.
    version
        What Google Cloud Storage compares in place of the ETag.
    """

    size: int
    etag: str
    time: float
    version: str | None = None

    def is_same(self, other: "Content") -> bool:
        """True if a value that has the other content now has not changed."""
        if self.etag and other.etag:
            return (self.size, self.etag) == (other.size, other.etag)
        return (self.size, self.time) == (other.size, other.time)


class Replaced(Exception):
    """A value has not the content that was expected; it may be gone."""


class Bucket(Protocol):
    """Values under keys, on the other side of a network.

    The key "" names the value at the address of the bucket itself.

    Attributes
    ----------
    name
        Its address without user, query and credentials.
    lists
        True if it can say which keys there are.
    creates
        True if `create` and `replace` are one step of the server, as far as is known before they
        were tried.
    has_root
        True if there may be a value at its address.
    """

    name: str
    lists: bool
    creates: bool
    has_root: bool

    def get(
        self, key: str, start: int = 0, stop: int | None = None, content: Content | None = None
    ) -> Buffer:
        """Return the bytes from `start` to `stop`; fewer if the value ends earlier.

        Replaced if a content is expected, and the value has another one.
        """

    def end(
        self, key: str, nbytes: int, known: Content | None = None
    ) -> tuple[Content, Buffer] | None:
        """Return the content of a value and its last bytes, at least so many if it has them.

        None if it has still the content that is known.
        """

    def size(self, key: str) -> int:
        """Return the bytes of a value."""

    def entries(self, prefix: str, after: str) -> Iterator[ListedValue]:
        """Yield the values below a prefix whose keys are above `after`, ascending."""

    def names(self, prefix: str) -> list[str]:
        """Return the names directly below a prefix."""

    def create(self, key: str, data: Buffer) -> str:
        """Store a value where none is; KeyTaken if there is one. Return its ETag, "" for none.

        KeyTaken may also be the answer if the value is ours, because a reply was lost, and if none
        is there, because two requests met.
        """

    def put(self, key: str, data: Buffer) -> None:
        """Store a value in place of another one."""

    def replace(self, key: str, data: Buffer, content: Content | None) -> Content:
        """Store a value in place of one with this content, or where none is; return its content.

        Replaced if something else is there, which may be ours, because a reply was lost.
        """

    def delete(self, keys: Sequence[str]) -> None:
        """Remove values; keys without a value are skipped."""

    def __reduce__(self) -> tuple[Callable[..., "Bucket"], tuple[Any, ...]]:
        """Return how another process opens it, without credentials."""


class Fork:
    """What a process shares with a library whose threads a child made by fork does not have."""

    _pid: int | None = None

    @classmethod
    def check(cls, name: str) -> None:
        """Raise StorageError in a child whose parent has used a bucket: its calls would hang."""
        pid = os.getpid()
        if cls._pid is None:
            cls._pid = pid
        if cls._pid != pid:
            raise StorageError(
                f"{name}: this process was forked from one that has used a remote store, whose "
                'threads it does not have; start it by "spawn" or "forkserver"'
            )


@contextmanager
def failures(
    name: str, doing: str, key: str, kinds: Mapping[type[BaseException], type[BlzError]]
) -> Iterator[None]:
    """Turn the errors of a library into ours; their messages are not passed on."""
    Fork.check(name)
    where = f"{name}/{key}" if key else name
    try:
        yield
    except BlzError:
        # Ours are errors of the system, too.
        raise
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):
            raise StorageError(f"{where}: {doing} failed: there is no such bucket") from None
        raise KeyNotFound(key) from None
    except PermissionError as error:
        raise AccessError(f"{where}: {doing} was refused{_told(error)}") from None
    except tuple(kinds) as error:
        told = _told(error)
        if "NoSuchBucket" in told:
            raise StorageError(f"{where}: {doing} failed: there is no such bucket") from None
        kind = next(kinds[one] for one in type(error).__mro__ if one in kinds)
        if kind is AccessError or "401" in told or "403" in told:
            raise AccessError(f"{where}: {doing} was refused{told}") from None
        raise kind(f"{where}: {doing} failed: {type(error).__name__}{told}") from None
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise StorageError(
            f"{where}: {doing} failed: the library could not make a request; check the address and "
            "the credentials, also those of the environment"
        ) from None


Failures = Callable[[str, str], AbstractContextManager[None]]


def _told(error: BaseException) -> str:
    found = dict.fromkeys(word.strip() for word in _TOLD.findall(str(error)))
    return f" ({', '.join(found)})" if found else ""
