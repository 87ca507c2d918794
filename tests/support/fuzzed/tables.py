"""Tables, edited behind valid checksums, and read in every way."""

import contextlib
import functools
import json
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blosc
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import blztable as blz
from blztable.arrow.types import is_binary, is_text
from blztable.engine.version.versions import pin
from blztable.format.chunk import Compression
from blztable.format.records import PAGE, PART, STREAM
from blztable.storage.memory import RamStore
from blztable.table.batches import Batches
from blztable.tuning import tuned
from support import arrow_strategies as types
from support import nested_arrays, samples, tamper
from support.bit_equality import same_table
from support.fuzzed.changes import WORDS, bytes_in, json_text, json_value, number
from support.fuzzed.parts import with_header
from support.options import arguments

Random = random.Random

FRAMES = ("frame", "labelled", "timed", "versions", "pieces", "stored", "bundles", "no-rows")
FRAMES += ("no-columns",)
SMALL_ROWS = 1000
# More null rows than this take a lot of memory as DataFrames, necessarily.
MANY_ROWS = 1 << 24


@functools.cache
def seeds(only: str = "") -> dict[str, RamStore]:
    """Return tables of one column of every type, and some tables of several columns.

    With `only`, those whose names begin with it.
    """
    writers = {name: samples.SAMPLES[name] for name in FRAMES}
    for kind in [*types.PLAIN, *samples.DICTIONARIES]:
        writers[f"type {kind}"] = samples.table([kind])
    writers["nothing in files"] = samples.table([pa.null(), pa.binary(0)])
    for kind in (pa.null(), pa.binary(0)):
        writers[f"dictionary of {kind}"] = samples.table([pa.dictionary(pa.int64(), kind)])
    # The same with encodings, where a type has some.
    for kind in [*types.PLAIN, *samples.DICTIONARIES]:
        writers[f"encoded {kind}"] = samples.table([kind], encoding="auto")
    # Bundles have the parts of several columns, each of one page.
    for kind in [*types.PLAIN, *samples.DICTIONARIES]:
        beside = pa.int8() if kind == pa.int16() else pa.int16()
        writers[f"bundled {kind}"] = samples.table([kind, beside], page_rows=None)
    # Parts of at least 1 KiB: the writer keeps smaller ones plain.
    cuts: dict[str, Any] = {"encoding": "auto", "page_rows": 16, "row_group_rows": 250}
    numbers = samples.numbers_table(400)
    for column in numbers.column_names:
        one = numbers.select([column])
        writers[f"encoded {column}"] = functools.partial(blz.to_blz, one, **arguments(**cuts))
    many = samples.many_items(2500)
    writers["bundled numbers"] = functools.partial(
        blz.to_blz, numbers, storage=blz.Storage(row_group_rows=250)
    )
    alike = pa.table({f"c{n}": [n * row / 100 for row in range(200)] for n in range(20)})
    writers["bundled alike"] = functools.partial(blz.to_blz, alike)
    writers["bundled items"] = functools.partial(blz.to_blz, many.append_column("n", [range(2500)]))
    writers["encoded many"] = functools.partial(
        blz.to_blz, many, storage=blz.Storage(encoding="auto", page_rows=512)
    )
    empty = samples.frame().reset_index(drop=True).iloc[:0]
    writers["frame without rows"] = lambda place: blz.to_blz(empty, place)
    small = {"page_rows": 8, "row_group_rows": 24}
    for name, type_ in nested_arrays.ALL.items():
        one = pa.table({name: nested_arrays.array_of(type_, 40, 5)})
        writers[f"nested {name}"] = functools.partial(
            blz.to_blz, one, **arguments(encoding="plain", **small)
        )
        two = pa.table({name: nested_arrays.array_of(type_, 400, 5), "k": range(400)})
        writers[f"nested encoded {name}"] = functools.partial(blz.to_blz, two, **arguments(**cuts))
        writers[f"nested bundled {name}"] = functools.partial(
            blz.to_blz, two, storage=blz.Storage(row_group_rows=250)
        )
    for kind in (pa.string(), pa.large_binary(), pa.string_view()):
        writers[f"items {kind}"] = samples.table([kind], packing="per_item")
    inner = pa.table({"x": nested_arrays.array_of(nested_arrays.ALL["list of struct"], 40, 5)})
    writers["items nested"] = functools.partial(
        blz.to_blz, inner, **arguments(packing="per_item", **small)
    )
    for name in ("encoded many", "bundled items", "nested list of struct", "items string"):
        writers[f"deletions {name}"] = functools.partial(with_deletions, writers[name])
    stores = {}
    for name, write in writers.items():
        if not name.startswith(only):
            continue
        stores[name] = store = RamStore(name.replace("/", "-"))
        write(store)
        for version in range(1, 4 if name == "versions" else 2):
            with tamper.editing(store, version) as table:
                table.head |= {"uuid": "0" * 32, "commit": "0" * 32}
                table.head["time"] = f"2026-01-0{version}T00:00:00.000000+00:00"
                for pair in table.head["history"]:
                    pair[0] = f"2026-01-0{pair[1]}T00:00:00.000000+00:00"
    return stores


def with_deletions(write: Callable[[RamStore], object], store: RamStore) -> None:
    """Write a table, and delete every 20th row; the result has only this version."""
    source = RamStore()
    write(source)
    with blz.open(source, "a") as t:
        t.add_column("place", np.arange(len(t)))
        with tuned(rows_per_deleted=1):
            t.delete(pc.field("place").isin(range(3, len(t), 20)))
        assert t.versions()[-1].deleted_rows
    blz.copy(source, store, layout="file")


def save(store: RamStore, path: Path) -> None:
    """Save the table as a directory."""
    for key, entry in store._entries.items():
        if entry.data is not None:
            (path / "t.blz" / key).parent.mkdir(parents=True, exist_ok=True)
            (path / "t.blz" / key).write_bytes(entry.data)


def copied(store: RamStore) -> RamStore:
    """Return a store with the same values, which never change."""
    result = RamStore(store.name)
    result._entries = dict(store._entries)
    return result


# Mutations: each edits a table and returns a description.


def mutated(random: Random, stores: dict[str, RamStore]) -> tuple[RamStore, list[str]]:
    """Return one of the tables with one to three mutations, behind valid checksums."""
    frames = [name for name in FRAMES if name in stores]
    name = random.choice(frames if frames and random.random() < 0.4 else sorted(stores))
    store = copied(stores[name])
    done = [name]
    version = random.choice([1, 2, 3, 3, 3]) if name == "versions" else 1
    with tamper.editing(store, version) as table:
        for _ in range(random.choice([1, 1, 1, 2, 2, 3])):
            parts = [part for leaf in table.leaves for column in leaf.columns for part in column]
            if parts and random.random() < 0.7:
                mutate: Any = random.choice(OF_PARTS)
                said = mutate(random, random.choice(parts))
            else:
                mutate = random.choice(OF_MANIFESTS)
                said = mutate(random, table)
            done.append(f"{mutate.__name__}: {said}")
    return store, done


def put(random: Random, record: Any, names: Any) -> str:
    """Put another number into a field of a record."""
    name = random.choice(list(names))
    limits = np.iinfo(record.dtype[name])
    record[name] = min(max(number(random, int(record[name])), limits.min), limits.max)
    return f"{name} {record[name]}"


def fields_of_a_part(random: Random, part: tamper.Part) -> str:
    return put(random, part.record, ["rows", "nbytes", "page", "flags", *(PART.names or ())])


def fields_of_a_stream(random: Random, part: tamper.Part) -> str:
    if not part.streams:
        return "no stream"
    stream = random.choice(list(part.streams.values()))
    return put(random, stream.record, STREAM.names or ())


def fields_of_a_page(random: Random, part: tamper.Part) -> str:
    if not len(part.pages):
        return "no page"
    page = random.randrange(len(part.pages))
    pages = part.pages.copy()
    said = put(random, pages[page], PAGE.names or ())
    part.pages = pages
    return f"{page}: {said}"


def words(random: Random, part: tamper.Part) -> str:
    streams = [one for one in part.streams.values() if len(one.words)]
    if not streams:
        return "no words"
    stream = random.choice(streams)
    changed = stream.words.copy()
    place = random.randrange(len(changed))
    value = number(random, int(changed[place]))
    changed[place] = min(max(value, -(1 << 63)), (1 << 63) - 1)
    stream.words = changed
    return f"{place} is {changed[place]}"


def number_of_words(random: Random, part: tamper.Part) -> str:
    if not part.streams:
        return "no stream"
    stream = random.choice(list(part.streams.values()))
    stream.words = np.resize(stream.words, random.choice([0, 1, 2, len(stream.words) + 1]))
    return str(len(stream.words))


def streams(random: Random, part: tamper.Part) -> str:
    """Remove a stream, or give it another name."""
    if not part.streams:
        return "no stream"
    name = random.choice(list(part.streams))
    stream = part.streams.pop(name)
    if random.random() < 0.5:
        other = random.randrange(6)
        stream.record["name"] = other
        part.streams[other] = stream
        part.streams = dict(sorted(part.streams.items()))
        return f"{name} is {other}"
    return f"{name} is gone"


def chunk_of(random: Random, part: tamper.Part) -> tuple[Any, int]:
    streams = [one for one in part.streams.values() if one.chunks]
    if not streams:
        return None, 0
    stream = random.choice(streams)
    return stream, random.randrange(len(stream.chunks))


def values_of_a_chunk(random: Random, part: tamper.Part) -> str:
    """Replace the bytes of a chunk; it still decompresses."""
    stream, place = chunk_of(random, part)
    try:
        raw = bytearray(blosc.decompress(stream.chunks[place]))
        assert raw
    except Exception:
        return "not a chunk any more"
    said = bytes_in(random, raw)
    typesize = stream.chunks[place][3] or 1
    stream.chunks[place] = Compression(random.choice(["lz4", "zlib", "zstd"])).compress(
        np.frombuffer(bytes(raw), "u1"), typesize
    )
    return said


def bytes_of_a_chunk(random: Random, part: tamper.Part) -> str:
    """Damage bytes behind the header of a chunk, to test the codecs."""
    stream, place = chunk_of(random, part)
    if stream is None:
        return "no chunk"
    chunk = stream.chunks[place]
    raw = bytearray(chunk[16:])
    said = bytes_in(random, raw)
    stream.chunks[place] = chunk[:16] + bytes(raw)
    return said


def header_of_a_chunk(random: Random, part: tamper.Part) -> str:
    stream, place = chunk_of(random, part)
    if stream is None or len(stream.chunks[place]) < 16:
        return "no chunk"
    name, bits = random.choice(
        [
            *[("version", 8), ("version_lz", 8), ("flags", 8), ("flags", 8), ("typesize", 8)],
            *[("nbytes", 32), ("blocksize", 32), ("blocksize", 32)],
        ]
    )
    value = number(random, 8) % (1 << bits)
    stream.chunks[place] = with_header(stream.chunks[place], **{name: value})
    return f"{name} {value}"


def size_of_a_stream(random: Random, part: tamper.Part) -> str:
    """Replace the bytes of a stream by fewer or more."""
    streams = [one for one in part.streams.values() if one.chunks and one.record["kind"] != 4]
    if not streams:
        return "no stream"
    stream = random.choice(streams)
    try:
        data = stream.data()
    except Exception:
        return "not a chunk any more"
    raw = bytearray(data.tobytes())
    said = bytes_in(random, raw, may_resize=True)
    stream.set_data(bytes(raw))
    return said


def leaf(random: Random, table: tamper.Table) -> str:
    """Change a field of a row group, or a word of deleted rows."""
    leaves = [one for one in table.leaves if len(one.groups)]
    if not leaves:
        return "no row group"
    one = random.choice(leaves)
    if len(one.deleted) and random.random() < 0.4:
        changed = one.deleted.copy()
        place = random.randrange(len(changed))
        value = number(random, int(changed[place]))
        changed[place] = min(max(value, -(1 << 63)), (1 << 63) - 1)
        one.deleted = changed
        return f"word {place} is {changed[place]}"
    entry = random.randrange(len(one.groups))
    return f"{entry}: {put(random, one.groups[entry], one.groups.dtype.names)}"


def rows(random: Random, table: tamper.Table) -> str:
    """Change the rows of a row group, in every place that states them."""
    leaves = [one for one in table.leaves if one.level == 0 and len(one.groups)]
    if not leaves or not isinstance(table.head, dict) or type(table.head.get("rows")) is not int:
        return "no row group"
    one = random.choice(leaves)
    entry = random.randrange(len(one.groups))
    was = int(one.groups["rows"][entry])
    count = min(abs(number(random, was)), (1 << 40) - 1)
    one.groups["rows"][entry] = one.groups["stored"][entry] = count
    table.head["rows"] += count - was
    for column in one.columns:
        part = column[entry]
        if int(part.record["rows"]) == was:
            part.record["rows"] = count
            part.record["page"] = page = random.choice([int(part.record["page"]), 30])
            if len(part.pages) and count <= 1 << 34:
                part.pages = np.resize(part.pages, min(-(-count // (1 << min(page, 40))), 1 << 16))
    return f"{count} for {was}"


def nodes(random: Random, table: tamper.Table) -> str:
    """Exchange the parts of two nodes."""
    leaves = [one for one in table.leaves if len(one.columns) > 1]
    if not leaves:
        return "no nodes"
    columns = random.choice(leaves).columns
    one, other = random.sample(range(len(columns)), 2)
    for first, second in zip(columns[one], columns[other], strict=True):
        for name in ("streams", "pages", "prefix", "record"):
            if random.random() < 0.8:
                mine, theirs = getattr(first, name), getattr(second, name)
                setattr(first, name, theirs)
                setattr(second, name, mine)
    return f"{one} and {other}"


def head(random: Random, table: tamper.Table) -> str:
    if not isinstance(table.head, dict):
        return "no object any more"
    table.head, said = json_value(random, table.head)
    return said


def text_of_head(random: Random, table: tamper.Table) -> str:
    table.head, said = json_text(random, table.head)
    return said


def frame(random: Random, table: tamper.Table) -> str:
    """Change the DataFrame's descriptor, the attributes or the properties."""
    try:
        name = random.choice(["pandas", "pandas", "pandas", "attributes", "properties"])
        below = table.head[name]
        if not below:
            below = {"version": 1, "index": [{"kind": "range", "start": 0, "step": 1}]}
        table.head[name], said = json_value(random, below)
        return f"{name}: {said}"
    except (KeyError, TypeError):
        return "no object any more"


def schema(random: Random, table: tamper.Table) -> str:
    """Change a type, a name, metadata or bytes of the schema."""
    try:
        data = table.schema
        found = pa.ipc.read_schema(pa.py_buffer(data))
        _ = found.names
    except Exception:
        return "no schema any more"
    said, fields = "bytes", list(found)
    kind = random.randrange(6)
    if kind == 0 or not fields:
        raw = bytearray(data)
        said = bytes_in(random, raw)
        data = bytes(raw)
    else:
        index = random.randrange(len(fields))
        field = fields[index]
        known = field.metadata or {}
        match kind:
            case 1 | 2:
                other = random.choice([*types.PLAIN, *samples.DICTIONARIES, *OTHERS])
                fields[index] = field.with_type(other)
                said = str(other)
            case 3:
                fields[index] = field.with_name(random.choice(["", fields[-1].name, "\0", "x"]))
                said = fields[index].name
            case _:
                try:
                    descriptor = json.loads(known[b"blz:pandas"])
                except (KeyError, ValueError):
                    descriptor = {"dtype": random.choice(WORDS)}
                changed, said = json_value(random, descriptor)
                text = tamper.as_text(changed)
                if random.random() < 0.1:
                    text, said = json_text(random, text)
                fields[index] = field.with_metadata({**known, b"blz:pandas": text[:100_000]})
        data = pa.schema(fields, found.metadata).serialize().to_pybytes()
    table.schema = data
    return said


OTHERS = [
    pa.list_(pa.int8()),
    pa.struct({"a": pa.int8()}),
    pa.run_end_encoded(pa.int32(), pa.int8()),
]
OTHERS += [pa.timestamp("ns", "no/zone"), pa.timestamp("s", "\0"), pa.binary((1 << 31) - 1)]
OTHERS += [pa.binary(1 << 20), pa.dictionary(pa.int8(), pa.dictionary(pa.int8(), pa.int8()))]
OTHERS += [pa.map_(pa.int8(), pa.int8()), pa.dictionary(pa.int8(), pa.binary(0)), pa.float16()]

OF_PARTS: list[Callable[[Random, tamper.Part], str]] = [
    *([values_of_a_chunk] * 4 + [bytes_of_a_chunk] * 2 + [words] * 4 + [fields_of_a_stream] * 4),
    *([fields_of_a_part] * 3 + [fields_of_a_page] * 3 + [size_of_a_stream] * 2),
    header_of_a_chunk,
    number_of_words,
    streams,
]
OF_MANIFESTS: list[Callable[[Random, tamper.Table], str]] = [
    *([schema] * 5 + [frame] * 4 + [head] * 3 + [leaf] * 4 + [rows] * 3 + [nodes] * 3),
    text_of_head,
]


def read_all(random: Random, store: RamStore) -> str:
    """Read in every way; return the outcome, or an unexpected exception."""
    outcomes = {outcome(lambda: whole(store)), outcome(lambda: pandas(random, store))}
    readings = [rows_of, streamed, looked_at, statistics, written, columns_of]
    readings += [filtered, picked, as_dictionaries]
    for reading in random.sample(readings, 2):
        outcomes.add(outcome(lambda reading=reading: reading(random, store)))
    return "read" if outcomes == {"read"} else "refused" if "read" not in outcomes else "both"


def outcome(read: Callable[[], None]) -> str:
    try:
        read()
    except blz.BlzError:
        return "refused"
    return "read"


def whole(store: RamStore) -> None:
    """Read everything: numbers in bundles together, as most reads do, and one by one."""
    try:
        table = blz.read_table(store)
    except blz.BlzError:
        for least in (1, 1 << 30):
            with tuned(matrix_columns_read=least), contextlib.suppress(blz.BlzError):
                blz.read_table(store)
                raise AssertionError(
                    "refused or not, as columns are read together or not"
                ) from None
        raise
    sound(table)
    if table.num_rows <= SMALL_ROWS:
        for least in (1, 1 << 30):
            with tuned(matrix_columns_read=least):
                again = blz.read_table(store)
            assert again.equals(table) or same_table(again, table), "read twice, it differs"


def pandas(random: Random, store: RamStore) -> None:
    backend = random.choice(
        [{}, {}, {"dtype_backend": random.choice(["pyarrow", "numpy_nullable"])}]
    )
    with blz.open(store) as table:
        if MANY_ROWS < len(table) < 1 << 40:
            return
    frame = blz.read_blz(store, **backend)
    if len(frame) <= SMALL_ROWS:
        # Arrow 26 crashes on nulls in a dictionary of type null, whoever made it.
        if not any("values=null" in str(dtype) for dtype in frame.dtypes):
            frame.isna()
        frame.copy(deep=True)
        assert frame.index.memory_usage() >= 0
        # Warnings about times outside of Python's years, and about unknown zones.
        with contextlib.suppress(NotImplementedError, ValueError, OverflowError):
            frame.equals(frame)
            len(frame.index.unique())


def rows_of(random: Random, store: RamStore) -> None:
    with blz.open(store) as table:
        sound(table.head(random.choice([0, 1, 9])))
        for name in table.columns:
            if table.columns.count(name) == 1:
                column = table[name]
                start, stop = sorted(random.randrange(max(len(table), 1)) for _ in range(2))
                if stop - start <= SMALL_ROWS:
                    sound(pa.table({"x": column[start:stop]}))
                if 0 < len(table) <= SMALL_ROWS:
                    with contextlib.suppress(ValueError, ArithmeticError):
                        column[random.randrange(len(table))]
                    outcome(column.to_numpy)
                    column.to_pandas()


def columns_of(random: Random, store: RamStore) -> None:
    with blz.open(store) as table:
        names = [random.choice(table.columns) for _ in range(2 if table.columns else 0)]
        sound(table.to_arrow(names))
        if not MANY_ROWS < len(table) < 1 << 40:
            table.to_pandas(names)


def filtered(random: Random, store: RamStore) -> None:
    """Filter by a value that the table has, on codes too."""
    with tuned(rows_per_code=1 / 1000), blz.open(store) as table:
        if not table.columns or not 0 < len(table) <= SMALL_ROWS:
            return
        name = random.choice(table.columns)
        row = random.randrange(len(table))
        if table.columns.count(name) > 1:
            return
        value = table[name].to_arrow()[row]
        field = pc.field(name)
        for condition in (field == value, field <= value, field.is_null(), field.is_valid()):
            outcome(lambda condition=condition: sound(table.to_arrow(filters=condition)))


def picked(random: Random, store: RamStore) -> None:
    """Take single rows, which must be those of a whole read."""
    with blz.open(store) as table:
        if not 0 < len(table) <= SMALL_ROWS:
            return
        rows = [random.randrange(len(table)) for _ in range(random.choice([1, 3, 9]))]
        found = table.take(rows)
        sound(found)
        try:
            whole = table.to_arrow()
        except blz.BlzError:
            return
        if whole.num_columns:
            expected = pa.concat_tables([whole.slice(row, 1) for row in rows])
            assert same_table(found, expected), "rows differ from those of a whole read"


def as_dictionaries(random: Random, store: RamStore) -> None:
    with blz.open(store) as table:
        names = [
            field.name for field in table.schema if is_text(field.type) or is_binary(field.type)
        ]
        sound(table.to_arrow(dictionaries=names))


def streamed(random: Random, store: RamStore) -> None:
    """Read by batches; the other side of the interface only gets the error message."""
    with blz.open(store) as table:
        positions = range(len(table.columns))
        for batch in Batches(table._snapshot, positions):
            sound(pa.table(batch))
        sound(pa.table(table))


def looked_at(random: Random, store: RamStore) -> None:
    with blz.open(store) as table:
        repr(table)
        assert isinstance(dict(table.attrs), dict)
        _ = (table.nbytes, table.cbytes, table.version, len(table), table.schema)
        _ = table.row_groups
        for name in set(table.columns):
            if table.columns.count(name) == 1:
                repr(table[name])
        for version in range(1, table.version):
            blz.read_table(store, version=version)


def statistics(random: Random, store: RamStore) -> None:
    """Open each data file by itself, and check the whole table."""
    version, pinned = pin(store)
    with pinned:
        for line in range(len(version.paths)):
            parts = version.parts(line)
            for group in range(version.group_count):
                key = parts.key(group) if parts.files[group] else ""
                entry = store._entries.get(key) if key else None
                if entry and entry.data:
                    with contextlib.suppress(blz.BlzError), blz.SuperChunk.open(entry.data) as part:
                        if part.shape[0] <= SMALL_ROWS:
                            part.to_numpy()
    with blz.open(store) as table:
        if len(table) <= SMALL_ROWS:
            table.verify()


def written(random: Random, store: RamStore) -> None:
    """Write to a table from an attacker."""
    store = copied(store)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # steps after the commit may fail
        with blz.open(store, "a") as table:
            table.attrs["written"] = True
        committed(lambda: blz.open(store).attrs["written"])
        if random.random() < 0.3:
            blz.to_blz({"a": [1]}, store, durability="process")
            committed(lambda: blz.read_table(store).num_rows == 1)


def committed(read: Callable[[], bool]) -> None:
    """Check that a successful commit can be read, whatever the table held before."""
    try:
        assert read()
    except blz.BlzError as error:
        raise AssertionError("what was committed cannot be read") from error


def sound(table: pa.Table) -> None:
    """Touch every value; raise if Arrow finds an invalid one."""
    for column in table.columns:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            # The writer, too, stores any bits of a number; none of them do harm.
            if not any(
                word in str(error) for word in ("precision", "range", "whole number of days")
            ):
                raise
        if len(column) <= SMALL_ROWS:
            try:
                column.to_pylist()
            except (ValueError, ArithmeticError) as error:
                if "duplicate field names" in str(error):
                    continue
                inner = getattr(column.type, "value_type", column.type)
                if not (pa.types.is_temporal(inner) or pa.types.is_decimal(inner)):
                    raise
