"""Write options: given with a call, or stored in the properties of a table.

Knows nothing of data. An option that may differ by column is one value, or a mapping from column
names to values; columns missing in the mapping take the default.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self, TypeVar

from blztable.block_terms import MIN_PAGE_ROWS, PACKED, PACKINGS
from blztable.columns.paging import CHUNK_BYTES
from blztable.engine.write.row_groups import Expected, GroupRows
from blztable.errors import ColumnNotFoundError, CorruptError, check_encodes, no_column
from blztable.format.checksum import BY_NAME, Checksum
from blztable.format.chunk import MAX_CHUNK_BYTES, SHUFFLES, WRITABLE_CODECS
from blztable.format.jsontext import MAX_NUMBER, Json
from blztable.format.metadata import MAX_PAGE_ROWS

DURABILITIES = ("full", "process")
# Choose an encoding for each part, or store the values as they are.
ENCODINGS = ("auto", "plain")
# What a trial of codecs looks for, if no codec is given.
SPEED, SIZE = "speed", "size"
OPTIMIZE = (SPEED, SIZE)

# Options that may be a mapping by column name.
BY_COLUMN = ("encoding", "packing", "optimize", "compression", "clevel", "shuffle", "page_rows")

# Options that are stored in the properties of a table.
KEPT = (*BY_COLUMN, "checksum", "row_group_rows", "expectedlen", "nan_as_null")

T = TypeVar("T")

# Largest number of bytes of a commit_id in UTF-8.
MAX_ID_LENGTH = 1000


@dataclass(frozen=True, slots=True)
class CompressionOptions:
    """What a caller asked for a column; None for what is left to a trial."""

    codec: str | None = None
    clevel: int | None = None
    shuffle: str | None = None
    optimize: str | None = None


# The thousands of columns of a wide table share few objects.
_compression = lru_cache(64)(CompressionOptions)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a write, checked before anything is written."""

    compression: str | Mapping[str, str | None] | None = None
    clevel: int | Mapping[str, int | None] | None = None
    shuffle: str | Mapping[str, str | None] | None = None
    checksum: str = "crc32"
    row_group_rows: int | None = None
    page_rows: int | Mapping[str, int] | None = None
    durability: str = "full"
    encoding: str | Mapping[str, str] | None = field(default=None, kw_only=True)
    packing: str | Mapping[str, str] | None = field(default=None, kw_only=True)
    optimize: str | Mapping[str, str] | None = field(default=None, kw_only=True)
    # Whether NaN of data that has no other missing value is null; None for the default of the data.
    nan_as_null: bool | None = field(default=None, kw_only=True)
    # Rows that the table will have, as its writer expects.
    expectedlen: int | None = field(default=None, kw_only=True)
    # Not public: tests use tiny chunks to take every path with little data.
    chunk_bytes: int = field(default=CHUNK_BYTES, kw_only=True)

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid option."""
        for name in ("clevel", "row_group_rows", "expectedlen", "page_rows"):
            object.__setattr__(self, name, _as_numbers(getattr(self, name)))
        for encoding in _values(self.encoding):
            check_choice("encoding", encoding, (None, *ENCODINGS))
        for packing in _values(self.packing):
            check_choice("packing", packing, (None, *PACKINGS))
        for optimize in _values(self.optimize):
            check_choice("optimize", optimize, (None, *OPTIMIZE))
        for codec in _values(self.compression):
            check_choice("compression", codec, (None, *WRITABLE_CODECS))
        for level in _values(self.clevel):
            if level is not None and (type(level) is not int or not 0 <= level <= 9):
                raise ValueError(f"clevel must be an integer from 0 to 9, not {level!r}")
        for shuffle in _values(self.shuffle):
            check_choice("shuffle", shuffle, (None, *SHUFFLES))
        check_choice("checksum", self.checksum, [name for name in BY_NAME if name != "none"])
        check_choice("durability", self.durability, DURABILITIES)
        for rows in _values(self.page_rows):
            if rows is not None and (
                type(rows) is not int
                or not MIN_PAGE_ROWS <= rows <= MAX_PAGE_ROWS
                or rows & (rows - 1)
            ):
                raise ValueError(
                    f"page_rows must be a power of two from {MIN_PAGE_ROWS} to {MAX_PAGE_ROWS}, "
                    f"not {rows!r}"
                )
        if not isinstance(self.nan_as_null, bool | None):
            raise ValueError(f"nan_as_null must be True, False or None, not {self.nan_as_null!r}")
        for name in ("row_group_rows", "expectedlen"):
            rows = getattr(self, name)
            if rows is not None and (type(rows) is not int or not 1 <= rows <= MAX_NUMBER):
                raise ValueError(f"{name} must be an integer from 1 to 2**62, not {rows!r}")
        assert MIN_PAGE_ROWS <= self.chunk_bytes <= MAX_CHUNK_BYTES, self.chunk_bytes

    @classmethod
    def of(
        cls, properties: Mapping[str, Json], overrides: Mapping[str, Any], durability: str
    ) -> Self:
        """Return the options in the properties of a table; CorruptError if they are invalid.

        Overrides are valid options that go before those of the table. Without a codec among them,
        `optimize` also goes before the codec and the level of the table.
        """
        stored: dict[str, Any] = {name: properties[name] for name in KEPT if name in properties}
        if "optimize" in overrides:
            stored |= {"compression": None, "clevel": None}
        try:
            return cls(**{**stored, **overrides}, durability=durability)
        except (TypeError, ValueError) as error:
            raise CorruptError(f"the properties of the table: {error}") from None

    def check_names(self, names: Sequence[str]) -> None:
        """Raise ColumnNotFoundError if a mapping has a name that is not among these."""
        existing = set(names)
        for option in BY_COLUMN:
            value = getattr(self, option)
            missing = [key for key in value if key not in existing] if _is_mapping(value) else []
            if missing:
                raise ColumnNotFoundError(f"{option}: {no_column(missing[0], names)}")

    def compression_of(self, name: str) -> CompressionOptions:
        """Return what was asked for a column. A level without a codec is one of lz4."""
        codec: str | None = _of(self.compression, name, None)
        level: int | None = _of(self.clevel, name, None)
        if codec is None and level is not None:
            codec = "lz4"
        shuffle: str | None = _of(self.shuffle, name, None)
        return _compression(codec, level, shuffle, _of(self.optimize, name, None))

    def encoding_of(self, name: str) -> str:
        """Return "auto" or "plain" for a column."""
        return _of(self.encoding, name, None) or "auto"

    def packing_of(self, name: str) -> str:
        """Return "packed" or "per_item" for a column."""
        return _of(self.packing, name, None) or PACKED

    def page_rows_of(self, name: str) -> int | None:
        """Return the page size of a column; None for the default of its type."""
        return _of(self.page_rows, name, None)

    @property
    def group_rows(self) -> GroupRows:
        """The rows of a row group, as `row_groups` takes them."""
        if self.row_group_rows or not self.expectedlen:
            return self.row_group_rows
        return Expected(self.expectedlen)

    @property
    def checksum_of_chunks(self) -> Checksum:
        """The checksum of each chunk."""
        return BY_NAME[self.checksum]

    @property
    def is_durable(self) -> bool:
        """True if a commit survives a power loss."""
        return self.durability == "full"

    def to_json(self) -> dict[str, Json]:
        """Return the options as the properties of a table."""
        options = {name: getattr(self, name) for name in KEPT}
        return {
            name: dict(value) if _is_mapping(value) else value
            for name, value in options.items()
            if value is not None
        }


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _as_numbers(value: Any) -> Any:
    """Return integers of any type as int; anything else unchanged, to be refused later."""
    if isinstance(value, Mapping):
        return {name: _as_numbers(item) for name, item in value.items()}
    try:
        return value if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return value


def _values(value: object) -> list[object]:
    return list(value.values()) if isinstance(value, Mapping) else [value]


def _of(value: T | Mapping[str, T], name: str, default: T) -> T:
    return value.get(name, default) if isinstance(value, Mapping) else value


def check_choice(option: str, value: object, choices: Iterable[str | None]) -> None:
    """Raise ValueError if the value is not one of the choices."""
    choices = list(choices)
    if value not in choices:
        names = ", ".join(map(repr, choices))
        raise ValueError(f"{option} must be one of {names}, not {value!r}")


def check_id(commit_id: Any) -> None:
    """Raise TypeError, ValueError or SchemaError unless this is None or a valid commit_id."""
    if commit_id is None:
        return
    if not isinstance(commit_id, str):
        raise TypeError(f"commit_id must be a str, not {type(commit_id).__name__}")
    check_encodes(commit_id, "commit_id")
    length = len(commit_id.encode())
    if not 0 < length <= MAX_ID_LENGTH:
        raise ValueError(f"commit_id must have 1 to {MAX_ID_LENGTH} bytes of UTF-8, not {length}")
