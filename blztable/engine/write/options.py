"""How a table is written: the options of a call over the properties of the table.

Options that may differ by column are a value, or a mapping from column names to values; names the
mapping leaves out take the default.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from blztable.block_terms import MIN_PAGE_ROWS
from blztable.columns.paging import CHUNK_BYTES
from blztable.errors import ColumnNotFoundError, CorruptError
from blztable.format.checksum import BY_NAME, Checksum
from blztable.format.chunk import MAX_CHUNK_BYTES, SHUFFLES, WRITABLE_CODECS, Compression
from blztable.format.jsontext import MAX_NUMBER, Json
from blztable.format.metadata import MAX_PAGE_ROWS

DURABILITIES = ("full", "process")

# What a table remembers.
KEPT = ("compression", "clevel", "shuffle", "checksum", "row_group_rows", "page_rows")

# Of those, what may differ by column: mappings by its name.
BY_COLUMN = ("compression", "clevel", "shuffle", "page_rows")

T = TypeVar("T")

# Bytes of the name that a caller gives a commit.
MAX_ID_LENGTH = 1000


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a writer may choose; checked when made, so that nothing is written on a mistake."""

    compression: str | Mapping[str, str] = "lz4"
    clevel: int | Mapping[str, int] = 5
    shuffle: str | Mapping[str, str | None] | None = None
    checksum: str = "crc32"
    row_group_rows: int | None = None
    page_rows: int | Mapping[str, int] | None = None
    durability: str = "full"
    # Not of the face: tests make tiny chunks to walk every path with little data.
    chunk_bytes: int = field(default=CHUNK_BYTES, kw_only=True)

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not one of the choices."""
        for name in ("clevel", "row_group_rows", "page_rows"):
            object.__setattr__(self, name, _as_numbers(getattr(self, name)))
        for codec in _values(self.compression):
            check_choice("compression", codec, WRITABLE_CODECS)
        for level in _values(self.clevel):
            if type(level) is not int or not 0 <= level <= 9:
                raise ValueError(f"clevel is a whole number from 0 to 9, not {level!r}")
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
                    f"page_rows is a power of two from {MIN_PAGE_ROWS} to {MAX_PAGE_ROWS}, "
                    f"not {rows!r}"
                )
        group = self.row_group_rows
        if group is not None and (type(group) is not int or not 1 <= group <= MAX_NUMBER):
            raise ValueError(f"row_group_rows is a whole number from 1 to 2**62, not {group!r}")
        assert MIN_PAGE_ROWS <= self.chunk_bytes <= MAX_CHUNK_BYTES, self.chunk_bytes

    @classmethod
    def of(cls, properties: Mapping[str, Json], durability: str) -> Self:
        """The options that a table was written with; CorruptError where there are no such."""
        chosen = {name: properties[name] for name in KEPT if name in properties}
        try:
            return cls(**chosen, durability=durability)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise CorruptError(f"the properties of the table: {error}") from None

    def check_names(self, names: Sequence[str]) -> None:
        """ColumnNotFoundError where a mapping names a column that is not there."""
        there = set(names)
        for option in BY_COLUMN:
            value = getattr(self, option)
            missing = [key for key in value if key not in there] if _is_mapping(value) else []
            if missing:
                raise ColumnNotFoundError(f"{option} for {missing[0]!r}; the columns are {names}")

    def compression_of(self, name: str) -> Compression:
        """How the chunks of this column are compressed."""
        return Compression(
            _of(self.compression, name, "lz4"),
            _of(self.clevel, name, 5),
            _of(self.shuffle, name, None),
        )

    def page_rows_of(self, name: str) -> int | None:
        """The rows of a page of this column, None where its type decides."""
        return _of(self.page_rows, name, None)

    @property
    def checksum_of_chunks(self) -> Checksum:
        """The checksum behind every chunk."""
        return BY_NAME[self.checksum]

    @property
    def is_durable(self) -> bool:
        """Whether a commit survives a loss of power."""
        return self.durability == "full"

    def to_json(self) -> dict[str, Json]:
        """The choices as a table's properties keep them."""
        chosen = {name: getattr(self, name) for name in KEPT}
        return {
            name: dict(value) if _is_mapping(value) else value
            for name, value in chosen.items()
            if value is not None
        }


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _as_numbers(value: Any) -> Any:
    """The numbers of any integer type as int; anything else as it is, to be refused."""
    if isinstance(value, Mapping):
        return {name: _as_numbers(one) for name, one in value.items()}
    try:
        return value if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return value


def _values(value: object) -> list[object]:
    return list(value.values()) if isinstance(value, Mapping) else [value]


def _of(value: T | Mapping[str, T], name: str, default: T) -> T:
    return value.get(name, default) if isinstance(value, Mapping) else value


def check_choice(option: str, value: object, choices: Iterable[str | None]) -> None:
    """ValueError where the value is none of the choices."""
    choices = list(choices)
    if value not in choices:
        names = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{option} is one of {names}, not {value!r}")


def check_id(commit_id: Any) -> None:
    """Raise TypeError or ValueError where it cannot name a commit."""
    if commit_id is None:
        return
    if not isinstance(commit_id, str):
        raise TypeError(f"commit_id is text, not {type(commit_id).__name__}")
    if not commit_id.isascii() and commit_id.encode("utf-8", "replace").decode() != commit_id:
        raise ValueError(f"commit_id is text that UTF-8 can encode, not {commit_id!r:.100}")
    length = len(commit_id.encode("utf-8", "replace"))
    if not 0 < length <= MAX_ID_LENGTH:
        raise ValueError(f"commit_id has from 1 to {MAX_ID_LENGTH} bytes of UTF-8, not {length}")
