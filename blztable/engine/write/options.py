"""Storage: how rows are stored, as a call says or as the properties of a table keep it.

Knows nothing of data. What is None in a `Storage` is left to the table or, for a new one, to us.
"""

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import pyarrow as pa

from blztable.cached import cached_property
from blztable.columns.digits import MAX_DIGITS
from blztable.engine.version.schema import digits_of, with_digits
from blztable.engine.write.chunks import CHUNK_BYTES
from blztable.engine.write.row_groups import Expected, GroupRows
from blztable.engine.write.sort_keys import parsed
from blztable.errors import ColumnNotFoundError, CorruptError, SchemaError, check_encodes, no_column
from blztable.format.chunk import MAX_CHUNK_BYTES, SHUFFLES, WRITABLE_CODECS
from blztable.format.jsontext import MAX_NUMBER, Json
from blztable.format.manifest import NO_LOCKS
from blztable.format.records import MAX_PAGE, MIN_PAGE
from blztable.metalayers import check_fixed
from blztable.storage.resolve import LAYOUTS

DURABILITIES = ("full", "process")
# Choose an encoding for each part, or store the values as they are.
ENCODINGS = ("auto", "plain")
# How items are divided into chunks: several in a chunk, or one in each.
PACKED, PER_ITEM = "packed", "per_item"
PACKINGS = (PACKED, PER_ITEM)
MIN_PAGE_ROWS, MAX_PAGE_ROWS = 1 << MIN_PAGE, 1 << MAX_PAGE
# What a trial of codecs looks for, if no codec is given.
SPEED, SIZE = "speed", "size"
OPTIMIZE = (SPEED, SIZE)
# How columns of Python objects are stored.
OBJECTS = ("infer", "json", "error")
# What writers of a table rely on.
LOCKS = (NO_LOCKS,)

# The values of options that are one of several.
_CHOICES: dict[str, Iterable[str]] = {
    "encoding": ENCODINGS,
    "packing": PACKINGS,
    "optimize": OPTIMIZE,
    "compression": WRITABLE_CODECS,
    "shuffle": SHUFFLES,
    "objects": OBJECTS,
    "layout": LAYOUTS,
    "locks": LOCKS,
}
# The least and the greatest value of options that are numbers, and the latter for messages.
_NUMBERS = {
    "clevel": (0, 9, "9"),
    "digits": (1, MAX_DIGITS, str(MAX_DIGITS)),
    "row_group_rows": (1, MAX_NUMBER, "2**62"),
    "expectedlen": (1, MAX_NUMBER, "2**62"),
}

# Options that may differ by column. The properties of a table keep them; the schema keeps the
# digits, and the head the metalayers.
BY_COLUMN = ("encoding", "packing", "optimize", "compression", "clevel", "shuffle", "page_rows")
OF_COLUMNS = (*BY_COLUMN, "digits", "meta")
# Options that are stored in the properties of a table.
KEPT = (*BY_COLUMN, "row_group_rows", "expectedlen", "nan_as_null")

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


@dataclass(frozen=True, kw_only=True, repr=False)
class Storage:
    """How the rows of a table are stored; what is left out is chosen for the data.

    A value of `to_blz`, `create` and the verbs that store rows. `columns` has the options of single
    columns, which go before the others.

    Attributes
    ----------
    compression : {"lz4", "lz4hc", "zlib", "zstd"}, optional
        Codec, in place of the choice by `optimize`.
    clevel : int, optional
        Compression level, from 0, not compressed, to 9, smallest; by default 5, or 2 for zstd. A
        level without a codec is one of lz4.
    shuffle : {"byte", "bit", "none"}, optional
        Filter before compression, in place of the one that the trial finds. With `compression`, it
        is by default "byte" for values wider than one byte, and "bit" for encoded values.
    encoding : {"auto", "plain"}, optional
        Encoding of the values before compression. With "auto", the default, numbers, times,
        dictionary codes and text of few different items are stored in fewer bytes if that returns
        the very same values; each row group is decided by itself. With "plain", values are stored
        as Arrow has them, and each column has files of its own, which Bloscpack reads as these
        values; otherwise the columns of a small row group share a file.
    packing : {"packed", "per_item"}, optional
        Whether text and binary share chunks. With "packed", the default, a chunk has about 128 KiB
        of items; with "per_item", each item is a chunk, so that one is read without its neighbours
        and an update compresses only items that changed. That is for items of 16 KiB and more: an
        item costs about 50 more bytes, and some 20 microseconds. The option applies to text and
        binary, also within structs and lists. A row group with more than a million items, or with
        an item above 256 MiB, stays packed. A column with this option shares no file with others.
    optimize : {"speed", "size"}, optional
        What the choice of a codec aims at. By default, each column of each row group gets the codec
        and the shuffle that a trial on a small part of it finds best: lz4 for numbers, lz4hc for
        text, and zstd where it saves very much, as with UUIDs. With "speed", all are lz4; with
        "size", zstd, except where lz4 makes numbers as small.
    page_rows : int, optional
        Number of rows of a page, which has bounds of its own: a power of two of at least 8; by
        default 16,384.
        A column with this option shares no file with others.
    row_group_rows : int, optional
        Number of rows of a row group; by default as many as take 256 MB, or 64 MB in one column,
        but at least 65,536.
    digits : int, optional
        Number of significant decimal digits to keep of floats, from 1 to 17, so that they take
        fewer bytes. A value changes by at most half of a unit of the last digit kept. The setting
        is part of the schema and holds for all later changes of the table.
    expectedlen : int, optional
        Number of rows that the table will have when it is complete. If these are more than a row
        group takes by default, all row groups are made equal, so that later appends leave no small
        one at the end. A number that proves wrong does no harm.
    nan_as_null : bool, optional
        Whether NaN among floats is a missing value. By default, it is in a DataFrame, a Series or
        an Index, as in `pyarrow.Table.from_pandas`; in a numpy array or a list it is a value, but
        not in later rows of a table of a DataFrame. True makes it missing in these too, and False
        keeps it a value everywhere. In Arrow data and in the nullable dtypes of pandas, which have
        a missing value of their own, NaN always stays a value.
    objects : {"infer", "json", "error"}, optional
        How columns of Python objects are stored. With "infer", the default, values of one kind get
        the type that Arrow infers, and come back as they were: numbers, times, bytes, UUIDs, IP
        addresses, lists, tuples, sets, arrays, dicts and more, with missing values. A column of
        mixed values is refused. With "json", a column of mixed values, of lists or of dicts is
        stored as JSON text and comes back as it was. With "error", only text is taken.
    layout : {"directory", "file"}, optional
        Whether a new table is a directory, the default, or one file. A table keeps its layout.
    locks : {"none"}, optional
        For a new table in a directory of a shared file system whose locks do not hold between
        machines: all who change the table rely on no lock, as in an object store. Old versions then
        stay until `vacuum`. The table keeps this.
    sort_by : str, or sequence of str or (str, "ascending" or "descending"), optional
        Columns to sort the rows by: when a table is written, and whenever it is compacted. Nulls
        are last; ordered categories are sorted by their order. An append does not sort.
    attrs : mapping, optional
        Attributes of the table: JSON values, and numbers, times and 1-dimensional arrays of numpy
        and pandas. They are added to the `attrs` of a DataFrame.
    meta : mapping of str to bytes, optional
        Fixed metalayers of the table, or of the column: at most 16 named bytes, of 65,535 bytes
        together, that keep their length. An append changes those that are there.
    columns : mapping of column names to Storage, optional
        Options of single columns: all but `row_group_rows`, `expectedlen`, `nan_as_null`,
        `objects`, `layout`, `locks`, `sort_by` and `attrs`.

    Raises
    ------
    ValueError
        An option is not one of its choices, or one that a column cannot have of its own.
    TypeError
        `columns` is not a mapping of names to values of this class.

    Examples
    --------
    >>> import blztable as blz
    >>> small = blz.Storage(optimize="size", columns={"price": blz.Storage(digits=3)})
    >>> small
    Storage(optimize='size', columns={'price': Storage(digits=3)})
    >>> blz.to_blz({"id": [1, 2], "price": [1.23456, 123.456]}, "prices.blz", storage=small)
    >>> blz.open("prices.blz")["price"].digits
    3
    """

    compression: Literal["lz4", "lz4hc", "zlib", "zstd"] | None = None
    clevel: int | None = None
    shuffle: Literal["byte", "bit", "none"] | None = None
    encoding: Literal["auto", "plain"] | None = None
    packing: Literal["packed", "per_item"] | None = None
    optimize: Literal["speed", "size"] | None = None
    page_rows: int | None = None
    row_group_rows: int | None = None
    digits: int | None = None
    expectedlen: int | None = None
    nan_as_null: bool | None = None
    objects: Literal["infer", "json", "error"] | None = None
    layout: Literal["directory", "file"] | None = None
    locks: Literal["none"] | None = None
    sort_by: str | Sequence[str | tuple[str, str]] | None = None
    attrs: Mapping[str, Any] | None = None
    meta: Mapping[str, bytes] | None = None
    columns: Mapping[str, "Storage"] | None = None

    # A class of a test has tiny chunks, to take every path with little data.
    chunk_bytes: ClassVar[int] = CHUNK_BYTES

    def __post_init__(self) -> None:
        """Raise an error for an invalid option."""
        given = self.given()
        for name in (*BY_COLUMN, "digits"):
            if name in given and isinstance(given[name], Mapping):
                raise ValueError(
                    f"{name} must be one value, not a mapping; what differs by column goes into "
                    f"columns={{name: Storage({name}=...)}}"
                )
        for name in ("clevel", "row_group_rows", "expectedlen", "page_rows", "digits"):
            if name in given:
                object.__setattr__(self, name, _as_number(given[name]))
        for name, choices in _CHOICES.items():
            if name in given:
                check_choice(name, given[name], (None, *choices))
        for name, (least, most, text) in _NUMBERS.items():
            if name in given:
                self._check_number(name, least, most, text)
        rows = self.page_rows
        if rows is not None and (
            type(rows) is not int or not MIN_PAGE_ROWS <= rows <= MAX_PAGE_ROWS or rows & (rows - 1)
        ):
            raise ValueError(
                f"page_rows must be a power of two from {MIN_PAGE_ROWS} to {MAX_PAGE_ROWS}, "
                f"not {rows!r}"
            )
        if not isinstance(self.nan_as_null, bool | None):
            raise ValueError(f"nan_as_null must be True, False or None, not {self.nan_as_null!r}")
        if self.sort_by is not None:
            object.__setattr__(self, "sort_by", parsed(self.sort_by))
        if self.meta is not None:
            object.__setattr__(self, "meta", check_fixed(self.meta))
        if self.columns is not None:
            self._check_columns(self.columns)
        assert MIN_PAGE_ROWS <= self.chunk_bytes <= MAX_CHUNK_BYTES, self.chunk_bytes

    def _check_number(self, name: str, least: int, most: int, text: str) -> None:
        value = getattr(self, name)
        if value is not None and (type(value) is not int or not least <= value <= most):
            raise ValueError(f"{name} must be an integer from {least} to {text}, not {value!r}")

    def _check_columns(self, columns: Mapping[str, "Storage"]) -> None:
        if not isinstance(columns, Mapping):
            raise TypeError(
                "columns must be a mapping of column names to values of Storage, "
                f"not {type(columns).__name__}"
            )
        for column, storage in columns.items():
            if not isinstance(storage, Storage):
                raise TypeError(
                    f"columns: {column!r} must have a value of Storage, "
                    f"not {type(storage).__name__}"
                )
            if wrong := set(storage.given()).difference(OF_COLUMNS):
                raise ValueError(
                    f"columns: {column!r} cannot have {min(wrong)}, which is one for the whole "
                    "table; give it to the outer Storage"
                )
        object.__setattr__(self, "columns", dict(columns))

    def __repr__(self) -> str:
        options = (f"{name}={value!r}" for name, value in self.given().items())
        return f"{type(self).__name__}({', '.join(options)})"

    def given(self) -> dict[str, Any]:
        """Return the options that were given, by their names.

        Returns
        -------
        dict of str to Any
            Names and values of those that are not None.

        Examples
        --------
        >>> import blztable as blz
        >>> blz.Storage(compression="zstd", clevel=9).given()
        {'compression': 'zstd', 'clevel': 9}
        """
        values = vars(self).items()
        return {name: value for name, value in values if value is not None and name[0] != "_"}

    def of(self, column: str) -> "Storage":
        """Return the options of one column: its own ones, and else those of the table.

        Parameters
        ----------
        column : str
            Name of the column.

        Returns
        -------
        Storage
            If the column has options of its own, what a column can have; else this value itself.

        Examples
        --------
        >>> import blztable as blz
        >>> storage = blz.Storage(clevel=9, columns={"a": blz.Storage(compression="zstd")})
        >>> storage.of("a")
        Storage(compression='zstd', clevel=9)
        """
        return self._by_column.get(column, self) if self.columns else self

    @cached_property
    def _by_column(self) -> dict[str, "Storage"]:
        shared = {name: getattr(self, name) for name in (*BY_COLUMN, "digits")}
        # The columns of a wide table share few values.
        whole: dict[int, Storage] = {}
        for storage in (self.columns or {}).values():
            if id(storage) not in whole:
                own, other = storage.given(), shared
                if storage.optimize is not None:
                    # A codec of the table would leave nothing to choose.
                    other = {**shared, "compression": None, "clevel": None}
                whole[id(storage)] = Storage(**{**other, **own})
        return {name: whole[id(storage)] for name, storage in (self.columns or {}).items()}


def asked_of(storage: Storage) -> CompressionOptions:
    """Return what was asked for a column. A level without a codec is one of lz4."""
    codec = storage.compression
    if codec is None and storage.clevel is not None:
        codec = "lz4"
    return _compression(codec, storage.clevel, storage.shuffle, storage.optimize)


def is_packed(storage: Storage) -> bool:
    """True if the items of a column share chunks."""
    return storage.packing in (None, PACKED)


def is_plain(storage: Storage) -> bool:
    """True if the values of a column are to be stored without an encoding."""
    return storage.encoding == "plain"


def group_rows_of(storage: Storage) -> GroupRows:
    """Return the rows of a row group, as `row_groups` takes them."""
    if storage.row_group_rows or not storage.expectedlen:
        return storage.row_group_rows
    return Expected(storage.expectedlen)


def sort_order(storage: Storage) -> list[tuple[str, str]]:
    """Return the columns to sort by, with their directions."""
    return parsed(storage.sort_by or ())


def properties_of(storage: Storage) -> dict[str, Json]:
    """Return the options that the properties of a table keep, as `storage_of` reads them.

    An option that differs by column is a mapping of names, or a list of the value for the other
    columns and this mapping.
    """
    properties: dict[str, Json] = {}
    for name in KEPT:
        value, own = getattr(storage, name), {}
        if storage.columns and name in BY_COLUMN:
            values = {column: getattr(own, name) for column, own in storage._by_column.items()}
            own = {column: other for column, other in values.items() if other != value}
        if own or value is not None:
            properties[name] = joined(value, own)
    return properties


def storage_of(properties: Mapping[str, Json], given: Storage | None = None) -> Storage:
    """Return the options in the properties of a table; CorruptError if they are invalid.

    The options given with a call go before those of the table. Without a codec among them,
    `optimize` also goes before the codec and the level of the table.
    """
    kept = {name: properties[name] for name in KEPT if name in properties}
    others = {} if given is None else properties_of(given)
    if "optimize" in others:
        kept = {name: kept[name] for name in kept if name not in ("compression", "clevel")}
    try:
        for name, value in others.items():
            (whole, own), (new_whole, new_own) = split(kept.get(name)), split(value)
            kept[name] = value if new_whole is not None else joined(whole, {**own, **new_own})
        return _decoded(kept)
    except (TypeError, ValueError) as error:
        raise CorruptError(f"the properties of the table: {error}") from None


def _decoded(kept: Mapping[str, Json]) -> Storage:
    whole: dict[str, Any] = {}
    columns: dict[str, dict[str, Any]] = {}
    for name, value in kept.items():
        whole[name], own = split(value) if name in BY_COLUMN else (value, {})
        for column, own_value in own.items():
            columns.setdefault(column, {})[name] = own_value
    # The columns of a wide table share few values.
    shared = lru_cache(64, typed=True)(Storage)
    by_column = {column: shared(**options) for column, options in columns.items()}
    return Storage(**whole, columns=by_column or None)


def split(value: Any) -> tuple[Any, Mapping[str, Any]]:
    """Return an option of the properties for all columns, and for single ones."""
    if isinstance(value, list | tuple):
        whole, own = value
        return whole, dict(own)
    return (None, value) if isinstance(value, Mapping) else (value, {})


def joined(whole: Any, own: Mapping[str, Any]) -> Json:
    """Return an option as the properties have it, the inverse of `split`."""
    if not own:
        return whole
    return dict(own) if whole is None else [whole, dict(own)]


def given_storage(storage: Storage | None, **alone: Any) -> Storage:
    """Return the options of a call, of which some may be given by themselves, or be None."""
    if storage is None:
        return Storage(**alone)
    if not isinstance(storage, Storage):
        raise TypeError(f"storage must be a blztable.Storage, not {type(storage).__name__}")
    alone = {name: value for name, value in alone.items() if value is not None}
    for name in alone:
        if getattr(storage, name) is not None:
            raise ValueError(
                f"{name} was given twice; pass {name}= or storage=blz.Storage({name}=...)"
            )
    return replace(storage, **alone) if alone else storage


def schema_with_digits(schema: pa.Schema, storage: Storage) -> pa.Schema:
    """Return the schema with the digits to keep of columns of floats.

    Raises
    ------
    SchemaError
        A column with digits of its own is not one of floats.
    """
    own = {name: own.digits for name, own in (storage.columns or {}).items() if own.digits}
    if not own and storage.digits is None:
        return schema
    fields = [
        with_digits(field, own.get(field.name) or _digits_of_table(storage, field))
        for field in schema
    ]
    return pa.schema(fields, schema.metadata)


def _digits_of_table(storage: Storage, field: pa.Field) -> int | None:
    return storage.digits if pa.types.is_floating(field.type) else None


def check_digits(schema: pa.Schema, storage: Storage) -> None:
    """Raise SchemaError unless the columns of a table already keep as many digits as asked for."""
    wanted = schema_with_digits(schema, storage)
    for field, other in zip(schema, wanted, strict=True) if wanted is not schema else ():
        kept, asked = digits_of(field), digits_of(other)
        if kept != asked:
            raise SchemaError(
                f"column {field.name!r}: digits is {asked}, but the table keeps "
                f"{kept or 'all'} digits of it, and rows of both kinds could not be told apart; "
                'leave digits out, or write all rows again with mode="w"'
            )


def check_columns(storage: Storage, names: Sequence[str]) -> None:
    """Raise ColumnNotFoundError if a column with options of its own is not among these."""
    existing = set(names)
    for column in storage.columns or ():
        if column not in existing:
            raise ColumnNotFoundError(f"storage: {no_column(column, names)}")


def check_taken(storage: Storage, names: Collection[str], verb: str) -> None:
    """Raise ValueError if options are given that a verb does not take."""
    wrong = [name for name in storage.given() if name not in names]
    if wrong:
        raise ValueError(f"{verb} takes no {wrong[0]}; of Storage it takes {', '.join(names)}")


def _as_number(value: Any) -> Any:
    """Return an integer of any type as int; anything else unchanged, to be refused later."""
    try:
        return value if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return value


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
