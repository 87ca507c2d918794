"""What an S3 answers: buckets of objects in memory, and the reply to each request.

Knows nothing of sockets, time that passes or faults; `s3_server` has those. A request is answered
as a whole before the next one, so each is atomic, and a list has everything that was put before.

Spoken are GET and HEAD with ranges and conditions, PUT, DELETE, ListObjectsV2, deletes of many keys
and uploads in parts, with `If-None-Match: *` and `If-Match` where S3 has them.
"""

import hashlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from urllib.parse import quote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

# Behind each key below a prefix: a list goes on after it.
_LAST = "\U0010ffff"
_MOST_KEYS = 1000


@dataclass(frozen=True, slots=True)
class Request:
    """A request, its target taken apart; names of headers are in lower case."""

    method: str
    bucket: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""

    @property
    def verb(self) -> str:
        """Return what the request asks for: the method, or LIST, or DELETE of many keys."""
        if self.method == "GET" and not self.key:
            return "LIST"
        return "DELETE" if self.method == "POST" and "delete" in self.query else self.method


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply. HEAD has headers of a body that is not sent."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Stored:
    """An object: its bytes, its ETag with quotes, and the seconds since 1970 when it was put."""

    data: bytes
    etag: str
    modified: float


def error(status: int, code: str, more: str = "") -> Reply:
    """Return an error as S3 words it; S3 repeats in `more` what it was sent."""
    text = f"<Error><Code>{code}</Code><Message>{code}</Message>{more}</Error>"
    return _document(text, status)


class Objects:
    """Buckets of objects, and uploads that are not complete.

    Attributes
    ----------
    buckets : dict of dict of Stored
        The objects of each bucket by their keys.
    uploads : dict of dict of bytes
        The parts of each upload by their numbers.
    """

    def __init__(self, *buckets: str, now: Callable[[], float] = time.time) -> None:
        self.buckets: dict[str, dict[str, Stored]] = {name: {} for name in buckets}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self._now = now
        self._numbers = itertools.count(1)

    def answer(self, request: Request) -> Reply:
        """Do what a request asks for, and return the reply."""
        if not request.key and request.method == "PUT":
            self.buckets.setdefault(request.bucket, {})
            return Reply(200)
        bucket = self.buckets.get(request.bucket)
        if bucket is None:
            return error(404, "NoSuchBucket")
        if not request.key:
            return _BUCKET_ANSWERS[request.verb](bucket, request)
        if "uploads" in request.query:
            return self._begin_upload(request)
        if "uploadId" in request.query:
            return self._continue_upload(bucket, request)
        match request.method:
            case "GET" | "HEAD":
                return _get(bucket.get(request.key), request)
            case "PUT":
                return self._put(bucket, request, request.body)
            case "DELETE":
                bucket.pop(request.key, None)
                return Reply(204)
        return error(405, "MethodNotAllowed")

    def _put(self, bucket: dict[str, Stored], request: Request, data: bytes) -> Reply:
        refused = _refused(bucket.get(request.key), request.headers)
        if refused is not None:
            return refused
        stored = bucket[request.key] = Stored(data, _etag(data), self._now())
        return Reply(200, {"etag": stored.etag})

    def _begin_upload(self, request: Request) -> Reply:
        upload = str(next(self._numbers))
        self.uploads[upload] = {}
        names = f"<Bucket>{escape(request.bucket)}</Bucket><Key>{escape(request.key)}</Key>"
        return _document(
            "<InitiateMultipartUploadResult>"
            f"{names}<UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
        )

    def _continue_upload(self, bucket: dict[str, Stored], request: Request) -> Reply:
        upload = request.query["uploadId"]
        parts = self.uploads.get(upload)
        if parts is None:
            return error(404, "NoSuchUpload")
        if request.method == "PUT":
            parts[int(request.query["partNumber"])] = request.body
            return Reply(200, {"etag": _etag(request.body)})
        if request.method == "DELETE":
            del self.uploads[upload]
            return Reply(204)
        numbers = [int(text) for text in _texts(request.body, "PartNumber")]
        done = self._put(bucket, request, b"".join(parts[number] for number in numbers))
        if done.status != 200:
            return done  # The parts stay, until they are completed or given up.
        del self.uploads[upload]
        return _document(
            "<CompleteMultipartUploadResult>"
            f"<ETag>{escape(done.headers['etag'])}</ETag></CompleteMultipartUploadResult>"
        )


def _refused(old: Stored | None, headers: dict[str, str]) -> Reply | None:
    """Return the refusal of a put whose condition does not hold."""
    if headers.get("if-none-match") == "*" and old is not None:
        return error(412, "PreconditionFailed")
    if "if-match" in headers:
        if old is None:
            return error(404, "NoSuchKey")
        if old.etag != headers["if-match"]:
            return error(412, "PreconditionFailed")
    return None


def _get(stored: Stored | None, request: Request) -> Reply:
    """Return an object, or a range of it. HEAD is answered as GET; its body is not sent."""
    if stored is None:
        return error(404, "NoSuchKey")
    if request.headers.get("if-match", stored.etag) != stored.etag:
        return error(412, "PreconditionFailed")
    headers = {
        "etag": stored.etag,
        "last-modified": formatdate(stored.modified, usegmt=True),
        "accept-ranges": "bytes",
        "content-type": "application/octet-stream",
    }
    if request.headers.get("if-none-match") == stored.etag:
        return Reply(304, headers)
    if "range" not in request.headers:
        return Reply(200, headers, stored.data)
    size = len(stored.data)
    first, end = _range(request.headers["range"], size)
    if first >= end:
        return error(416, "InvalidRange")
    headers["content-range"] = f"bytes {first}-{end - 1}/{size}"
    return Reply(206, headers, stored.data[first:end])


def _range(text: str, size: int) -> tuple[int, int]:
    """Return the first byte of a range, and the byte behind its last."""
    first, _, last = text.removeprefix("bytes=").partition("-")
    if not first:
        return max(size - int(last), 0), size
    return int(first), min(int(last) + 1, size) if last else size


def _list(bucket: dict[str, Stored], request: Request) -> Reply:
    """Return keys with a prefix in the order of their bytes; those with a delimiter as prefixes."""
    query = request.query
    prefix, most = query.get("prefix", ""), int(query.get("max-keys", _MOST_KEYS))
    token = query.get("continuation-token")
    after = bytes.fromhex(token).decode() if token else query.get("start-after", "")
    found = list(itertools.islice(_entries(bucket, prefix, query.get("delimiter"), after), most))
    is_cut = len(found) == most and most > 0
    if is_cut:
        end = found[-1] if found[-1] in bucket else found[-1] + _LAST
        is_cut = next(_entries(bucket, prefix, query.get("delimiter"), end), None) is not None
    text = quote if query.get("encoding-type") == "url" else escape
    parts = [_entry(name, bucket.get(name), text(name)) for name in found]
    head = f"<Prefix>{text(prefix)}</Prefix><KeyCount>{len(found)}</KeyCount>"
    head += f"<MaxKeys>{most}</MaxKeys><IsTruncated>{str(is_cut).lower()}</IsTruncated>"
    if "encoding-type" in query:
        head += f"<EncodingType>{escape(query['encoding-type'])}</EncodingType>"
    if is_cut:
        head += f"<NextContinuationToken>{end.encode().hex()}</NextContinuationToken>"
    return _document(
        "<ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
        f"<Name>{escape(request.bucket)}</Name>{head}{''.join(parts)}</ListBucketResult>"
    )


def _entries(
    bucket: dict[str, Stored], prefix: str, delimiter: str | None, after: str
) -> Iterator[str]:
    """Yield the keys behind `after`; keys with a delimiter behind the prefix once, cut there."""
    seen = None
    for key in sorted(key for key in bucket if key.startswith(prefix) and key > after):
        place = key.find(delimiter, len(prefix)) if delimiter else -1
        entry = key if place < 0 else key[: place + len(delimiter or "")]
        if entry != seen:
            yield entry
        seen = entry


def _entry(name: str, stored: Stored | None, text: str) -> str:
    """Return a line of a list: an object, or a prefix."""
    if stored is None:
        return f"<CommonPrefixes><Prefix>{text}</Prefix></CommonPrefixes>"
    return (
        f"<Contents><Key>{text}</Key><LastModified>{_stamp(stored.modified)}</LastModified>"
        f"<ETag>{escape(stored.etag)}</ETag><Size>{len(stored.data)}</Size>"
        "<StorageClass>STANDARD</StorageClass></Contents>"
    )


def _stamp(seconds: float) -> str:
    """Return a time in milliseconds, as lists have it."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03}Z"


def _delete_many(bucket: dict[str, Stored], request: Request) -> Reply:
    """Delete up to 1,000 keys; those that are not there count as deleted."""
    keys = _texts(request.body, "Key")
    if len(keys) > _MOST_KEYS:
        return error(400, "MalformedXML")
    for key in keys:
        bucket.pop(key, None)
    lines = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
    return _document(f"<DeleteResult>{lines}</DeleteResult>")


_BUCKET_ANSWERS: dict[str, Callable[[dict[str, Stored], Request], Reply]] = {
    "LIST": _list,
    "DELETE": _delete_many,
    "HEAD": lambda bucket, request: Reply(200),
}


def _texts(body: bytes, tag: str) -> list[str]:
    """Return the texts of all elements of a document with this tag, whatever its namespace."""
    elements = ElementTree.fromstring(body).iter()
    return [one.text or "" for one in elements if one.tag.rpartition("}")[2] == tag]


def _document(text: str, status: int = 200) -> Reply:
    body = f"<?xml version='1.0' encoding='UTF-8'?>{text}".encode()
    return Reply(status, {"content-type": "application/xml"}, body)


def _etag(data: bytes) -> str:
    """Return the same ETag for the same bytes, as S3 does for objects that are put at once."""
    return f'"{hashlib.sha1(data, usedforsecurity=False).hexdigest()[:32]}"'
