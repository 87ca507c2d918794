"""Tuning: the sizes, shares and times that the package works by.

Another number makes the package slower, larger or less patient, and never wrong: files that were
written with any of them are read with all others. Limits of the format are not here.

A number is read from `current` where it is used, at each use, so that `tuned` changes it in all
rooms at once. Knows nothing of the rooms.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Tuning:
    """The numbers of one process."""

    # Row groups. The first three give the rows of a row group whose writer does not choose.
    group_bytes: int = 256_000_000
    group_column_bytes: int = 64_000_000
    least_group_rows: int = 65_536
    # A column of variable width has at most this many bytes in a row group.
    group_text_bytes: int = 1_000_000_000
    # An Arrow array costs about 1,000 bytes, so this many tables of fewer bytes are joined.
    joined_tables: int = 256
    joined_bytes: int = 1 << 18
    # Threads of a read or a write, with the caller's; 0 for as many as the process may use
    # processors: see `set_threads`.
    threads: int = 0
    # Up to this size most of the time is spent in Python, which runs one thread at a time.
    one_thread_bytes: int = 1 << 20
    # Smaller tasks would spend more time in Python than in compression.
    write_task_bytes: int = 1 << 20

    # Bundles. A row group is bundled if its columns have at most this many bytes each, as a mean.
    # 0 makes no bundles.
    bundled_bytes: int = 64 << 10
    # Columns with more bytes have files of their own.
    bundled_column_bytes: int = 1 << 20
    # A bundle is in memory until its last part is ready.
    bundle_bytes: int = 512 << 20
    # The next row group waits until half of a bundle of more bytes is compressed. Smaller bundles
    # take little memory, and several of them are made at once.
    large_bundle_bytes: int = 16 << 20

    # Encodings gain less than their metadata take in a part of fewer bytes.
    encoded_bytes: int = 1 << 10
    # A sample of a column with nulls must have at least this many values.
    sampled_values: int = 256
    # A part may have one exception (a value that is no decimal) for so many rows, and one item of a
    # dictionary for so many.
    rows_per_exception: int = 64
    rows_per_item: int = 8
    # Few items: two of their codes are looked up at once.
    few_items: int = 128
    # Columns of one type that are encoded together, as a matrix; of fewer, each gets the encoding
    # that is smallest.
    matrix_columns_written: int = 3
    # Fewer parts of a matrix are read as fast one by one.
    matrix_columns_read: int = 16
    # The bytes of a matrix of several columns.
    matrix_bytes: int = 2 << 20
    # To decode fewer bytes takes less time than to wake another thread.
    matrix_shared_bytes: int = 2 << 20

    # Reads. Uncompressed bytes of a span: chunks that lie together and are read by one call.
    span_bytes: int = 2 << 20
    # Smaller spans share a task, because a task costs some 20 microseconds of Python.
    read_task_bytes: int = 1 << 18
    # What a process keeps of versions, leaves and parts that it has read: see `set_cache`.
    kept_bytes: int = 64 << 20
    # Maximum number of reads that locate damage exactly, for each column and row group.
    damage_reads: int = 1024
    # Bytes of a window of a stream. Windows and row groups have whole multiples of so many rows.
    window_bytes: int = 64_000_000
    window_rows: int = 1 << 17
    # Bytes of a part of a table, and of a fragment of a dataset: all processors decode one.
    part_bytes: int = 64_000_000

    # Remote stores. Requests in flight in the process, and bytes that a read asks for before they
    # are decoded.
    requests: int = 64
    ahead_bytes: int = 256 << 20
    # Bytes between two ranges that are read through, of runs of rows and of single rows, because
    # they come faster than another request. Longer ranges are several requests.
    gap_bytes: int = 1 << 20
    gap_row_bytes: int = 64 << 10
    piece_bytes: int = 8 << 20
    # Bytes that are asked for although few of them may be needed, because that saves a round.
    spare_bytes: int = 32 << 20
    spare_text_bytes: int = 1 << 20
    # Bytes of a block that a cache on a disk keeps: of single rows, a block is all that is needed.
    cached_block_bytes: int = 64 << 10

    # Without locks: a file that no version names is removed when it is so many seconds old. No
    # commit names a new file of that age less the second number, and after the third the age is
    # asked for.
    orphan_seconds: int = 7 * 86_400
    orphan_margin: int = 86_400
    unasked_seconds: int = 3600
    # A table keeps any number of versions for so long, if its properties do not say it. Leases, and
    # the marks of vacuums, count for so many seconds.
    unlocked_seconds: int = 7 * 86_400
    lease_seconds: int = 3600

    # Filters. Bytes of a window of a filter's columns, for a read whose result is one table.
    filter_bytes: int = 256_000_000
    # Rows of a morsel; more if one row group has more.
    morsel_rows: int = 1 << 19
    # Single rows are read if at most one row in so many is wanted. At 4 to 8 % of the rows, to
    # decode pages and to choose among their rows costs as much as to read the rows one by one.
    rows_per_selected: int = 16
    # The same for rows of lists of one size: the index of each item costs more than its value.
    rows_per_list: int = 256
    # A part is read as codes only if it has so many rows for each code.
    rows_per_code: float = 4

    # Changes. A row group is written again once more than one in so many of its rows is deleted,
    # and once the table has so many deleted rows, because each commit writes them and each reader
    # reads them.
    rows_per_deleted: int = 16
    deleted_rows: int = 1 << 14

    # A level of leaves is sealed when its tail has so many entries, or so many bytes and a few.
    leaf_entries: int = 32
    leaf_bytes: int = 256 << 10
    leaf_few: int = 4

    # Versions that a table keeps, and for how many seconds, if its properties do not say it.
    keep_versions: int = 10
    keep_seconds: int = 3600
    # Versions kept by a commit that replaces the table: a copy shares no file with the one before.
    keep_replaced: int = 2
    # A quick run of appends removes its expired versions when there are this many, or when one of
    # them was replaced this many seconds ago.
    run_versions: int = 8
    run_seconds: float = 60

    # Locks. Maximum seconds of a wait for a lock of a table.
    lock_seconds: float = 30.0
    # The same for an array: a reader waits for a writer, and a writer for readers.
    array_lock_seconds: float = 5.0
    # Seconds for which a waiting vacuum keeps the gate closed, and then open.
    gate_closed_seconds: float = 1.0
    gate_open_seconds: float = 0.2

    # The layout of a new table whose writer does not choose one.
    layout: str = "directory"
    # A table in one file is rewritten at the end of a commit when it has more dead bytes than live
    # ones, and more than this.
    dead_bytes: int = 64 << 20
    # More live bytes are left to `vacuum`: other writers wait during a rewrite.
    rewritten_bytes: int = 1 << 30
    # One read of the end of a file has the whole commit, except for very wide tables.
    tail_bytes: int = 64 << 10

    # Bytes of text that the command line reads at once.
    block_bytes: int = 8 << 20


current = Tuning()


@contextmanager
def tuned(**numbers: Any) -> Iterator[None]:
    """Work with other numbers in a `with` block, in all threads of the process."""
    global current
    usual = current
    current = replace(usual, **numbers)
    try:
        yield
    finally:
        current = usual
