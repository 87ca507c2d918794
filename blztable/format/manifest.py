"""The manifest: the immutable document of one version, in lines of text.

Line 1 is the head, line 2 its sha256, and then each column has one line. The head has the offset
and the sha256 of every line. So opening a table parses only the head, and reading a column parses
only its line. Knows nothing of the meaning of a schema, and opens no file.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add

from blztable.errors import CorruptError, FormatError, LimitError
from blztable.format import deletions, jsontext, metalayers
from blztable.format.bundle import Bundles, bundles_of_groups, bundles_to_json
from blztable.format.deletions import Deleted
from blztable.format.jsontext import Json
from blztable.format.layout import Path
from blztable.format.line import FLAGS, ColumnParts, path_to_json
from blztable.format.metalayers import Layers

FORMAT = "blztable"
FORMAT_VERSION = 1
TAG_LENGTH = 255  # characters of the name of a tag
SHA_BYTES = 65  # 64 hexadecimal digits and a line feed

# Keys of the head that are stored unchanged, in the order of the file, with their types.
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

# Optional keys of the head, each with its type and its default.
OPTIONAL_FIELDS: dict[str, tuple[type, Json]] = {
    "lasting": (int, 0),
    "bundles": (dict, {}),
    "next_bundle": (int, 1),
    "metalayers": (dict, {}),
    "changed": (list, []),
    "tags": (dict, {}),
    "deleted": (dict, {}),
}

# The bundle of each row group, None for none.

# Features beyond this version of the format that this program supports.
BUNDLES = "bundles"
NESTED = "nested"
DELETIONS = "deletions"
TAGS = "tags"
KNOWN_FEATURES = frozenset({BUNDLES, DELETIONS, NESTED, TAGS, *FLAGS})
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", re.ASCII)


@dataclass(frozen=True, slots=True)
class ColumnIndex:
    """The columns in the head, one entry each: facts that need no line of a column."""

    paths: tuple[Path, ...] = ()
    next_k: tuple[int, ...] = ()
    nbytes: tuple[int, ...] = ()
    cbytes: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    digests: bytes = b""

    def digest(self, index: int) -> bytes:
        """Return the sha256 of the line of column `index`."""
        return self.digests[32 * index : 32 * index + 32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of a manifest: everything but the lines of the columns.

    A new table leaves the fields of the commit at their defaults.
    """

    version: int = 0
    uuid: str = ""
    parent: int = 0
    commit: str = ""
    writer: str = ""
    time: str = ""
    operation: str = ""
    # The live rows of each row group.
    row_groups: tuple[int, ...]
    schema: bytes
    fields: Mapping[str, tuple[str, ...]]
    next_column: int = 0
    # True if this version and all its files were flushed.
    durable: bool = False
    properties: Mapping[str, Json] = field(default_factory=dict)
    attributes: Mapping[str, Json]
    pandas: Mapping[str, Json] | None = None
    # The commit ids of callers, each with the version that the commit made.
    commit_ids: tuple[tuple[str, int], ...] = ()
    # Creation times of the older versions that still existed.
    history: tuple[tuple[str, int], ...] = ()
    # Newest flushed version before this one; 0 if there is none, or if this one was flushed.
    lasting: int = 0
    # The bundle of each row group, None for none; empty if no row group has one.
    bundles: Bundles = ()
    # The number of the next bundle.
    next_bundle: int = 1
    # Metalayers of the table and its columns.
    metalayers: Layers = field(default_factory=dict)
    # For each row group, the newest version whose commit put rows there and was no blind append; 0
    # for blind appends only. Empty if it is this version for all of them.
    changed: tuple[int, ...] = ()
    # Older versions that are kept, by name.
    tags: Mapping[str, int] = field(default_factory=dict)
    # What the lines may claim of parts.
    flags: frozenset[str] = frozenset()
    # The deleted rows of each row group; empty if there are none.
    deleted: Deleted = ()
    columns: ColumnIndex = ColumnIndex()

    @property
    def paths(self) -> tuple[Path, ...]:
        """The path of each node, in pre-order."""
        return self.columns.paths

    @property
    def rows(self) -> int:
        """Number of rows of the table."""
        return sum(self.row_groups)

    @property
    def deleted_rows(self) -> int:
        """Number of rows that parts hold, and that are no rows of the table."""
        return sum(map(deletions.count, self.deleted))

    @property
    def stored_rows(self) -> tuple[int, ...]:
        """Number of rows that the parts of each row group hold: the live and the deleted ones."""
        if not self.deleted:
            return self.row_groups
        return tuple(map(add, self.row_groups, map(deletions.count, self.deleted)))

    @property
    def all_deleted(self) -> Deleted:
        """`deleted` of each row group, also where it is left out."""
        return self.deleted or (b"",) * len(self.row_groups)

    @property
    def all_changed(self) -> tuple[int, ...]:
        """`changed` of each row group, also where it is left out."""
        return self.changed or (self.version,) * len(self.row_groups)

    @property
    def requires(self) -> tuple[str, ...]:
        """The features that a program must know to read this version."""
        has = {
            BUNDLES: bool(self.bundles),
            DELETIONS: bool(self.deleted),
            NESTED: max(map(len, self.columns.paths), default=1) > 1,
            TAGS: bool(self.tags),
            **{name: name in self.flags for name in FLAGS},
        }
        return tuple(sorted(name for name, is_used in has.items() if is_used))

    @property
    def bundle_numbers(self) -> frozenset[int]:
        """The numbers of the bundles that this version names."""
        return frozenset(bundle.k for bundle in self.bundles if bundle)


def encode(head: Head, lines: Sequence[bytes]) -> bytes:
    """Return the bytes of the manifest; the offsets in `head.columns` are computed from `lines`."""
    columns = head.columns
    assert len(lines) == len(columns.paths)
    lengths = [len(line) for line in lines]
    text = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **{name: getattr(head, name) for name in HEAD_FIELDS},
        **{
            name: getattr(head, name)
            for name, (_, absent) in OPTIONAL_FIELDS.items()
            if getattr(head, name) not in (absent, ())
        },
        **({"bundles": bundles_to_json(head.bundles)} if head.bundles else {}),
        **({"metalayers": metalayers.to_json(head.metalayers)} if head.metalayers else {}),
        **({"deleted": deletions.to_json(head.deleted)} if head.deleted else {}),
        "rows": head.rows,
        "schema": base64.b64encode(head.schema).decode("ascii"),
        "columns": {
            "path": list(map(path_to_json, columns.paths)),
            "next_k": list(columns.next_k),
            "nbytes": list(columns.nbytes),
            "cbytes": list(columns.cbytes),
            "offset": _offsets(lengths),
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
    """Number of bytes of the head and its sha256; None if `prefix` does not contain its end."""
    end = prefix.find(b"\n")
    return end + 1 + SHA_BYTES if end >= 0 else None


def decode_head(data: bytes) -> Head:
    """Read the head and its sha256, the first `head_length` bytes of a manifest.

    The offsets of the lines in the result count from the start of the file.
    """
    first, newline, rest = data.partition(b"\n")
    if not newline or len(rest) != SHA_BYTES or rest[-1:] != b"\n":
        raise CorruptError("the manifest ends within its head")
    if hashlib.sha256(first).hexdigest().encode("ascii") != rest[:-1]:
        raise CorruptError("the head of a manifest does not have the sha256 that follows it")
    text = jsontext.loads(first, "the head of a manifest")
    if not isinstance(text, dict) or text.get("format") != FORMAT:
        raise FormatError("not a manifest of blztable")
    if type(text.get("format_version")) is not int or text["format_version"] != FORMAT_VERSION:
        raise FormatError(
            f"a manifest of format version {text.get('format_version')!r}; expected "
            f"{FORMAT_VERSION}: a newer blztable wrote it; upgrade blztable"
        )
    for name, (_, absent) in OPTIONAL_FIELDS.items():
        text.setdefault(name, absent)
    kinds = HEAD_FIELDS | {name: kind for name, (kind, _) in OPTIONAL_FIELDS.items()}
    for name, kind in kinds.items():
        value = text.get(name)
        if name not in text or not isinstance(value, kind):
            raise CorruptError(
                f"the head of a manifest: the key {name!r} is missing or has the wrong type"
            )
        if kind is int:
            jsontext.number(value, f"the head of a manifest: {name}")
    features = text["requires"]
    if not isinstance(features, list) or not KNOWN_FEATURES.issuperset(map(str, features)):
        raise FormatError(
            f"the table requires {features!r:.200}: a newer blztable wrote it; upgrade blztable"
        )
    values: dict[str, object] = {name: text[name] for name in kinds if name != "requires"}
    values["row_groups"] = groups = jsontext.numbers(text["row_groups"], "row groups")
    rows = jsontext.number(text.get("rows"), "rows")
    if 0 in groups or sum(groups) != rows:
        raise CorruptError("the head of a manifest: row groups that do not add up to its rows")
    values["fields"] = _fields(text["fields"])
    values["commit_ids"] = _pairs(text["commit_ids"])
    values["history"] = history = _pairs(text["history"])
    values["changed"] = changed = jsontext.numbers(text["changed"], "changed")
    if changed and (len(changed) != len(groups) or max(changed) > text["version"]):  # type: ignore[operator]
        raise CorruptError("the head of a manifest: 'changed' is not a version of each row group")
    values["bundles"] = bundles_of_groups(text["bundles"], len(groups))
    values["deleted"] = deletions.from_json(text["deleted"], groups)
    check_tags(text["tags"], text["version"])  # type: ignore[arg-type]
    values["flags"] = frozenset(FLAGS).intersection(map(str, features))
    if values["next_bundle"] == 0:
        raise CorruptError("the head of a manifest: the next bundle has number 0")
    times = [text["time"], *(pair[0] for pair in history)]
    if not all(TIME.fullmatch(str(time)) for time in times):
        raise CorruptError(
            "the head of a manifest: a time is not of the form 2026-11-22T09:30:00.000000+00:00"
        )
    values["schema"] = _base64(text.get("schema"))
    values["columns"] = columns = _columns(text.get("columns"), len(data))
    ids = {str(path[0]) for path in columns.paths} if text["metalayers"] else ()
    values["metalayers"] = metalayers.from_json(text["metalayers"], ids)
    head = Head(**values)  # type: ignore[arg-type]
    for name in {*head.requires}.difference(map(str, features)):
        raise CorruptError(f"the head of a manifest: it has {name}, but 'requires' lacks {name!r}")
    return head


def check_line(line: bytes, head: Head, index: int) -> None:
    """CorruptError unless the line of column `index` has the sha256 in the head."""
    if hashlib.sha256(line).digest() != head.columns.digest(index):
        path = head.columns.paths[index]
        raise CorruptError(f"the manifest's line of column {path} does not have its sha256")


def decode_column(line: bytes, head: Head, index: int) -> ColumnParts:
    """Read the line of column `index`, after comparing its sha256."""
    path = head.columns.paths[index]
    check_line(line, head, index)
    parts = ColumnParts.decode(line, path, len(head.row_groups))
    for name in parts.flags.keys() - head.flags:
        raise CorruptError(f"the manifest's line of column {path}: 'requires' lacks {name!r}")
    return parts


def _offsets(lengths: Sequence[int], first: int = 0) -> tuple[int, ...]:
    """Return the offset of each line: behind the line feed of the line before it."""
    return tuple(map(add, accumulate(lengths, initial=first), range(len(lengths))))


def _columns(value: Json, head_end: int) -> ColumnIndex:
    if not isinstance(value, dict):
        raise CorruptError("the head of a manifest: 'columns' is not an object")
    listed = value.get("path")
    if not isinstance(listed, list):
        raise CorruptError("the head of a manifest: 'path' of the columns is not an array")
    count = len(listed)
    next_k, nbytes, cbytes, offsets, lengths = (
        jsontext.numbers(value.get(name), "columns", count)
        for name in ("next_k", "nbytes", "cbytes", "offset", "length")
    )
    if 0 in next_k:
        raise CorruptError(
            "the head of a manifest: the next file of a column has number 0; expected at least 1"
        )
    digests = _base64(value.get("sha256"))
    if max(lengths, default=0) > jsontext.MAX_BYTES:
        raise LimitError(
            f"a manifest line of {max(lengths)} bytes; at most {jsontext.MAX_BYTES} are read"
        )
    if len(digests) != 32 * count or offsets != _offsets(lengths):
        raise CorruptError(
            "the head of a manifest: the lines of the columns do not follow each other"
        )
    paths = _paths(listed)
    if len(set(paths)) != count:
        raise CorruptError("the head of a manifest lists one column twice")
    return ColumnIndex(paths, next_k, nbytes, cbytes, _offsets(lengths, head_end), lengths, digests)


def _paths(values: list[Json]) -> tuple[Path, ...]:
    if set(map(type, values)) == {int}:
        return tuple(zip(jsontext.numbers(values, "a column's path"), strict=True))
    return tuple(map(_path, values))


def _path(value: Json) -> Path:
    if not isinstance(value, list):
        return (jsontext.number(value, "a column's path"),)
    if not 1 < len(value) <= jsontext.MAX_DEPTH:
        raise CorruptError("the head of a manifest: a column has no valid path")
    return jsontext.numbers(value, "a column's path")


def _fields(value: Json) -> dict[str, tuple[str, ...]]:
    names, types = (value.get("name"), value.get("type")) if isinstance(value, dict) else ((), ())
    if (
        not isinstance(names, list)
        or not isinstance(types, list)
        or len(names) != len(types)
        or set(map(type, names + types)) - {str}
    ):
        raise CorruptError(
            "the head of a manifest: 'fields' is not two arrays of text, 'name' and 'type'"
        )
    return {"name": tuple(names), "type": tuple(types)}  # type: ignore[arg-type]


def _pairs(value: Json) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, list) or any(
        not isinstance(pair, list)
        or len(pair) != 2
        or not isinstance(pair[0], str)
        or type(pair[1]) is not int
        or not 0 <= pair[1] <= jsontext.MAX_NUMBER
        for pair in value
    ):
        raise CorruptError(
            "the head of a manifest: expected a list of pairs of a text and a whole number"
        )
    return tuple((pair[0], pair[1]) for pair in value)  # type: ignore[index,misc]


def _base64(value: Json) -> bytes:
    try:
        return base64.b64decode(value, validate=True)  # type: ignore[arg-type]
    except (binascii.Error, TypeError, ValueError):
        raise CorruptError("the head of a manifest: expected base64") from None


def is_tag(name: object) -> bool:
    """True if a tag may have this name: 1 to 255 printable characters, not all of them digits."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= TAG_LENGTH
        and name.isprintable()
        and not name.isdecimal()
    )


def check_tags(tags: Mapping[str, Json], version: int) -> None:
    """CorruptError unless each tag in the head of a version names one before it."""
    for name, number in tags.items():
        if not is_tag(name) or not 0 < jsontext.number(number, "the version of a tag") < version:
            raise CorruptError("the head of a manifest: a tag does not name an older version")
