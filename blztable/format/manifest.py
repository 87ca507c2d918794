"""The head of a version: one JSON object with what people read, and rare facts.

It has no array with an entry for each row group. The Arrow schema is beside it, so the ids of the
nodes become paths with the help of their depths. Knows nothing of types, leaves and files.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np

from blztable.errors import CorruptError, FormatError
from blztable.format import jsontext, metalayers
from blztable.format.jsontext import Json
from blztable.format.layout import MAX_ID, MAX_VERSION, Path
from blztable.format.metalayers import Layers
from blztable.format.records import CONSTANT, DICTIONARY, NUMBERS, PER_ITEM, Records

FORMAT = "blztable"
TAG_LENGTH = 255  # characters of the name of a tag

# What a program must know to read a version, beside plain columns of flat types.
NESTED = "nested"
DELETIONS = "deletions"
TAGS = "tags"
# Locks exclude nobody where the table lies, so a writer must not rely on them.
UNLOCKED = "unlocked"
# The property of a table that requires it, and its value.
LOCKS = "locks"
NO_LOCKS: Final = "none"
ENCODINGS = {
    NUMBERS: "numbers",
    DICTIONARY: "dictionary",
    CONSTANT: "constant",
    PER_ITEM: "item_chunks",
}
KNOWN_FEATURES = frozenset({NESTED, DELETIONS, TAGS, UNLOCKED, *ENCODINGS.values()})
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", re.ASCII)

# The keys of the file, in their order, with their types.
_TYPES: dict[str, type | tuple[type, ...]] = {
    "version": int,
    "uuid": str,
    "parent": int,
    "commit": str,
    "writer": str,
    "time": str,
    "operation": str,
    "did": dict,
    "durable": bool,
    "lasting": int,
    "changed": int,
    "rows": int,
    "ids": list,
    "next_column": int,
    "next_file": int,
    "properties": dict,
    "attributes": dict,
    "pandas": (dict, type(None)),
    "commit_ids": list,
    "history": list,
    "requires": list,
    "metalayers": dict,
    "tags": dict,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of a version. A new table leaves the fields of the commit at their defaults."""

    version: int = 0
    uuid: str = ""
    parent: int = 0
    commit: str = ""
    writer: str = ""
    time: str = ""
    operation: str = ""
    # What the commit did: rows that it appended, updated and deleted, and its seconds.
    did: Mapping[str, Any] = field(default_factory=dict)
    # True if this version and all its files were flushed.
    durable: bool = False
    # Newest flushed version before this one; 0 if there is none, or if this one was flushed.
    lasting: int = 0
    # The rows of every row group count as changed by this version, or by a later one.
    changed: int = 0
    rows: int = 0
    # The path of each node, in pre-order.
    paths: tuple[Path, ...] = ()
    # The numbers that the next column and the next file get.
    next_column: int = 0
    next_file: int = 1
    properties: Mapping[str, Json] = field(default_factory=dict)
    attributes: Mapping[str, Json] = field(default_factory=dict)
    pandas: Mapping[str, Json] | None = None
    # The commit ids of callers, each with the version that the commit made.
    commit_ids: tuple[tuple[str, int], ...] = ()
    # Creation times of the older versions that still existed.
    history: tuple[tuple[str, int], ...] = ()
    # What a program must know to read this version.
    requires: frozenset[str] = frozenset()
    # Metalayers of the table and its columns.
    metalayers: Layers = field(default_factory=dict)
    # Older versions that are kept, by name.
    tags: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """Return the JSON object of the file."""
        document: dict[str, Any] = {name: getattr(self, name, None) for name in _TYPES}
        document["ids"] = [path[-1] for path in self.paths]
        document["requires"] = sorted(self.requires)
        document["metalayers"] = metalayers.to_json(self.metalayers)
        return {"format": FORMAT, **document}

    @classmethod
    def from_json(cls, text: Mapping[str, Json], depths: Sequence[int]) -> Self:
        """Read the object of a file, given the depth of each node below its column, in pre-order.

        Raises
        ------
        FormatError
            Another program wrote it, or a newer blztable.
        CorruptError
            A key is missing, or has no value that a writer would put there.
        """
        if text.get("format") != FORMAT:
            raise FormatError("not a version of blztable")
        features = text.get("requires")
        if not isinstance(features, list) or not KNOWN_FEATURES.issuperset(map(str, features)):
            raise FormatError(
                f"the table requires {features!r:.200}: a newer blztable wrote it; upgrade blztable"
            )
        values: dict[str, Any] = {}
        for name, kind in _TYPES.items():
            value = text.get(name)
            if name not in text or not isinstance(value, kind):
                raise CorruptError(f"the head: the key {name!r} is missing or has the wrong type")
            if kind is int:
                jsontext.number(value, f"the head: {name}")
            values[name] = value
        number = values["version"]
        if not 0 < number <= MAX_VERSION or max(values["parent"], values["lasting"]) >= number:
            raise CorruptError(f"the head: version {number} comes after a later one")
        if values["changed"] > number:
            raise CorruptError(f"the head: rows changed by a later version than {number}")
        values["did"] = _did(values["did"])
        values["commit_ids"] = _pairs(values["commit_ids"])
        values["history"] = history = _pairs(values["history"])
        times = [values["time"], *(pair[0] for pair in history)]
        if not all(map(TIME.fullmatch, times)):
            raise CorruptError(
                "the head: a time is not of the form 2026-11-22T09:30:00.000000+00:00"
            )
        check_tags(values["tags"], number)
        ids = jsontext.numbers(values.pop("ids"), "the head: ids", len(depths))
        if max(ids, default=-1) >= values["next_column"] or values["next_column"] > MAX_ID + 1:
            raise CorruptError("the head: the id of a node is not below the next one")
        if not 0 < values["next_file"] <= MAX_ID + 1:
            raise CorruptError("the head: the next file has no number")
        values["paths"] = paths = paths_of(ids, depths)
        # A child and a column may have one number: they lie in different directories.
        if len(set(paths)) != len(paths):
            raise CorruptError("the head: two nodes have one path")
        owners = {str(path[0]) for path in paths} if values["metalayers"] else ()
        values["metalayers"] = metalayers.from_json(values["metalayers"], owners)
        values["requires"] = frozenset(map(str, features))
        head = cls(**values)
        missing = head.used(has_deleted=False) - head.requires
        if missing:
            raise CorruptError(f"the head: 'requires' lacks {sorted(missing)!r}")
        return head

    def used(self, *, has_deleted: bool) -> frozenset[str]:
        """Return the features that a version with this head uses, other than encodings."""
        has = {
            NESTED: max(map(len, self.paths), default=1) > 1,
            TAGS: bool(self.tags),
            DELETIONS: has_deleted,
            UNLOCKED: self.properties.get(LOCKS) == NO_LOCKS,
        }
        return frozenset(name for name, is_used in has.items() if is_used)


def encodings_of(records: Records) -> frozenset[str]:
    """Return the names of the encodings of these records, without plain values."""
    kinds = np.flatnonzero(np.bincount(records.streams["kind"], minlength=1)).tolist()
    return frozenset(ENCODINGS[kind] for kind in kinds if kind in ENCODINGS)


def paths_of(ids: Sequence[int], depths: Sequence[int]) -> tuple[Path, ...]:
    """Return the path of each node, given its id and its depth."""
    if not any(depths):
        return tuple(zip(ids, strict=True))
    paths: list[Path] = []
    above: Path = ()
    for number, depth in zip(ids, depths, strict=True):
        above = (*above[:depth], number)
        paths.append(above)
    return tuple(paths)


def _did(value: dict[str, Json]) -> dict[str, Json]:
    for name, number in value.items():
        # Rows are counted; seconds may be a fraction.
        is_number = type(number) is int or (type(number) is float and name == "seconds")
        if not is_number or not 0 <= number <= jsontext.MAX_NUMBER:  # type: ignore[operator]
            raise CorruptError(f"the head: {name!r:.50} of 'did' is not a number from 0")
    return value


def _pairs(value: list[Json]) -> tuple[tuple[str, int], ...]:
    if any(
        not isinstance(pair, list)
        or len(pair) != 2
        or not isinstance(pair[0], str)
        or type(pair[1]) is not int
        or not 0 <= pair[1] <= jsontext.MAX_NUMBER
        for pair in value
    ):
        raise CorruptError("the head: expected a list of pairs of a text and a whole number")
    return tuple((pair[0], pair[1]) for pair in value)  # type: ignore[index,misc]


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
            raise CorruptError("the head: a tag does not name an older version")
