"""A column's line of the manifest: the address, the metadata and the statistics of each part.

A part has a file of its own, with the number `k`, or lies in the bundle of its row group, where
`at` is the number of its first entry. The bundles are in the head.

Statistics are those of a zone: nulls, NaNs, and bounds of the values. A zone is a page (in
the zone map of a trailer) or a row group (in a line). A bound is the little-endian bytes of a
value; for text and binary it may be a prefix. `columns` decides which bytes are a bound.

To decode or to encode a line takes longer than to read or to write the few kilobytes of a column in
a bundle. In a wide table many lines differ in few numbers. A line that has the text of another one,
except for its path, its places and its statistics, is read without a second look at the rest
(`LinePattern`), and written without making the rest again (`LineTemplate`).

Knows neither the head of the manifest nor Arrow types.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np

from blztable.block_terms import PER_ITEM, VALID
from blztable.errors import CorruptError
from blztable.format import jsontext, layout
from blztable.format.bundle import BundleMeta
from blztable.format.jsontext import Json
from blztable.format.layout import Path
from blztable.format.metadata import check_page_rows
from blztable.format.superchunk import PartMeta

# Name of the metalayer with the zone map.
PAGES_LAYER = "pages"
MAX_BOUND_BYTES = 64
_NO_BOUND = 255
NO_FILE = 0
# What a line may claim of each part, by an array of 0 and 1. A table with such a claim requires it.
NAN_IS_NULL = "nan_is_null"
FLAGS = (NAN_IS_NULL, PER_ITEM)
# The arrays of a line begin behind its path, which may be an array too.
_FIRST_ARRAY = b'"k":['
# The beginning of a line, up to the numbers of its files.
_LINE_START = re.compile(rb'\{"path":[0-9,\[\]]+,"k":\[((?:[0-9]{1,18},)*[0-9]{1,18})\]')
_PAGE_ROWS = re.compile(rb'"page_rows":\[(?:[0-9]{1,18},)*([0-9]{1,18})\]')
# Returns the metadata of a part, or the arrays of metadata of several parts, as a tuple.
_META = attrgetter(*PartMeta.__slots__)
# The numbers and bounds of a line as it is written, and what `_line_of` finds in one.
_PLACE = rb"[1-9][0-9]{0,17}"
_SIZE = rb"(?:0|[1-9][0-9]{0,17})"
_COUNT = rb"(?:null|0|[1-9][0-9]{0,17})"
_BOUND = rb'(?:null|"[A-Za-z0-9+/]*={0,2}")'
_AT, _ROWS, _STREAMS = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Statistics:
    """One entry per zone; an unknown bound is None. NaNs are counted but are never bounds."""

    nulls: tuple[int, ...]
    nans: tuple[int, ...]
    lowest: tuple[bytes | None, ...]
    highest: tuple[bytes | None, ...]

    KEYS: ClassVar = ("nulls", "nans", "min", "max")

    def __len__(self) -> int:
        """Number of zones."""
        return len(self.nulls)

    @classmethod
    def joined(cls, parts: Sequence["Statistics"]) -> Self:
        """Return the statistics of all parts in one, part after part."""
        if len(parts) == 1:  # The columns of a wide table.
            return cls(parts[0].nulls, parts[0].nans, parts[0].lowest, parts[0].highest)
        return cls(
            *(
                tuple(chain.from_iterable(getattr(part, name) for part in parts))
                for name in cls.__slots__
            )
        )

    def without_bounds(self) -> "Statistics":
        """Return the counts alone."""
        unknown = (None,) * len(self)
        return Statistics(self.nulls, self.nans, unknown, unknown)

    def of_zone(self, index: int) -> "Statistics":
        """Return the statistics of one zone."""
        return Statistics(*((getattr(self, name)[index],) for name in self.__slots__))

    def encode(self) -> bytes:
        """Return the zone map: counts, lengths of the bounds, bounds."""
        lengths = [
            bytes(_NO_BOUND if bound is None else len(bound) for bound in bounds)
            for bounds in (self.lowest, self.highest)
        ]
        known = [bound for bound in self.lowest + self.highest if bound is not None]
        counts = np.array([self.nulls, self.nans], "<u4").tobytes()
        return b"".join([counts, *lengths, *known])

    @classmethod
    def decode(cls, data: bytes, zones: int) -> Self:
        """Read a zone map of `zones` pages."""
        head = 10 * zones
        if len(data) < head:
            raise CorruptError(
                f"a zone map has {len(data)} bytes for {zones} pages; expected at least {head}"
            )
        nulls, nans = np.frombuffer(data, "<u4", 2 * zones).reshape(2, zones).tolist()
        bounds: list[bytes | None] = []
        position = head
        for length in data[8 * zones : head]:
            if length == _NO_BOUND:
                bounds.append(None)
                continue
            if length > MAX_BOUND_BYTES:
                raise CorruptError(
                    f"a zone map has a bound of {length} bytes; at most {MAX_BOUND_BYTES} are read"
                )
            bounds.append(data[position : position + length])
            position += length
        if position != len(data):
            raise CorruptError(f"a zone map has {len(data)} bytes; its bounds end at {position}")
        return cls(tuple(nulls), tuple(nans), tuple(bounds[:zones]), tuple(bounds[zones:]))

    def to_json(self) -> dict[str, Json]:
        """Return the four arrays, all of the same length."""
        return {
            "nulls": list(self.nulls),
            "nans": list(self.nans),
            "min": _encode(self.lowest),
            "max": _encode(self.highest),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Json], zones: int) -> Self:
        """Read the four arrays; CorruptError unless each has `zones` entries."""
        lists = cls.lists(value, zones)
        return cls(
            jsontext.numbers(lists["nulls"], "nulls", zones),
            jsontext.numbers(lists["nans"], "nans", zones),
            _decode(lists["min"]),
            _decode(lists["max"]),
        )

    @classmethod
    def lists(cls, value: Mapping[str, Json], zones: int) -> dict[str, list[Json]]:
        """Return the four arrays unparsed; CorruptError unless each has `zones` entries."""
        arrays = {}
        for name in cls.KEYS:
            entries = value.get(name)
            if not isinstance(entries, list) or len(entries) != zones:
                raise CorruptError(f"statistics: {name!r} is not an array of {zones} entries")
            arrays[name] = entries
        return arrays


def _encode(bounds: Sequence[bytes | None]) -> list[Json]:
    return [None if bound is None else base64.b64encode(bound).decode("ascii") for bound in bounds]


def _decode(values: list[Json]) -> tuple[bytes | None, ...]:
    decode = binascii.a2b_base64
    try:
        bounds = [
            None if value is None else decode(value, strict_mode=True)  # type: ignore[arg-type]
            for value in values
        ]
    except (binascii.Error, TypeError, ValueError):
        raise CorruptError("statistics: a bound is not valid base64") from None
    if max(map(len, filter(None, bounds)), default=0) > MAX_BOUND_BYTES:
        raise CorruptError(f"statistics: a bound has more than {MAX_BOUND_BYTES} bytes")
    return tuple(bounds)


@dataclass(frozen=True, slots=True)
class PartMetaArrays:
    """The metadata of a column's parts as arrays; an object for each part would cost too much."""

    rows: tuple[int, ...]
    page_rows: tuple[int, ...]
    cbytes: tuple[int, ...]
    front_length: tuple[int, ...]
    trailer_length: tuple[int, ...]
    crc: tuple[int, ...]

    @classmethod
    def of(cls, parts: Sequence[PartMeta]) -> Self:
        """Return the metadata of these parts as arrays."""
        return cls(*zip(*map(_META, parts), strict=True)) if parts else cls(*((),) * 6)

    def __getitem__(self, group: int) -> PartMeta:
        """Return the metadata of the part in this row group."""
        return PartMeta(*[array[group] for array in _META(self)])


@dataclass(frozen=True, slots=True)
class ColumnParts:
    """A column's line: one entry for each row group. A part without a file has `k` = `NO_FILE`."""

    path: Path
    k: tuple[int, ...]
    meta: PartMetaArrays
    streams: Mapping[str, tuple[int, ...]]
    # Statistics as JSON; `statistics` decodes them on demand.
    statistics_json: Mapping[str, Json]
    # The first entry of each part in its bundle, from 1; 0 for a part that is in none. Empty if all
    # are in none.
    at: tuple[int, ...] = ()
    # For each flag that is set for a part: 1 for each such part, and 0 for the others.
    flags: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def statistics(self) -> Statistics:
        """Return the statistics of each row group; raise CorruptError if the line is malformed."""
        return Statistics.from_json(self.statistics_json, len(self.k))

    def flags_of(self, group: int) -> frozenset[str]:
        """Return the flags that are set for the part of a row group."""
        return frozenset(name for name, holds in self.flags.items() if holds[group])

    def unit_rows(self, group: int) -> int:
        """Return the rows that are decoded together: those of a page, one if items are chunks."""
        is_item = PER_ITEM in self.flags and self.flags[PER_ITEM][group]
        return 1 if is_item else max(self.meta.page_rows[group], 1)

    def has_bytes(self, group: int) -> bool:
        """True if the part of a row group is stored, in a file of its own or in a bundle."""
        return self.k[group] != NO_FILE or self.is_bundled(group)

    def is_bundled(self, group: int) -> bool:
        """True if the part of a row group lies in a bundle."""
        return bool(self.at and self.at[group])

    def key(self, group: int, bundles: Sequence[BundleMeta | None]) -> str:
        """Return the key of the file that has the part of a row group; "" if it has no bytes.

        `bundles` are those in the head. Raise CorruptError if the part's row group has none.
        """
        if self.is_bundled(group):
            shared = bundles[group] if bundles else None
            if shared is None:
                raise CorruptError(f"column {self.path}: row group {group} has no bundle")
            return layout.part(layout.SHARED, shared.k)
        k = self.k[group]
        return "" if k == NO_FILE else layout.part(self.path, k)

    @property
    def files(self) -> list[str]:
        """Return the keys of the column's own files, in the order of the row groups."""
        return [layout.part(self.path, k) for k in self.k if k != NO_FILE]

    @property
    def nbytes(self) -> int:
        """Return the uncompressed bytes of all streams."""
        return sum(sum(sizes) for sizes in self.streams.values())

    @property
    def cbytes(self) -> int:
        """Return the bytes of all parts."""
        return sum(self.meta.cbytes)

    def of_group(self, group: int) -> "ColumnParts":
        """Return the part of one row group as a line."""

        def one(entries: Sequence[Any]) -> tuple[Any, ...]:
            return (entries[group],) if entries and entries[group] else ()

        statistics_json = Statistics.lists(self.statistics_json, len(self.k))
        streams = {name: (sizes[group],) for name, sizes in self.streams.items()}
        return ColumnParts(
            self.path,
            (self.k[group],),
            PartMetaArrays.of([self.meta[group]]),
            {n: b for n, b in streams.items() if b[0] or not n.endswith(VALID)},
            {name: [entries[group]] for name, entries in statistics_json.items()},
            one(self.at),
            dict.fromkeys(self.flags_of(group), (1,)),
        )

    def arranged(self, other: "ColumnParts", order: Sequence[int]) -> "ColumnParts":
        """Return the parts at the indices `order` in the parts of this line and then of `other`."""
        before, after = len(self.k), len(other.k)
        is_all = order == range(before + after)  # An append, which must be fast.

        def chosen(mine: Sequence[Any], theirs: Sequence[Any]) -> tuple[Any, ...]:
            both = (*mine, *theirs)
            return both if is_all else tuple(both[index] for index in order)

        mine, theirs = self.meta, other.meta
        statistics_json = (
            Statistics.lists(self.statistics_json, before),
            Statistics.lists(other.statistics_json, after),
        )
        at = chosen(self.at or (0,) * before, other.at or (0,) * after)
        flags = {
            name: chosen(self.flags.get(name, (0,) * before), other.flags.get(name, (0,) * after))
            for name in {**self.flags, **other.flags}
        }
        streams = {
            name: chosen(
                self.streams.get(name, (0,) * before), other.streams.get(name, (0,) * after)
            )
            for name in {**self.streams, **other.streams}
        }
        return ColumnParts(
            self.path,
            chosen(self.k, other.k),
            PartMetaArrays(
                *(chosen(getattr(mine, name), getattr(theirs, name)) for name in mine.__slots__)
            ),
            # Parts that come and go leave the line as it was: it names streams that a part has.
            {n: b for n, b in streams.items() if any(b) or (b and not n.endswith(VALID))},
            {
                name: list(chosen(statistics_json[0][name], statistics_json[1][name]))
                for name in Statistics.KEYS
            },
            at if any(at) else (),
            {name: holds for name, holds in flags.items() if any(holds)},
        )

    def encode(self, like: bytes = b"") -> bytes:
        """Return the line without its line feed, with the optional arrays of the line `like`."""
        none = (0,) * len(self.k)
        flags = {
            name: self.flags.get(name, none)
            for name in FLAGS
            if name in self.flags or (like and b'"%b":[' % name.encode() in like)
        }
        line = {
            "path": path_to_json(self.path),
            "k": self.k,
            **({"at": self.at} if self.at else {}),
            **flags,
            **dict(zip(PartMetaArrays.__slots__, _META(self.meta), strict=True)),
            "streams": self.streams,
            **self.statistics_json,
        }
        return jsontext.dumps(line)

    @classmethod
    def decode(cls, data: bytes, path: Path, groups: int) -> Self:
        """Read the line of the column with this path, in a table with `groups` row groups."""
        context = f"the manifest's line of column {path}"
        line = jsontext.loads(data, context)
        # Paths are compared as text, because in Python 0.0 and False are equal to 0.
        if not isinstance(line, dict) or repr(line.get("path")) != repr(path_to_json(path)):
            raise CorruptError(f"{context}: its path is another one")
        meta = PartMetaArrays(
            *(
                jsontext.numbers(line.get(name), context, groups)
                for name in PartMetaArrays.__slots__
            )
        )
        for page_rows in set(meta.page_rows):
            check_page_rows(page_rows)
        k = jsontext.numbers(line.get("k"), context, groups)
        files = [number for number in k if number != NO_FILE]
        if len(set(files)) != len(files):
            raise CorruptError(f"{context}: two row groups have the same file")
        at = jsontext.numbers(line["at"], context, groups) if "at" in line else ()
        if any(place and number != NO_FILE for place, number in zip(at, k, strict=False)):
            raise CorruptError(f"{context}: a part has a file and lies in a bundle")
        flags = {
            name: jsontext.numbers(line[name], context, groups) for name in FLAGS if name in line
        }
        for name, holds in flags.items():
            if max(holds, default=0) > 1:
                raise CorruptError(f"{context}: {name!r} has a number other than 0 and 1")
        streams = line.get("streams")
        if not isinstance(streams, dict):
            raise CorruptError(f"{context}: 'streams' is not an object")
        return cls(
            path,
            k,
            meta,
            {name: jsontext.numbers(sizes, context, groups) for name, sizes in streams.items()},
            {name: line.get(name) for name in Statistics.KEYS},
            at,
            {name: holds for name, holds in flags.items() if any(holds)},
        )


def appended(line: bytes, other: bytes, groups: int) -> bytes | None:
    """Return the line of `groups` parts with the parts of another line of this column behind them.

    The entries of each array are joined as text. Return None if the lines do not have the same
    arrays in the same order; then both must be decoded.
    """
    start = line.find(_FIRST_ARRAY)
    if start < 0 or not groups or line[:start] != other[:start]:
        return None
    *mine, end = line[start:].split(b"]")
    *theirs, other_end = other[start:].split(b"]")
    if len(mine) != len(theirs) or end != other_end:
        return None
    arrays = []
    for array, new in zip(mine, theirs, strict=True):
        name, bracket, entries = array.rpartition(b"[")
        new_name, _, new_entries = new.rpartition(b"[")
        is_same = bracket and name == new_name
        if not is_same or not new_entries or entries.count(b",") != groups - 1:
            return None
        arrays.append(b"%b[%b,%b]" % (name, entries, new_entries))
    return b"".join([line[:start], *arrays, end])


def file_numbers(line: bytes, path: Path, groups: int) -> set[int]:
    """Return the file numbers of a line with a valid sha256, without decoding all of it."""
    match = _LINE_START.match(line)
    if match:
        numbers: Iterable[int] = map(int, match[1].split(b","))
    else:
        numbers = ColumnParts.decode(line, path, groups).k
    return set(numbers) - {NO_FILE}


def last_page_rows(line: bytes) -> int | None:
    """Return the rows of a page of the last row group, without decoding the line.

    None if the line is spelled as this program does not spell it.
    """
    match = _PAGE_ROWS.search(line)
    return int(match[1]) if match else None


def path_to_json(path: Path) -> Json:
    """Return a path as JSON; a path of one id is a number, which keeps wide tables small."""
    return path[0] if len(path) == 1 else list(path)


@lru_cache(16)
def _line_of(groups: int) -> re.Pattern[bytes]:
    """Return the form of a line as it is written, of so many row groups.

    Its groups are the places, and twice what the lines of a batch have in common. Without an
    escape, no text has a quote, so each name is a key.
    """
    entries = (b"0", _PLACE, _SIZE, _COUNT, _COUNT, _BOUND, _BOUND)
    arrays = (b"%b(?:,%b){%d}" % (entry, entry, groups - 1) for entry in entries)
    return re.compile(
        rb'\{"path":[0-9]+,"k":\[%b\],"at":\[(%b)\],([^\\]*?),"cbytes":\[%b\],([^\\]*?),'
        rb'"nulls":\[%b\],"nans":\[%b\],"min":\[%b\],"max":\[%b\]\}' % tuple(arrays)
    )


class LinePattern:
    """Recognises the lines that are equal to one line but for places and statistics, and whose
    parts all lie in bundles.
    """

    def __init__(self, line: bytes, groups: int) -> None:
        """Take the line of a column of `groups` row groups, which was decoded without an error."""
        self._form = _line_of(groups)
        found = self._form.fullmatch(line)
        self._common = found.group(_ROWS, _STREAMS) if found else None

    def first_entries(self, line: bytes, path: Path) -> list[int] | None:
        """Return the first entry of each part in its bundle; None if the line differs in anything
        else.
        """
        if len(path) != 1 or not line.startswith(b'{"path":%d,' % path):
            return None
        found = self._form.fullmatch(line)
        if not found or found.group(_ROWS, _STREAMS) != self._common:
            return None
        return list(map(int, found[_AT].split(b",")))


class LineTemplate:
    """Encodes lines that are like one line, of a column with one part, which lies in a bundle."""

    def __init__(self, line: bytes) -> None:
        """Take the line of such a column."""
        found = _line_of(1).fullmatch(line)
        assert found
        rows, streams = (found[one].replace(b"%", b"%%") for one in (_ROWS, _STREAMS))
        self._text = b"".join(
            [
                b'{"path":%d,"k":[0],"at":[%d],',
                rows,
                b',"cbytes":[%d],',
                streams,
                b',"nulls":[%d],"nans":[%d],"min":[%b],"max":[%b]}',
            ]
        )

    def line(self, path: Path, at: int, cbytes: int, statistics: Statistics) -> bytes:
        """Return the line of a column with these places, and the statistics of its one part."""
        bounds = statistics.lowest[0], statistics.highest[0]
        low, high = (b"null" if one is None else b'"%b"' % base64.b64encode(one) for one in bounds)
        counts = statistics.nulls[0], statistics.nans[0]
        return self._text % (*path, at, cbytes, *counts, low, high)
