"""Coerce the index: check that the index of a DataFrame continues the table's.

Knows the facts of index levels, not how they are stored.
"""

import numpy as np
import pyarrow as pa

from blztable.convert.frames.descriptor import Descriptor
from blztable.convert.frames.dtypes import is_reinterpreted
from blztable.convert.frames.frame import Facts, descriptor_of
from blztable.convert.frames.index import DEFAULT
from blztable.convert.frames.labels import decode_label
from blztable.convert.gateway import Ingested
from blztable.errors import SchemaError


def align_index(data: Ingested, table: Facts, frame: Facts, rows: int, context: str) -> pa.Table:
    """Return the columns of a DataFrame whose index continues the table's at `rows` rows.

    A default RangeIndex continues any other. An unnamed index of integers, such as a filter leaves,
    goes into a table with a default RangeIndex, unless the call asks for the index.
    """
    ours, theirs = table.levels, frame.levels
    if ours == [DEFAULT] and not data.keeps_index and _is_unnamed(data, theirs):
        fields = [level["field"] for level in theirs if level["kind"] == "field"]
        return data.table.drop_columns(fields)
    if ours[0]["kind"] == "field":
        if theirs[0]["kind"] == "range" and len(ours) == 1 and _name(ours[0]) == _name(theirs[0]):
            # pandas may return a slice of a stored index without gaps as a RangeIndex.
            start, step = theirs[0]["start"], theirs[0]["step"]
            values = pa.array(start + step * np.arange(data.rows))
            return data.table.append_column(ours[0]["field"], values)
        if _fields(ours) == _fields(theirs):
            return data.table
    elif theirs[0]["kind"] == "range":
        start, step = ours[0]["start"], ours[0]["step"]
        continued = {**ours[0], "start": start + step * rows}
        if theirs[0] in (continued, DEFAULT):
            return data.table
    raise SchemaError(
        f"{context}: the DataFrame has {_index_text(theirs, data.rows)}, "
        f"the table {_index_text(ours, rows)}. {_remedy(ours)}"
    )


def align_empty_index(table: pa.Table, ours: Facts, theirs: Facts) -> pa.Table:
    """Return the columns of a DataFrame without rows, whose index continues any other."""
    for name in set(theirs.index_fields()) & set(table.schema.names):
        table = table.drop_columns(name)
    for name in ours.index_fields():
        table = table.append_column(name, pa.nulls(0))
    return table


def needs_exact_rows(data: Ingested, frame: Descriptor | None) -> bool:
    """True if the RangeIndex of `data` continues the table's only at the present row count."""
    ours, theirs = Facts.decode(frame).levels[0], Facts.decode(data.frame).levels[0]
    if data.frame is None or not data.rows or ours["kind"] != "range" or theirs["kind"] != "range":
        return False
    # In a default RangeIndex the labels are the row numbers, whatever those of the data are.
    return DEFAULT not in (ours, theirs)


def _is_unnamed(data: Ingested, levels: list[Descriptor]) -> bool:
    """True for an index without a name whose labels are integers."""
    if len(levels) > 1 or _name(levels[0]) is not None:
        return False
    if levels[0]["kind"] == "range":
        return True
    field = data.table.schema.field(levels[0]["field"])
    is_other = is_reinterpreted(descriptor_of(field, Facts.decode(data.frame)))
    return bool(pa.types.is_integer(field.type) and not is_other)


def _fields(levels: list[Descriptor]) -> list[tuple[str | None, object]]:
    return [(level.get("field"), _name(level)) for level in levels]


def _name(level: Descriptor) -> object:
    return decode_label(level.get("name"))


def _index_text(levels: list[Descriptor], rows: int) -> str:
    """Describe an index of this row count for an error."""
    names = [_name(level) for level in levels]
    named = "" if names == [None] else f" named {names if len(names) > 1 else names[0]!r:.200}"
    if levels[0]["kind"] == "field":
        return f"a stored index{named}"
    start, step = levels[0]["start"], levels[0]["step"]
    by = "" if step == 1 else f", step {step}"
    return f"a RangeIndex ({start}..{start + step * rows}{by}){named}"


def _remedy(levels: list[Descriptor]) -> str:
    """Return the advice that gives a DataFrame an index that continues this one."""
    if levels[0]["kind"] == "range":
        return "Call df.reset_index(drop=True), or pass index=False"
    return "Give it an index of the same names, with df.set_index() or df.index.set_names()"
