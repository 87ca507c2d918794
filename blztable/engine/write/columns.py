"""Write row groups of Arrow columns to files.

Commits nothing: no manifest names the new files yet.

Theory of operation. The calling thread draws row groups from the stream, one ahead. The threads of
the pool do the rest, in two kinds of tasks: one for each part encodes its array (`parts.py`) and
returns those that compress its chunks. A memory budget bounds the uncompressed bytes of the row
groups in progress. The parts of a small row group go to a bundle (`bundles.py`); a task makes
several of them.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter

import pyarrow as pa

from blztable import tuning
from blztable.arrow.types import Portion
from blztable.engine.run.limits import MemoryBudget
from blztable.engine.run.pool import Progress, Task, run_groups
from blztable.engine.version.staged import NewGroups
from blztable.engine.write.bundles import Bundle, is_small
from blztable.engine.write.column_writer import ColumnWriter, FileWriter, Numbers, flat_columns
from blztable.engine.write.options import Storage
from blztable.engine.write.parts import PartWriter, Shared, write_all
from blztable.engine.write.reuse import Old
from blztable.engine.write.row_groups import FIXED, bytes_taken
from blztable.storage.store import Store

# Is given the columns, and the rows and the bundles of the row groups that were begun.
OnProgress = Callable[[Sequence[ColumnWriter], Sequence[int], Sequence[Bundle | None]], None]


def write_groups(
    store: Store,
    uuid: str,
    columns: Sequence[ColumnWriter],
    groups: Iterable[Portion],
    storage: Storage,
    progress: Progress,
    numbers: Numbers,
    old: Old | None = None,
    bundle_numbers: list[int] | None = None,
    on_progress: OnProgress | None = None,
) -> NewGroups:
    """Write row groups of the table with this uuid in their order, and return them; none is empty.

    There is a writer for each node of the columns of the row groups, in pre-order. Files are
    numbered by `numbers`.

    Small row groups are bundled if there is a list for the numbers of bundles. The next row group
    is fetched while one is written. The memory of an array is released as soon as it is encoded.
    Chunks with the same contents as in the part that `old` returns are copied. `on_progress` is
    called between tasks, and at the end.
    """
    rows: list[int] = []
    made: list[Bundle | None] = []
    budget = MemoryBudget(tuning.current.one_thread_bytes)
    shared = Shared(FileWriter(store, uuid, numbers), storage, progress, budget, old)

    def tasks() -> Iterator[Iterator[Task]]:
        for table, nrows in groups:
            nodes: list[pa.ChunkedArray] = []
            for column in table.columns:
                nodes += flat_columns(column, columns[len(nodes)].name)
            del table
            nbytes = [_bytes_of(node) for node in nodes]
            entries = zip(range(len(columns)), columns, nodes, nbytes, strict=True)
            del nodes
            # The largest first: memory is released early, and small tasks remain for the end.
            arrays = deque(sorted(entries, key=_nbytes, reverse=True))
            del entries
            budget.acquire(sum(map(_nbytes, arrays)))
            group = len(rows), nrows
            made.append(_bundle(shared, arrays, group, columns, bundle_numbers))
            yield _encode_tasks(shared, arrays, group, made[-1])
            rows.append(nrows)

    def after_task() -> None:
        progress.report()
        if on_progress is not None:
            on_progress(columns, rows, made)

    run_groups(tasks(), budget, after_task)
    if on_progress is not None:
        on_progress(columns, rows, made)
    return NewGroups(rows, [bundle.number or 0 if bundle else 0 for bundle in made])


# The index of a column, its writer, its rows in one row group, and their bytes.
_Entry = tuple[int, ColumnWriter, pa.ChunkedArray, int]
_nbytes = itemgetter(3)


def _encode_tasks(
    shared: Shared, arrays: deque[_Entry], group: tuple[int, int], bundle: Bundle | None
) -> Iterator[Task]:
    """Yield the tasks that encode a row group, given as its index and its rows.

    `arrays` has the columns not begun yet.
    """
    bundled = bundle.columns if bundle else ()
    while arrays:
        entry = arrays.popleft()
        if entry[0] not in bundled:
            yield PartWriter(shared, *entry, group).encode
            continue
        writers, nbytes = [PartWriter(shared, *entry, group, bundle)], _nbytes(entry)
        while arrays and nbytes < tuning.current.write_task_bytes and arrays[0][0] in bundled:
            nbytes += _nbytes(arrays[0])
            writers.append(PartWriter(shared, *arrays.popleft(), group, bundle))
        yield partial(write_all, writers)


def _bytes_of(node: pa.ChunkedArray) -> int:
    """Return the bytes of the rows of a node."""
    # Arrow takes far longer to add up its buffers.
    return bytes_taken(node) if node.type.id in FIXED else node.nbytes


def _bundle(
    shared: Shared,
    arrays: Iterable[_Entry],
    group: tuple[int, int],
    columns: Sequence[ColumnWriter],
    numbers: list[int] | None,
) -> Bundle | None:
    """Return the bundle of a small row group; None if its parts get files of their own."""
    if numbers is None:
        return None
    most = tuning.current.bundled_column_bytes
    nbytes = {
        index: nbytes
        for index, column, _, nbytes in arrays
        if nbytes <= most and shared.own.get(column.name, shared.usual).may_be_bundled
    }
    if not is_small(nbytes.values()):
        return None
    target = shared.chunk_bytes
    return Bundle(
        nbytes, columns, group, shared.files, numbers, target, shared.budget, shared.progress
    )
