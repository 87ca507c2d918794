"""Statistics: what the records of a version say of its row groups, as a table of Arrow.

Knows nothing of filters. The bounds of text are bytes, which may end within a character.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from blztable.arrow.nested.nodes import is_nested
from blztable.arrow.types import is_text
from blztable.columns.statistics.bounds import ordered_type
from blztable.engine.query.select import zones_by_group
from blztable.engine.version.projection import Projection


def statistics(projection: Projection, columns: Sequence[int]) -> pa.Table:
    """Return a row for each row group: its rows, and facts of each of these columns."""
    stops = np.cumsum(projection.version.row_groups, dtype=np.int64)
    names, arrays = ["start", "stop"], [pa.array(np.append(0, stops)[:-1]), pa.array(stops)]
    for index in columns:
        for fact, array in _facts(projection, index, len(stops)).items():
            names.append(f"{fact}.{projection.schema.field(index).name}")
            arrays.append(array)
    return pa.Table.from_arrays(arrays, names=names)


def _facts(projection: Projection, index: int, groups: int) -> dict[str, pa.Array]:
    """Return what is known of a column in each row group."""
    type_ = projection.schema.field(index).type
    if is_nested(type_):
        bounds = {"min": pa.nulls(groups), "max": pa.nulls(groups)}
        exact = np.zeros(groups, np.bool_)
        nulls = pa.nulls(groups, pa.int64())
    else:
        zones, is_whole = zones_by_group(projection, index)
        is_known = zones.is_counted & is_whole
        nulls = pa.array(zones.nulls, mask=~is_known)
        exact = zones.exact & is_whole
        bounds = {"min": zones.lowest, "max": zones.highest}
        if is_text(ordered_type(type_)):
            bounds = {name: _text(array, name == "min") for name, array in bounds.items()}
    sizes = {
        size: pa.array(sum(parts.records.parts[size].astype(np.int64) for parts in nodes))
        for nodes in (projection.parts(index),)
        for size in ("nbytes", "cbytes")
    }
    return {"nulls": nulls, **bounds, "exact": pa.array(exact), **sizes}


def _text(bounds: pa.Array, is_lower: bool) -> pa.Array:
    """Return bounds that are text: a lower one without a cut character, no upper one with one."""
    found: list[str | None] = []
    for bound in bounds.cast(pa.large_binary()).to_pylist():
        text = None if bound is None else bound.decode(errors="ignore")
        is_whole = text is not None and text.encode() == bound
        found.append(text if is_lower or is_whole else None)
    return pa.array(found, bounds.type)
