"""Tables, edited behind valid checksums, and read in every way."""

import base64
import contextlib
import functools
import json
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from blztable.format.bundle import ENTRY
from blztable.format.line import Statistics
from blztable.format.superchunk import unpack

import blztable as blz
from blztable.arrow.types import is_binary, is_text
from blztable.engine.version.versions import pin
from blztable.storage.memory import RamStore
from blztable.table.batches import Batches
from blztable.tuning import tuned
from support import arrow_strategies as types
from support import nested_arrays, samples, tamper
from support.bit_equality import same_table
from support.fuzzed.changes import WORDS, bytes_in, json_text, json_value, number
from support.fuzzed.parts import (
    bytes_of_a_chunk,
    digests,
    header,
    header_of_a_chunk,
    layers,
    metadata,
    offsets,
    order_of_chunks,
    text_of_metadata,
    trailer,
    values_of_a_chunk,
)
from support.options import arguments

Random = random.Random

FRAMES = ("frame", "labelled", "timed", "versions", "pieces", "stored", "bundles", "no-rows")
FRAMES += ("no-columns",)
SMALL_ROWS = 1000
# More null rows than this take a lot of memory as DataFrames, necessarily.
MANY_ROWS = 1 << 24

KINDS = ["narrow", "scaled", "delta", "lengths", "each", "dictionary", "constant", "runs", "none"]
KINDS += ["per_item"]


@functools.cache
def seeds(only: str = "") -> dict[str, RamStore]:
    """Return tables of one column of every type, and some tables of several columns.

    With `only`, those whose names begin with it.
    """
    writers = {name: samples.SAMPLES[name] for name in FRAMES}
    for kind in [*types.PLAIN, *samples.DICTIONARIES]:
        writers[f"type {kind}"] = samples.table([kind], checksum="adler32")
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
            places = [
                functools.partial(table.part, column, group)
                for column, line in enumerate(table._lines_were)
                for group, k in enumerate(line["k"])
                if k
            ]
            numbers = table._head_was.get("bundles", {}).get("k", [])
            bundles = [functools.partial(table.bundle, one) for one, k in enumerate(numbers) if k]
            if bundles and random.random() < 0.7:
                mutate = random.choice(OF_BUNDLES)
                said = mutate(random, random.choice(bundles)())
            elif places and random.random() < 0.7:
                mutate = random.choice(OF_PARTS)
                said = mutate(random, random.choice(places)())
            else:
                mutate = random.choice(OF_MANIFESTS)
                said = mutate(random, table)
            done.append(f"{mutate.__name__}: {said}")
    return store, done


def entries(random: Random, bundle: tamper.Part) -> str:
    """Change a field of an entry of a bundle, or swap two entries."""
    try:
        found = bundle.stream(0).view(ENTRY)
        first, other = (random.randrange(len(found)) for _ in range(2))
        if random.random() < 0.2:
            found[[first, other]] = found[[other, first]]
            said = f"entries {first} and {other} are swapped"
        else:
            name = random.choice(ENTRY.names)
            near = int(random.choice([found[name][first], found[name][other]]))
            value = near if random.random() < 0.3 else number(random, near)
            limits = np.iinfo(ENTRY[name])
            found[name][first] = min(max(value, limits.min), limits.max)
            said = f"{name} of entry {first} is {found[name][first]}"
        keep = len(found) - (random.random() < 0.05)
        bundle.set_stream(0, found[:keep].tobytes())
    except Exception:
        return "no entries any more"
    return said


def lines_of_encodings(random: Random, bundle: tamper.Part) -> str:
    """Change one of the encodings of a bundle."""
    try:
        lines = bundle.stream(1).tobytes().split(b"\n")[:-1]
        index = random.randrange(len(lines))
        value = json.loads(lines[index])
        if random.random() < 0.2:
            value["kind"], said = random.choice(KINDS), "another kind"
        else:
            value, said = json_value(random, value)
        lines[index] = tamper.as_text(value)
        if random.random() < 0.1:
            lines[index], said = json_text(random, value)
        bundle.set_stream(1, b"".join(line + b"\n" for line in lines))
    except Exception:
        return "no encodings any more"
    return f"encoding {index}: {said}"


def encodings(random: Random, part: tamper.Part) -> str:
    """Change a parameter of the encoding of a stream, or the form of its codes."""
    try:
        encoded = [one for one in part.metadata["streams"] if "encoding" in one]
        stream = random.choice(encoded)
        encoding = stream["encoding"]
        name = random.choice([*encoding, *encoding, "dtype", "typesize"])
        if name in ("dtype", "typesize"):
            stream[name] = random.choice(["|u1", "<u2", "<u4", "<u8", "<i4", 1, 2, 4, 8])
            return f"{name} {stream[name]}"
        if name == "kind":
            encoding[name] = random.choice(KINDS)
        elif isinstance(encoding[name], str) and random.random() < 0.8:
            raw = bytearray(base64.b64decode(encoding[name]))
            bytes_in(random, raw, may_resize=True)
            encoding[name] = base64.b64encode(raw).decode()
        else:
            encoding[name] = number(random, 2)
        return f"{name} {encoding[name]!s:.80}"
    except (KeyError, TypeError, AttributeError, IndexError, ValueError):
        return "no encoding"


def streams(random: Random, part: tamper.Part) -> str:
    """Change the size of a stream, in every place that states it."""
    if not isinstance(part.metadata, dict):
        part.header["chunk_size"] = part.header["last_chunk"] = number(random, 64) % (1 << 31)
        return f"chunk_size {part.header['chunk_size']}"
    try:
        stream = random.choice(part.metadata["streams"])
        nbytes = stream["nbytes"] = abs(number(random, stream["nbytes"]))
        stream["chunks"] = [nbytes]
        stream.pop("chunk_size", None)
        if random.random() < 0.5:
            size = random.choice([nbytes, 1 << 20, 8 << 20])
            stream["chunks"] = [size] * (min(nbytes, 1 << 30) // max(size, 1))
        if stream.get("pages"):
            stream["pages"][-1] += nbytes - sum(stream["pages"])
        return f"{stream['name']} {nbytes}"
    except (KeyError, TypeError, AttributeError, IndexError):
        return "not a block any more"


def items_of_lists(random: Random, part: tamper.Part) -> str:
    """Change how many items the pages of a list have, with or without their sum."""
    try:
        (stream,) = (one for one in part.metadata["streams"] if one["dtype"] == "rows")
        pages = stream["pages"]
        page = random.randrange(len(pages))
        value = number(random, pages[page])
        if random.random() < 0.5:
            pages[page - 1] += pages[page] - value
        pages[page] = value
        return f"{pages}"
    except (KeyError, TypeError, AttributeError, IndexError, ValueError):
        return "no list"


def line(random: Random, table: tamper.Table) -> str:
    if not table.lines:
        return "none"
    index = random.randrange(len(table.lines))
    if not isinstance(table.lines[index], dict):
        return "no object any more"
    table.lines[index], said = json_value(random, table.lines[index])
    return f"{index}: {said}"


def places(random: Random, table: tamper.Table) -> str:
    """Move a part within its bundle, or change what the head says about a bundle."""
    lines = [line for line in table.lines if isinstance(line, dict) and line.get("at")]
    bundles = table.head.get("bundles") if isinstance(table.head, dict) else None
    if not lines or not isinstance(bundles, dict):
        return "there are no bundles"
    if random.random() < 0.3:
        name = random.choice(list(bundles))
        if not isinstance(bundles[name], list) or not bundles[name]:
            return "not a list"
        group = random.randrange(len(bundles[name]))
        near = random.choice([0, 1, 2, 99, random.choice(bundles[name])])
        bundles[name][group] = near if random.random() < 0.5 else number(random, near)
        return f"{name} of the bundle of row group {group} is {bundles[name][group]}"
    line = random.choice(lines)
    key = random.choice(["at", "at", "k", "cbytes"])
    if not isinstance(line.get(key), list) or not line[key]:
        return "not a list"
    group = random.randrange(len(line[key]))
    near = random.choice(lines).get("at")
    value = random.choice(near) if near and isinstance(near, list) else 0
    line[key][group] = value if random.random() < 0.4 else number(random, line[key][group])
    return f"{key} of row group {group} is {line[key][group]}"


def nulls(random: Random, table: tamper.Table) -> str:
    """Claim of some parts that NaN is null, or that items are chunks, or no longer claim it."""
    lines = [line for line in table.lines if isinstance(line, dict)]
    if not lines or not isinstance(table.head, dict):
        return "no line"
    line = random.choice(lines)
    groups = line["k"] if isinstance(line.get("k"), list) else [0]
    claim = random.choice(["nan_is_null", "nan_is_null", "per_item"])
    line[claim] = [random.choice([0, 1, 1]) for _ in groups]
    if random.random() < 0.9:
        table.head["requires"] = ["bundles", "nan_is_null", "per_item"]
    if random.random() < 0.5 and isinstance(line.get("streams"), dict):
        line["streams"].pop("valid", None)
    return f"{claim} {line[claim]}"


def nodes(random: Random, table: tamper.Table) -> str:
    """Change the rows or the path of a node below a root, exchange two nodes, or remove one."""
    try:
        below = [number for number, one in enumerate(table.lines) if type(one["path"]) is list]
        index = random.choice(below)
        one, other = table.lines[index], table.lines[random.choice(below)]
        match random.randrange(6):
            case 0 | 1 | 2:
                group = random.choice(range(len(one["rows"])))
                rows = one["rows"][group] = abs(number(random, one["rows"][group]))
                if table._lines_were[index]["k"][group]:
                    table.part(index, group).metadata["rows"] = rows
                said = f"row group {group} of node {index} has {rows}"
            case 3:
                for key in random.choice([["k"], ["at"], list(one)]):
                    if key != "path":
                        one[key], other[key] = other[key], one[key]
                said = f"node {index} is {other['path']}"
            case 4:
                path = [*one["path"][:-1], abs(number(random, one["path"][-1]))]
                path = random.choice([path, one["path"] * 2, one["path"][:-1], other["path"]])
                one["path"] = table.head["columns"]["path"][index] = path
                said = f"node {index} has the path {path}"
            case _:
                if table._parts:
                    return "the number of a node is in use"
                del table.lines[index], table._lines_were[index]
                for values in table.head["columns"].values():
                    if isinstance(values, list):
                        del values[index]
                said = f"node {index} is gone"
        return said
    except (KeyError, TypeError, AttributeError, IndexError):
        return "no nodes"


def text_of_a_line(random: Random, table: tamper.Table) -> str:
    if not table.lines:
        return "none"
    index = random.randrange(len(table.lines))
    table.lines[index], said = json_text(random, table.lines[index])
    return f"{index}: {said}"


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


def rows(random: Random, table: tamper.Table) -> str:
    """Change the number of rows of a row group, in every place that states it."""
    try:
        groups = table.head["row_groups"]
        if not groups:
            groups.append(0)
        group = random.randrange(len(groups))
        count = groups[group] = max(number(random, groups[group]), 0)
        table.head["rows"] = sum(groups)
        for column, line in enumerate(table.lines):
            for name, values in line.items():
                if isinstance(values, list) and name != "path" and len(values) <= group:
                    values += [None if name in ("min", "max") else 8 if "page" in name else 0]
            line["rows"][group] = count
            if random.random() < 0.3:
                line["page_rows"][group] = random.choice([8, 1 << 20, 1 << 30])
            if any(table._lines_were[column]["k"][group : group + 1]):
                block = table.part(column, group).metadata
                if isinstance(block, dict):
                    block |= {"rows": count, "page_rows": line["page_rows"][group]}
        return f"group {group} has {count}"
    except (KeyError, TypeError, AttributeError, IndexError):
        return "no such thing any more"


def schema(random: Random, table: tamper.Table) -> str:
    """Change a type, a name, metadata or bytes of the schema."""
    try:
        data = base64.b64decode(table.head["schema"])
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
    table.head["schema"] = base64.b64encode(data).decode()
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
    *([values_of_a_chunk] * 4 + [bytes_of_a_chunk] * 3 + [metadata] * 3 + [streams] * 2),
    *([encodings] * 3 + [items_of_lists] * 3),
    header_of_a_chunk,
    order_of_chunks,
    offsets,
    digests,
    header,
    text_of_metadata,
    trailer,
    layers,
]
OF_BUNDLES = [*OF_PARTS, *([entries] * 12), *([lines_of_encodings] * 6)]
OF_MANIFESTS: list[Callable[[Random, tamper.Table], str]] = [
    *([schema] * 5 + [frame] * 4 + [head] * 3 + [line] * 4 + [places] * 3 + [rows] * 3),
    *([nulls] * 2 + [nodes] * 3),
    text_of_a_line,
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
    version, pinned = pin(store)
    with pinned:
        for index in range(len(version.paths)):
            parts = version.parts(index)
            assert len(parts.statistics) == len(parts.k)
            for group in range(len(parts.k)):
                facts, key = parts.meta[group], parts.key(group, version.bundles)
                entry = store._entries.get(key) if key else None
                data = entry.data if entry and entry.data else b""
                if 0 < facts.front_length < len(data) >= facts.trailer_length:
                    front = data[: facts.front_length]
                    foot = data[len(data) - facts.trailer_length :]
                    found = unpack(front, foot, facts)
                    pages = -(-found.info.rows // found.info.page_rows)
                    for layer in found.trailer.layers.values():
                        Statistics.decode(layer.decode(), min(pages, 1 << 24))


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
