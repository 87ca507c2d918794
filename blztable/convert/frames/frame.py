"""Frame: a whole DataFrame as an Arrow table with a descriptor, and back.

Knows nothing of the disk.

Theory of operation
-------------------
`from_frame` splits a DataFrame column by column, in one thread, mostly without copies:

- `dtypes.encode` makes an Arrow array of each column. What the Arrow type cannot say about the
  dtype becomes a descriptor in the metadata of the field.
- `index.encode_rows` stores a RangeIndex as three facts, and any other index as more columns.
- `header.encode_header` keeps the labels of the columns, unless all are plain text.

The last two are JSON, the frame descriptor, which `FrameInfo` reads and writes. `to_frame` decodes
the descriptor and builds the columns over the memory of the table. The descriptor may come from an
untrusted file, so `FrameInfo.decode` checks it before any use. The labels name fields, so that a
descriptor stays true when columns are selected, added, dropped or renamed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.extensions import no_default

from blztable.convert.frames import dtypes, objects
from blztable.convert.frames.descriptor import (
    FIELD_KEY,
    Descriptor,
    check_depth,
    expect_bool,
    expect_keys,
    expect_list,
    expect_text,
    from_bytes,
    to_bytes,
)
from blztable.convert.frames.header import decode_header, encode_header, more_labels, without_labels
from blztable.convert.frames.index import (
    DEFAULT,
    RowNumbers,
    checked_levels,
    decode_rows,
    encode_rows,
    renamed_level,
)
from blztable.convert.frames.labels import field_name
from blztable.convert.objects.tagged import plain_attrs
from blztable.errors import FormatError, LimitError, SchemaError, check_none, no_column

VERSION = 1


def to_frame(
    table: pa.Table,
    rows: int,
    frame: Descriptor | None,
    attrs: dict[str, Any],
    *,
    columns: list[str] | None = None,
    dtype_backend: Any = no_default,
    row_numbers: RowNumbers | None = None,
) -> pd.DataFrame:
    """Return a DataFrame over the memory of `table`, which nothing else may use."""
    backend = None if dtype_backend is no_default else dtype_backend
    if backend not in (None, *dtypes.BACKENDS):
        raise ValueError(f"dtype_backend: expected one of {dtypes.BACKENDS}, found {backend!r}")
    info = FrameInfo.decode(frame)
    levels = info.index_fields()
    names = table.schema.names
    indices = _selection(names, columns, levels)
    index = decode_rows(
        info.levels,
        info.multi,
        {name: _column(table, info, i) for name, i in _indices(table, levels).items()},
        range(rows) if row_numbers is None else row_numbers,
        backend,
    )
    if len(index) != rows:
        raise FormatError(f"the index has {len(index)} rows, the table {rows}")
    data = {}
    seen: set[int] = set()
    for number, i in enumerate(indices):
        values = _decoded(table, info, i, backend)
        # A column that is selected twice needs separate memory for each label.
        data[number] = _boxed(values.copy() if i in seen else values, index)
        seen.add(i)
    result: Any = pd.DataFrame(data, index=index, copy=False)
    result.columns = decode_header(info.header, [names[i] for i in indices])
    result.attrs = dict[Any, Any](plain_attrs(attrs))
    # A column that is selected twice makes duplicates, which the flag would refuse.
    if not info.allows_duplicate_labels and _is_unique(result.columns) and _is_unique(index):
        result.flags.allows_duplicate_labels = False
    return result


def numpy_floats(schema: pa.Schema, info: "FrameInfo", dtype_backend: Any) -> frozenset[int]:
    """Return the indices of the fields that become floats of numpy, in which null is NaN."""
    if dtype_backend is not no_default and dtype_backend is not None:
        return frozenset()
    return frozenset(
        index
        for index, field_ in enumerate(schema)
        if pa.types.is_floating(field_.type)
        and field_.name not in info.dtypes
        and FIELD_KEY not in (field_.metadata or {})
    )


def from_frame(
    frame: pd.DataFrame, index: bool | None, nan_as_null: bool = True, choice: str = "infer"
) -> tuple[pa.Table, Descriptor]:
    """Return the Arrow table of a DataFrame and its descriptor.

    Raises
    ------
    SchemaError
        Columns or index levels cannot be stored; the message names each.
    """
    labels = frame.columns.tolist()
    names = list(map(field_name, labels))
    fields, arrays = [], []
    errors: list[str] = []
    # For each Series, pandas copies all levels of the index and looks up the column's label.
    numbered = frame.copy(deep=False)
    numbered.columns, numbered.index = pd.RangeIndex(len(names)), pd.RangeIndex(len(frame))
    for (_, series), name, label in zip(numbered.items(), names, labels, strict=True):
        try:
            array, descriptor = dtypes.encode(
                series.array, f"column {label!r}", nan_as_null, choice
            )
        except SchemaError as error:
            errors.append(str(error))
            continue
        fields.append(described(pa.field(name, array.type), descriptor))
        arrays.append(array)
    levels, kept = encode_rows(frame.index, names, index, nan_as_null, choice, errors)
    check_none(errors)
    for level in kept:
        fields.append(described(pa.field(level.field, level.array.type), level.descriptor))
        arrays.append(level.array)
    info = FrameInfo(
        levels,
        isinstance(frame.index, pd.MultiIndex) and bool(kept),
        encode_header(frame.columns, names),
        frame.flags.allows_duplicate_labels,
    )
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields)), info.encode()


def _is_unique(labels: pd.Index) -> bool:
    try:
        return labels.is_unique
    except (LookupError, ValueError, OverflowError, NotImplementedError, TypeError):
        # pandas fails on Arrow times in an unknown zone, and on objects without a hash.
        return False


def index_fields(frame: Descriptor | None) -> list[str]:
    """Return the names of the fields that hold the index, outermost first."""
    return FrameInfo.decode(frame).index_fields()


def with_labels(
    frame: Descriptor | None, other: Descriptor | None, fields: Collection[str]
) -> Descriptor | None:
    """Return the descriptor with these fields of another frame added, with their labels."""
    mine, theirs = FrameInfo.decode(frame).header, FrameInfo.decode(other).header
    if frame is None or mine is None or theirs is None:
        return frame
    return {**frame, "columns": more_labels(mine, theirs, fields)}


def renamed(frame: Descriptor | None, names: Mapping[str, str]) -> Descriptor | None:
    """Return the descriptor of a frame with renamed fields."""
    if frame is None:
        return None
    info = FrameInfo.decode(frame)
    names = {old: new for old, new in names.items() if old != new}
    # A field without a label is labelled by its name.
    touched = {*names, *names.values()}
    header = None if info.header is None else without_labels(info.header, touched)
    levels = [renamed_level(level, names) for level in info.levels]
    # The facts of a dropped field are not true for a field that takes its name.
    taken = set(names.values())
    known = {name: word for name, word in info.dtypes.items() if name not in taken}
    known |= {names[name]: word for name, word in info.dtypes.items() if name in names}
    return replace(info, levels=levels, header=header, dtypes=known).encode()


def dropped(frame: Descriptor | None, names: Collection[str]) -> Descriptor | None:
    """Return the descriptor without these fields, so that others may take their names."""
    if frame is None:
        return None
    info, names = FrameInfo.decode(frame), set(names)
    header = None if info.header is None else without_labels(info.header, names)
    levels = [level for level in info.levels if level.get("field") not in names]
    # A single remaining level is a plain index.
    multi = info.multi and (len(levels) > 1 or levels == info.levels)
    known = {name: word for name, word in info.dtypes.items() if name not in names}
    rest = replace(info, levels=levels or [DEFAULT], multi=multi, header=header, dtypes=known)
    return rest.encode()


def without_dtypes(frame: Descriptor | None, names: Collection[str]) -> Descriptor | None:
    """Return the descriptor without what it says of the dtypes of these fields."""
    info = FrameInfo.decode(frame)
    if frame is None or info.dtypes.keys().isdisjoint(names):
        return frame
    known = {name: word for name, word in info.dtypes.items() if name not in names}
    return replace(info, dtypes=known).encode()


def without_false_kinds(frame: Descriptor, table: pa.Table) -> Descriptor:
    """Return the descriptor without kinds of objects that the text of a column does not say.

    Users may change a column of Arrow data, and leave the metadata as they were.
    """
    names = []
    for name, descriptor in FrameInfo.decode(frame).dtypes.items():
        if objects.special_kind(descriptor) and table.schema.names.count(name) == 1:
            try:
                dtypes.decode(table.column(name), descriptor, None)
            except (FormatError, SchemaError):
                names.append(name)
    return without_dtypes(frame, names) or frame


@dataclass(frozen=True, slots=True)
class FrameInfo:
    """What a DataFrame has beyond its columns."""

    levels: list[Descriptor] = field(default_factory=lambda: [DEFAULT])
    multi: bool = False
    header: Descriptor | None = None
    allows_duplicate_labels: bool = True
    # For tables with pandas metadata, whose fields must not change.
    dtypes: dict[str, Descriptor] = field(default_factory=dict)

    def index_fields(self) -> list[str]:
        """Return the names of the fields that hold the index."""
        return [level["field"] for level in self.levels if level["kind"] == "field"]

    def encode(self) -> Descriptor:
        """Return the frame descriptor, without default facts."""
        frame: Descriptor = {"version": VERSION, "index": self.levels}
        if self.multi:
            frame["multi"] = True
        if self.header is not None:
            frame["columns"] = self.header
        if not self.allows_duplicate_labels:
            frame["allows_duplicate_labels"] = False
        if self.dtypes:
            frame["dtypes"] = [[name, info] for name, info in self.dtypes.items()]
        return frame

    @classmethod
    def decode(cls, frame: Descriptor | None) -> "FrameInfo":
        """Return the checked facts of a descriptor; the default facts for None."""
        if frame is None:
            return cls()
        check_depth(frame)
        version = frame.get("version")
        if type(version) is not int or version != VERSION:
            raise FormatError(
                f"the pandas descriptor has version {version!r:.20}, and this blztable knows "
                f"version {VERSION}; read the table as Arrow, with read_table or to_arrow"
            )
        optional = ["multi", "columns", "allows_duplicate_labels", "dtypes"]
        expect_keys(frame, ["version", "index"], optional)
        described = {}
        for pair in expect_list(frame.get("dtypes", [])):
            name, descriptor = expect_list(pair, 2)
            described[expect_text(name)] = expect_keys(descriptor, ["dtype"], descriptor)
        return cls(
            checked_levels(frame["index"]),
            expect_bool(frame.get("multi", False)),
            frame.get("columns"),
            expect_bool(frame.get("allows_duplicate_labels", True)),
            described,
        )


def descriptor_of(field_: pa.Field, info: FrameInfo) -> Descriptor | None:
    """Return the descriptor of a column, from its field or else from the frame."""
    metadata = field_.metadata or {}
    descriptor = info.dtypes.get(field_.name)
    if FIELD_KEY in metadata:
        descriptor = from_bytes(metadata[FIELD_KEY])
    if descriptor is not None:
        expect_keys(descriptor, ["dtype"], descriptor)
        expect_text(descriptor["dtype"], dtypes.DESCRIBED)
    return descriptor


def described(field_: pa.Field, descriptor: Descriptor | None) -> pa.Field:
    """Return the field with the descriptor in its metadata."""
    if descriptor is None:
        return field_
    return field_.with_metadata({**(field_.metadata or {}), FIELD_KEY: to_bytes(descriptor)})


def _indices(table: pa.Table, levels: Sequence[str]) -> dict[str, int]:
    """Return the index of each index field; a duplicate name is not an index field."""
    names = table.schema.names
    return {name: names.index(name) for name in levels if names.count(name) == 1}


def _selection(
    names: Sequence[str], columns: Sequence[str] | None, levels: Sequence[str]
) -> list[int]:
    """Return the indices of the selected columns in order, without the index fields."""
    by_name: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        by_name.setdefault(name, []).append(i)
    hidden = {name for name in levels if len(by_name.get(name, ())) == 1}
    if columns is None:
        return [i for i, name in enumerate(names) if name not in hidden]
    for name in columns:
        if name not in by_name:
            raise no_column(name, by_name)
    return [i for name in columns if name not in hidden for i in by_name[name]]


def _column(table: pa.Table, info: FrameInfo, i: int) -> tuple[pa.ChunkedArray, Descriptor | None]:
    return table.column(i), descriptor_of(table.schema.field(i), info)


def _decoded(table: pa.Table, info: FrameInfo, i: int, backend: str | None) -> dtypes.PandasValues:
    try:
        return dtypes.decode(*_column(table, info, i), backend)
    except (FormatError, LimitError, SchemaError) as error:
        raise type(error)(f"column {table.schema.names[i]!r}: {error}") from None


def _boxed(values: dtypes.PandasValues, index: pd.Index) -> Any:
    """Return objects as a Series of that dtype, in which pandas does not look for strings."""
    if isinstance(values, np.ndarray) and values.dtype == object:
        return pd.Series(values, index=index, dtype=object, copy=False)
    return values
