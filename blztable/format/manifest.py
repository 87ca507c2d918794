"""The manifest: the immutable document of one version, in lines of text.

Line 1 is the head, line 2 its sha256, then one line a column. The head has the place and the
sha256 of every column's line, so opening parses the head alone and a column costs its own line.
Knows nothing of what a schema means, and opens nothing.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add
from typing import Any, Self

from blztable.errors import CorruptError, FormatError, LimitError
from blztable.format import jsontext
from blztable.format.jsontext import Json
from blztable.format.layout import Path
from blztable.format.metadata import check_page_rows
from blztable.format.statistics import Statistics
from blztable.format.superchunk import PartFacts

FORMAT = "blztable"
FORMAT_VERSION = 1
SHA_BYTES = 65  # 64 hexadecimal digits and a line feed
NO_FILE = 0

# The keys of the head that are kept as they are, in the order of the file, and their types.
HEAD_FIELDS: dict[str, type | tuple[type, ...]] = {
    "version": int,
    "uuid": str,
    "parent": int,
    "commit": str,
    "writer": str,
    "time": str,
    "operation": str,
    "row_groups": list,
    "fields": dict,
    "next_column": int,
    "durable": bool,
    "properties": dict,
    "attributes": dict,
    "pandas": (dict, type(None)),
    "commit_ids": list,
    "history": list,
    "requires": list,
}

# What a program must know to read or write a table, beyond this version of the format.
KNOWN_FEATURES: frozenset[str] = frozenset()
# How a line begins, up to the numbers of its files.
_LINE_START = re.compile(rb'\{"path":[0-9,\[\]]+,"k":\[((?:[0-9]{1,18},)*[0-9]{1,18})\]')
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00")


@dataclass(frozen=True, slots=True)
class FactArrays:
    """The facts of a column's parts, an array of each: an object a part would cost too much."""

    rows: tuple[int, ...]
    page_rows: tuple[int, ...]
    cbytes: tuple[int, ...]
    front_length: tuple[int, ...]
    trailer_length: tuple[int, ...]
    crc: tuple[int, ...]

    @classmethod
    def of(cls, parts: Sequence[PartFacts]) -> Self:
        """The arrays of these facts."""
        return cls(*(tuple(getattr(part, name) for part in parts) for name in cls.__slots__))

    def __getitem__(self, group: int) -> PartFacts:
        """The facts of the part in this row group."""
        return PartFacts(
            self.rows[group],
            self.page_rows[group],
            self.cbytes[group],
            self.front_length[group],
            self.trailer_length[group],
            self.crc[group],
        )


@dataclass(frozen=True, slots=True)
class ColumnParts:
    """One column's line: an entry a row group. Without a file, `k` is `NO_FILE`."""

    path: Path
    k: tuple[int, ...]
    facts: FactArrays
    streams: Mapping[str, tuple[int, ...]]
    # As the line has them: most readers never ask.
    known: Mapping[str, Json]

    @property
    def statistics(self) -> Statistics:
        """What is known of each row group; CorruptError where the line has it wrong."""
        return Statistics.from_json(self.known, len(self.k))

    @property
    def nbytes(self) -> int:
        """Uncompressed bytes of all streams."""
        return sum(sum(sizes) for sizes in self.streams.values())

    @property
    def cbytes(self) -> int:
        """Bytes of all files."""
        return sum(self.facts.cbytes)

    def arranged(self, other: "ColumnParts", order: Sequence[int]) -> "ColumnParts":
        """The parts at these places of a list of these and then those of `other`."""
        before, after = len(self.k), len(other.k)

        def chosen(mine: Sequence[Any], theirs: Sequence[Any]) -> tuple[Any, ...]:
            both = (*mine, *theirs)
            return tuple(both[place] for place in order)

        mine, theirs = self.facts, other.facts
        known = Statistics.lists(self.known, before), Statistics.lists(other.known, after)
        return ColumnParts(
            self.path,
            chosen(self.k, other.k),
            FactArrays(
                *(chosen(getattr(mine, name), getattr(theirs, name)) for name in mine.__slots__)
            ),
            {
                name: chosen(
                    self.streams.get(name, (0,) * before), other.streams.get(name, (0,) * after)
                )
                for name in {**self.streams, **other.streams}
            },
            {name: list(chosen(known[0][name], known[1][name])) for name in Statistics.KEYS},
        )

    def encode(self) -> bytes:
        """The line, without its line feed."""
        line = {
            "path": _spelled(self.path),
            "k": self.k,
            **{name: getattr(self.facts, name) for name in FactArrays.__slots__},
            "streams": self.streams,
            **self.known,
        }
        return jsontext.dumps(line)

    @classmethod
    def decode(cls, data: bytes, path: Path, groups: int) -> Self:
        """Read the line of the column with this path, in a table of so many row groups."""
        what = f"the manifest's line of column {path}"
        line = jsontext.loads(data, what)
        if not isinstance(line, dict) or line.get("path") != _spelled(path):
            raise CorruptError(f"{what}: it is not the line of that column")
        arrays = (jsontext.numbers(line.get(name), what, groups) for name in FactArrays.__slots__)
        facts = FactArrays(*arrays)
        for page_rows in set(facts.page_rows):
            check_page_rows(page_rows)
        k = jsontext.numbers(line.get("k"), what, groups)
        files = [number for number in k if number != NO_FILE]
        if len(set(files)) != len(files):
            raise CorruptError(f"{what}: one file in two row groups")
        streams = line.get("streams")
        if not isinstance(streams, dict):
            raise CorruptError(f"{what}: no streams")
        return cls(
            path,
            k,
            facts,
            {name: jsontext.numbers(sizes, what, groups) for name, sizes in streams.items()},
            {name: line.get(name) for name in Statistics.KEYS},
        )


@dataclass(frozen=True, slots=True)
class ColumnIndex:
    """The columns as the head lists them, one entry each: what is known without their lines."""

    paths: tuple[Path, ...] = ()
    next_k: tuple[int, ...] = ()
    nbytes: tuple[int, ...] = ()
    cbytes: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    digests: bytes = b""

    def digest(self, index: int) -> bytes:
        """The sha256 of the line of column `index`."""
        return self.digests[32 * index : 32 * index + 32]


@dataclass(frozen=True, slots=True)
class Head:
    """What a version is: everything but the columns' lines."""

    version: int
    uuid: str
    parent: int
    commit: str
    writer: str
    time: str
    operation: str
    row_groups: tuple[int, ...]
    schema: bytes
    fields: Mapping[str, tuple[str, ...]]
    next_column: int
    # Whether this version and all it names were flushed.
    durable: bool
    properties: Mapping[str, Json]
    attributes: Mapping[str, Json]
    pandas: Mapping[str, Json] | None = None
    # What callers named their commits, with the version each made.
    commit_ids: tuple[tuple[str, int], ...] = ()
    # When the versions that were still there were made.
    history: tuple[tuple[str, int], ...] = ()
    requires: tuple[str, ...] = ()
    columns: ColumnIndex = field(default_factory=ColumnIndex)

    @property
    def rows(self) -> int:
        """The rows of the table."""
        return sum(self.row_groups)


def encode(head: Head, lines: Sequence[bytes]) -> bytes:
    """The manifest file; the places of `lines` in `head.columns` are computed here."""
    columns = head.columns
    assert len(lines) == len(columns.paths)
    lengths = [len(line) for line in lines]
    text = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **{name: getattr(head, name) for name in HEAD_FIELDS},
        "rows": head.rows,
        "schema": base64.b64encode(head.schema).decode("ascii"),
        "columns": {
            "path": list(map(_spelled, columns.paths)),
            "next_k": list(columns.next_k),
            "nbytes": list(columns.nbytes),
            "cbytes": list(columns.cbytes),
            "offset": _places(lengths),
            "length": lengths,
            "sha256": base64.b64encode(
                b"".join(hashlib.sha256(line).digest() for line in lines)
            ).decode("ascii"),
        },
    }
    first = jsontext.dumps(text)
    sha = hashlib.sha256(first).hexdigest().encode("ascii")
    return b"\n".join([first, sha, *lines, b""])


def head_length(prefix: bytes) -> int | None:
    """Bytes of the head and its sha256, None while `prefix` does not hold the head's end."""
    end = prefix.find(b"\n")
    return end + 1 + SHA_BYTES if end >= 0 else None


def decode_head(data: bytes) -> Head:
    """Read head and sha256, the first `head_length` bytes of a manifest.

    Offsets of the columns' lines come out as positions in the file.
    """
    first, newline, rest = data.partition(b"\n")
    if not newline or len(rest) != SHA_BYTES or rest[-1:] != b"\n":
        raise CorruptError("a manifest that ends within its head")
    if hashlib.sha256(first).hexdigest().encode("ascii") != rest[:-1]:
        raise CorruptError("the head of a manifest does not have the sha256 that follows it")
    text = jsontext.loads(first, "the head of a manifest")
    if not isinstance(text, dict) or text.get("format") != FORMAT:
        raise FormatError("a manifest that is not blztable's")
    if type(text.get("format_version")) is not int or text["format_version"] != FORMAT_VERSION:
        raise FormatError(
            f"a manifest of format version {text.get('format_version')!r}; "
            f"{FORMAT_VERSION} is read: a newer blztable wrote it"
        )
    for name, kind in HEAD_FIELDS.items():
        value = text.get(name)
        if name not in text or not isinstance(value, kind):
            raise CorruptError(f"the head of a manifest: {name!r} is missing or of another type")
        if kind is int:
            jsontext.number(value, f"the head of a manifest: {name}")
    features = text["requires"]
    if not isinstance(features, list) or not KNOWN_FEATURES.issuperset(map(str, features)):
        raise FormatError(f"a table that needs {features!r:.200}: a newer blztable wrote it")
    values: dict[str, object] = {name: text[name] for name in HEAD_FIELDS}
    values["row_groups"] = groups = jsontext.numbers(text["row_groups"], "row groups")
    rows = jsontext.number(text.get("rows"), "rows")
    if 0 in groups or sum(groups) != rows:
        raise CorruptError("the head of a manifest: row groups that do not add up to its rows")
    values["fields"] = _fields(text["fields"])
    values["commit_ids"] = _pairs(text["commit_ids"])
    values["history"] = history = _pairs(text["history"])
    values["requires"] = ()
    times = [text["time"], *(pair[0] for pair in history)]
    if not all(TIME.fullmatch(str(time)) for time in times):
        raise CorruptError("the head of a manifest: a time that is not of the form it has")
    values["schema"] = _base64(text.get("schema"))
    values["columns"] = _columns(text.get("columns"), len(data))
    return Head(**values)  # type: ignore[arg-type]


def check_line(line: bytes, head: Head, index: int) -> None:
    """CorruptError unless the line of column `index` has the sha256 that the head gives it."""
    if hashlib.sha256(line).digest() != head.columns.digest(index):
        path = head.columns.paths[index]
        raise CorruptError(f"the manifest's line of column {path} does not have its sha256")


def decode_column(line: bytes, head: Head, index: int) -> ColumnParts:
    """Read the line of column `index`, its sha256 compared first."""
    path = head.columns.paths[index]
    check_line(line, head, index)
    return ColumnParts.decode(line, path, len(head.row_groups))


def file_numbers(line: bytes, head: Head, index: int) -> set[int]:
    """The files that a line names which has its sha256, read without all that follows them."""
    match = _LINE_START.match(line)
    if match:
        numbers: Iterable[int] = map(int, match[1].split(b","))
    else:
        numbers = ColumnParts.decode(line, head.columns.paths[index], len(head.row_groups)).k
    return set(numbers) - {NO_FILE}


def _places(lengths: Sequence[int], first: int = 0) -> tuple[int, ...]:
    """Where each line begins: right behind the one before and its line feed."""
    return tuple(map(add, accumulate(lengths, initial=first), range(len(lengths))))


def _columns(value: Json, head_end: int) -> ColumnIndex:
    if not isinstance(value, dict):
        raise CorruptError("the head of a manifest: no columns")
    listed = value.get("path")
    if not isinstance(listed, list):
        raise CorruptError("the head of a manifest: columns without paths")
    count = len(listed)
    next_k, nbytes, cbytes, places, lengths = (
        jsontext.numbers(value.get(name), "columns", count)
        for name in ("next_k", "nbytes", "cbytes", "offset", "length")
    )
    digests = _base64(value.get("sha256"))
    if max(lengths, default=0) > jsontext.MAX_BYTES:
        raise LimitError(f"a manifest line of {max(lengths)} bytes; {jsontext.MAX_BYTES} are read")
    if len(digests) != 32 * count or places != _places(lengths):
        raise CorruptError("the head of a manifest: columns whose lines do not follow each other")
    paths = _paths(listed)
    if len(set(paths)) != count:
        raise CorruptError("the head of a manifest: one column twice")
    offsets = _places(lengths, head_end)
    return ColumnIndex(paths, next_k, nbytes, cbytes, offsets, lengths, digests)


def _spelled(path: Path) -> Json:
    """A path as JSON has it: that of one id is the number, for a wide table has very many."""
    return path[0] if len(path) == 1 else list(path)


def _paths(values: list[Json]) -> tuple[Path, ...]:
    if set(map(type, values)) == {int}:
        return tuple(zip(jsontext.numbers(values, "a column's path"), strict=True))
    return tuple(map(_path, values))


def _path(value: Json) -> Path:
    if not isinstance(value, list):
        return (jsontext.number(value, "a column's path"),)
    if not 1 < len(value) <= jsontext.MAX_DEPTH:
        raise CorruptError("the head of a manifest: a column without a path")
    return jsontext.numbers(value, "a column's path")


def _fields(value: Json) -> dict[str, tuple[str, ...]]:
    names, types = (value.get("name"), value.get("type")) if isinstance(value, dict) else ((), ())
    if (
        not isinstance(names, list)
        or not isinstance(types, list)
        or len(names) != len(types)
        or set(map(type, names + types)) - {str}
    ):
        raise CorruptError("the head of a manifest: fields without names or types")
    return {"name": tuple(names), "type": tuple(types)}  # type: ignore[arg-type]


def _pairs(value: Json) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, list) or any(
        not isinstance(pair, list)
        or len(pair) != 2
        or not isinstance(pair[0], str)
        or type(pair[1]) is not int
        for pair in value
    ):
        raise CorruptError("the head of a manifest: a list of pairs holds something else")
    return tuple((pair[0], pair[1]) for pair in value)  # type: ignore[index,misc]


def _base64(value: Json) -> bytes:
    try:
        return base64.b64decode(value, validate=True)  # type: ignore[arg-type]
    except (binascii.Error, TypeError, ValueError):
        raise CorruptError("the head of a manifest: base64 is expected") from None
