"""Text for engines: text columns that a dataset gives as dictionaries or as views.

Knows a snapshot and readers of it, and nothing of files.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from blztable.arrow.types import is_binary, is_text
from blztable.engine.query.codes import with_codes
from blztable.engine.read.damage import ON_CORRUPT, OnCorrupt
from blztable.engine.write.options import check_choice
from blztable.table.batches import with_views, without_views
from blztable.table.datasets.dataset import BlzDataset, Readable, Salvaging
from blztable.table.names import Coded
from blztable.table.snapshot import Snapshot


def coded(snapshot: Snapshot, positions: Sequence[int]) -> list[int]:
    """Return the columns of text or binary among these that are stored as dictionaries."""
    snapshot.check_open()
    types = snapshot.projection.schema.types
    text = [index for index in positions if is_text(types[index]) or is_binary(types[index])]
    with snapshot.reader() as reader:
        return with_codes(reader, text)


def coded_types(snapshot: Snapshot, positions: Sequence[int]) -> dict[str, pa.DataType]:
    """Return the types of these columns that are stored as dictionaries, by name."""
    schema = snapshot.projection.schema
    return {schema.field(at).name: schema.field(at).type for at in coded(snapshot, positions)}


def dataset_of(
    reader: Callable[[Snapshot, Sequence[int]], Any],
    scanned: tuple[Snapshot, Sequence[int]],
    dictionaries: Coded,
    views: bool,
    on_corrupt: OnCorrupt,
) -> BlzDataset:
    """Return a dataset with some columns as dictionaries, and others as views of these."""
    check_choice("on_corrupt", on_corrupt, ON_CORRUPT)
    snapshot, positions = scanned
    as_views = coded(snapshot, positions) if views or dictionaries == "auto" else []
    as_dictionaries: Sequence[int] = as_views
    if dictionaries != "auto":
        as_dictionaries = snapshot.positions(dictionaries or (), positions, "dictionaries")

    def source(indices: Sequence[int]) -> Readable:
        made: Any = reader(snapshot.with_dictionaries(indices), positions)
        return made if on_corrupt == "raise" else Salvaging(made, on_corrupt)

    made = source(list(dict.fromkeys([*as_dictionaries, *as_views])))
    schema = without_views(source(as_dictionaries).schema)
    return BlzDataset(made, schema=with_views(schema, made.schema))
