"""A fuzzer of the decoders: small tables, edited behind valid checksums, read in every way.

    PYTHONPATH=.:tests python -m support.fuzzer --minutes 60 --out findings

Each case depends on the seed and its number only, and a worker process reads it. A case fails if
the worker dies, hangs or takes too much memory, if an exception is no `BlzError`, or if the data
are invalid. Failed cases are saved below `--out`, one for each place of failure, with the table as
a directory; `--case` runs one case again in this process.
"""

import argparse
import base64
import collections
import contextlib
import ctypes
import functools
import json
import mmap
import os
import random
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import blosc
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import blztable as blz
from blztable.arrow.types import is_binary, is_text
from blztable.engine.query import codes
from blztable.engine.version.versions import pin
from blztable.format.bundle import ENTRY
from blztable.format.checksum import CHECKSUMS
from blztable.format.chunk import Compression, decompress_blocks, decompress_into
from blztable.format.jsontext import MAX_DEPTH
from blztable.format.statistics import Statistics
from blztable.format.superchunk import unpack
from blztable.storage.memory import MemoryStore
from blztable.table.batches import Batches
from support import arrow_strategies as types
from support import nested_arrays, samples, tamper
from support.bit_equality import same_table
from support.worker_process import WorkerLost, WorkerProcess

Random = random.Random

FRAMES = ("frame", "labelled", "timed", "versions", "pieces", "stored", "bundles", "no-rows")
FRAMES += ("no-columns",)
RENEWED_AFTER = 5000
SMALL_ROWS = 1000
# More null rows than this take a lot of memory as DataFrames, necessarily.
MANY_ROWS = 1 << 24

NUMBERS = [0, 1, 2, 3, 7, 8, 9, 16, 24, 40, 63, 64, 127, 128, 255, 256, 1 << 16, (1 << 20) - 1]
NUMBERS += [(1 << bits) + more for bits in (23, 24, 31, 32, 61, 62, 63, 64) for more in (-1, 0, 1)]
NUMBERS += [-1, -2, -8, -(1 << 31), -(1 << 63), 10**30]
WORDS = ["", "x", "values", "ends", "valid", "codes", "dictionary.values", "packed", "|u1", "<i8"]
WORDS += ["bitmap", "|V16", "lz4", "\0", "ä" * 40, "2026-01-01T00:00:00.000000+00:00", "blztable"]
WORDS += ["range", "field", "numpy", "M8[us]", "m8[ns]", "period", "M", "tuple", "float", "nan"]
WORDS += ["masked", "category", "object", "string", "zoned", "arrow", "Europe/Berlin", "UTC", "D"]
WORDS += ["date", "time", "decimal", "bytes", "pytz", "dateutil", "MS", "Int16", "int64", "0x1p+9"]
TEXTS = [b"NaN", b"-Infinity", b"1e999", b"-0", b"1.0", b"1E2", b"9" * 5000, b'"\\ud800"', b"null"]
TEXTS += [b"\xef\xbb\xbf", b"\xff", b"\n", b"[" * 100_000, b'{"a":1,"a":2}', b"{}", b"[]", b","]
KINDS = ["narrow", "scaled", "delta", "lengths", "each", "dictionary", "constant", "runs", "none"]
KINDS += ["per_item"]


# The tables.


def seeds(only: str = "") -> dict[str, MemoryStore]:
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
        writers[f"encoded {column}"] = functools.partial(blz.to_blz, one, **cuts)
    many = samples.many_items(2500)
    writers["bundled numbers"] = functools.partial(blz.to_blz, numbers, row_group_rows=250)
    alike = pa.table({f"c{n}": [n * row / 100 for row in range(200)] for n in range(20)})
    writers["bundled alike"] = functools.partial(blz.to_blz, alike)
    writers["bundled items"] = functools.partial(blz.to_blz, many.append_column("n", [range(2500)]))
    writers["encoded many"] = functools.partial(blz.to_blz, many, encoding="auto", page_rows=512)
    empty = samples.frame().reset_index(drop=True).iloc[:0]
    writers["frame without rows"] = lambda place: blz.to_blz(empty, place)
    small = {"page_rows": 8, "row_group_rows": 24}
    for name, type_ in nested_arrays.ALL.items():
        one = pa.table({name: nested_arrays.array_of(type_, 40, 5)})
        writers[f"nested {name}"] = functools.partial(blz.to_blz, one, encoding="plain", **small)
        two = pa.table({name: nested_arrays.array_of(type_, 400, 5), "k": range(400)})
        writers[f"nested encoded {name}"] = functools.partial(blz.to_blz, two, **cuts)
        writers[f"nested bundled {name}"] = functools.partial(blz.to_blz, two, row_group_rows=250)
    for kind in (pa.string(), pa.large_binary(), pa.string_view()):
        writers[f"items {kind}"] = samples.table([kind], packing="per_item")
    inner = pa.table({"x": nested_arrays.array_of(nested_arrays.ALL["list of struct"], 40, 5)})
    writers["items nested"] = functools.partial(blz.to_blz, inner, packing="per_item", **small)
    stores = {}
    for name, write in writers.items():
        if not name.startswith(only):
            continue
        stores[name] = store = MemoryStore(name.replace("/", "-"))
        write(store)
        for version in range(1, 4 if name == "versions" else 2):
            with tamper.editing(store, version) as table:
                table.head |= {"uuid": "0" * 32, "commit": "0" * 32}
                table.head["time"] = f"2026-01-0{version}T00:00:00.000000+00:00"
                for pair in table.head["history"]:
                    pair[0] = f"2026-01-0{pair[1]}T00:00:00.000000+00:00"
    return stores


def copied(store: MemoryStore) -> MemoryStore:
    """Return a store with the same values, which never change."""
    result = MemoryStore(store.name)
    result._entries = dict(store._entries)
    return result


# Mutations: each edits a table and returns a description.


def mutated(random: Random, stores: dict[str, MemoryStore]) -> tuple[MemoryStore, list[str]]:
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


def values_of_a_chunk(random: Random, part: tamper.Part) -> str:
    """Replace the bytes of a chunk; it still decompresses."""
    index, chunk = some_chunk(random, part)
    try:
        raw = bytearray(blosc.decompress(chunk))
        assert raw
    except Exception:
        return "not a chunk any more"
    said = bytes_in(random, raw)
    typesize = chunk[3] or 1
    part.chunks[index] = Compression(random.choice(["lz4", "zlib", "zstd"])).compress(
        np.frombuffer(bytes(raw), "u1"), typesize
    )
    return f"chunk {index}: {said}"


def bytes_of_a_chunk(random: Random, part: tamper.Part) -> str:
    """Damage bytes behind the header of a chunk, to test the codecs."""
    index, chunk = some_chunk(random, part)
    raw = bytearray(chunk[16:])
    said = bytes_in(random, raw, may_resize=True)
    part.chunks[index] = chunk[:16] + bytes(raw)
    if len(raw) + 16 != len(chunk) and random.random() < 0.9:
        part.chunks[index] = tamper.with_header(part.chunks[index], ctbytes=len(raw) + 16)
    return f"chunk {index}: {said}"


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


def header_of_a_chunk(random: Random, part: tamper.Part) -> str:
    index, chunk = some_chunk(random, part)
    name, bits = random.choice(
        [
            *(("version", 8), ("version_lz", 8), ("flags", 8), ("flags", 8), ("typesize", 8)),
            *(("nbytes", 32), ("blocksize", 32), ("blocksize", 32), ("ctbytes", 32)),
        ]
    )
    value = number(random, getattr(tamper.ChunkHeader.decode(chunk), name)) % (1 << bits)
    part.chunks[index] = tamper.with_header(chunk, **{name: value})
    return f"chunk {index}: {name} {value}"


def order_of_chunks(random: Random, part: tamper.Part) -> str:
    """Swap, duplicate or remove chunks."""
    first, one = some_chunk(random, part)
    second, other = some_chunk(random, part)
    match random.randrange(4):
        case 0:
            part.chunks[first], part.chunks[second] = other, one
        case 1:
            part.chunks[first] = other
        case 2:
            del part.chunks[first]
        case 3:
            part.chunks.insert(second, one)
    return f"{first}, {second}, now {len(part.chunks)}"


def offsets(random: Random, part: tamper.Part) -> str:
    if not part.offsets:
        return "none"
    index = random.randrange(len(part.offsets))
    value = max(-(1 << 63), min(number(random, part.offsets[index]), (1 << 63) - 1))
    part.offsets[index] = value
    return f"{index} is {value}"


def digests(random: Random, part: tamper.Part) -> str:
    if not part.digests:
        return "none"
    index = random.randrange(len(part.digests))
    part.digests[index] = bytes(random.randrange(256) for _ in part.digests[index])
    return str(index)


def header(random: Random, part: tamper.Part) -> str:
    name = random.choice([name for name in part.header if name != "magic"])
    if name == "checksum":
        part.header[name] = random.randrange(len(CHECKSUMS) + 2)
    else:
        low, high = {"chunk_size": (-(1 << 31), 1 << 31), "last_chunk": (-(1 << 31), 1 << 31)}.get(
            name, (-(1 << 63), 1 << 63) if name == "nchunks" else (0, 1 << 32)
        )
        high = 256 if name in ("version", "options", "typesize") else high
        part.header[name] = max(low, min(number(random, part.header[name]), high - 1))
    return f"{name} {part.header[name]}"


def metadata(random: Random, part: tamper.Part) -> str:
    if not isinstance(part.metadata, dict):
        return "none"
    part.metadata, said = json_value(random, part.metadata)
    return said


def text_of_metadata(random: Random, part: tamper.Part) -> str:
    if not part.metadata:
        return "none"
    part.metadata, said = json_text(random, part.metadata)
    return said


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


def trailer(random: Random, part: tamper.Part) -> str:
    fields, limits = random.choice(
        [
            (part.trailer_head, {"version": 1 << 16, "nlayers": 1 << 16, "reserved": 1 << 32}),
            (part.trailer_head, {"nchunks": 1 << 64}),
            (part.foot, {"crc": 1 << 32, "length": 1 << 32}),
        ]
    )
    name = random.choice(sorted(limits))
    fields[name] = number(random, fields[name]) % limits[name]
    return f"{name} {fields[name]}"


def layers(random: Random, part: tamper.Part) -> str:
    if not part.layers:
        part.layers.append(tamper.RawLayer(b"pages", 0, 10, bytes(10)))
    layer = random.choice(part.layers)
    match random.randrange(6):
        case 0:
            layer.nbytes = number(random, layer.nbytes) % (1 << 32)
        case 1:
            layer.codec = random.randrange(4)
        case 2:
            layer.name = random.choice([b"", b"pages", b"\xff", b"x" * 31, b"x" * 32, b"x" * 255])
        case 3:
            part.layers += [deepcopy(layer)] * random.choice([1, 2, 15, 16])
        case _:
            raw = bytearray(layer.stored)
            bytes_in(random, raw, may_resize=True)
            layer.stored = bytes(raw)
            if layer.codec == 0:
                layer.nbytes = len(raw)
    return f"{layer.name!r} {layer.nbytes} of {len(layer.stored)}, {len(part.layers)} layers"


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
    *(header_of_a_chunk, order_of_chunks, offsets, digests, header),
    *(text_of_metadata, trailer, layers),
]
OF_BUNDLES = [*OF_PARTS, *([entries] * 12), *([lines_of_encodings] * 6)]
OF_MANIFESTS: list[Callable[[Random, tamper.Table], str]] = [
    *([schema] * 5 + [frame] * 4 + [head] * 3 + [line] * 4 + [places] * 3 + [rows] * 3),
    *([nulls] * 2 + [nodes] * 3),
    *(text_of_a_line, text_of_head),
]


def some_chunk(random: Random, part: tamper.Part) -> tuple[int, bytes]:
    if not part.chunks:
        part.chunks.append(b"\2\1\1\1" + bytes(12))
    index = random.randrange(len(part.chunks))
    return index, part.chunks[index].ljust(16, b"\0")


def number(random: Random, near: int) -> int:
    """Return a number that often causes trouble, or one near this number."""
    if type(near) is not int or random.random() < 0.5:
        return random.choice(NUMBERS)
    return random.choice(
        [near + 1, near - 1, near * 2, near // 2, -near, near ^ 1 << random.randrange(33)]
    )


def bytes_in(random: Random, raw: bytearray, may_resize: bool = False) -> str:
    """Change some bytes in place."""
    if not raw:
        raw += b"\0" if may_resize else b""
        return "nothing"
    at = random.randrange(len(raw))
    kind = random.randrange(8 if may_resize else 6)
    match kind:
        case 0:
            raw[at] ^= 1 << random.randrange(8)
        case 1:
            raw[at] = random.choice(b"\x00\x01\x7f\x80\xff\xc0\xed\xf4")
        case 2:
            for _ in range(random.randrange(1, 9)):
                raw[random.randrange(len(raw))] = random.randrange(256)
        case 3:
            size = random.choice([2, 4, 8])
            value = random.choice(NUMBERS) % (1 << 8 * size)
            at -= at % size
            raw[at : at + size] = value.to_bytes(size, "little")[: len(raw) - at]
        case 4:
            stop = random.randrange(at, len(raw)) + 1
            raw[at:stop] = random.choice([b"\0", b"\xff"]) * (stop - at)
        case 5:
            other = random.randrange(len(raw))
            size = min(random.randrange(1, 17), len(raw) - max(at, other))
            raw[at : at + size] = bytes(raw[other : other + size])
        case 6:
            del raw[at:]
        case 7:
            raw[at:at] = bytes(random.randrange(256) for _ in range(random.randrange(1, 9)))
    return f"kind {kind} at {at}"


def json_value(random: Random, value: Any) -> tuple[Any, str]:
    """Return a copy with one value replaced, removed, added or moved."""
    root = [deepcopy(value)]
    spots: list[tuple[Any, Any]] = [(root, 0)]
    for parent, key in spots:
        below = parent[key]
        if isinstance(below, dict | list):
            # The first and last entries of a long list.
            keys = list(below) if isinstance(below, dict) else [*range(len(below))][:4]
            spots += [(below, k) for k in keys]
    parent, key = random.choice(spots)
    old = parent[key]
    match random.randrange(8):
        case 0 | 1 | 2:
            new: Any = number(random, old) if type(old) in (int, bool) else other_value(random, old)
        case 3:
            new = other_value(random, old)
        case 4:
            other, place = random.choice(spots)
            new = deepcopy(other[place])
        case 5 if parent is not root:
            del parent[key]
            return root[0], f"no {key!r}"
        case 6 if isinstance(old, list):
            new = [*old, *(old[-1:] or [0])] if random.random() < 0.5 else old[::-1]
        case 7 if isinstance(old, dict):
            new = {**old, random.choice(WORDS): other_value(random, old)}
        case _:
            new = [old]
    parent[key] = new
    return root[0], f"{key!r}: {new!s:.80}"


def other_value(random: Random, old: Any) -> Any:
    nested: Any = []
    for _ in range(random.choice([9, 17, MAX_DEPTH + 1])):
        nested = [nested]
    choices = [
        None,
        True,
        False,
        "",
        [],
        {},
        0,
        1.5,
        -1e308,
        float("nan"),
        nested,
        [[]],
        [0],
        "\ud800",
    ]
    choices += [
        [1] * 1000,
        {"a": {}},
        random.choice(WORDS),
        random.choice(WORDS),
        random.choice(NUMBERS),
    ]
    if isinstance(old, str):
        choices += [old + "x", old[:-1], old * 2, old.upper(), random.choice(WORDS)] * 2
    return random.choice(choices)


def json_text(random: Random, value: Any) -> tuple[bytes, str]:
    """Return the JSON text with a change that `json` would not write."""
    text = bytearray(tamper.as_text(value))
    at = random.randrange(len(text) + 1)
    match random.randrange(4):
        case 0:
            said = bytes_in(random, text, may_resize=True)
        case 1:
            word = random.choice(TEXTS)
            text[at:at] = word
            said = f"{word[:20]!r} at {at}"
        case 2:
            # Replacements of a value.
            colon = text.find(b":", at)
            word = random.choice(TEXTS)
            end = min(
                (p for p in (text.find(b",", colon), text.find(b"}", colon)) if p > 0), default=-1
            )
            text[colon + 1 : end] = word
            said = f"{word[:20]!r} behind {colon}"
        case _:
            text[:] = random.choice([*TEXTS, text.decode("utf-8", "replace").encode("utf-16")])
            said = bytes(text[:20]).hex()
    return bytes(text).replace(b"\n", b" "), said


# Reading.


def read_all(random: Random, store: MemoryStore) -> str:
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


def whole(store: MemoryStore) -> None:
    table = blz.read_table(store)
    sound(table)
    if table.num_rows <= SMALL_ROWS:
        again = blz.read_table(store)
        assert again.equals(table) or same_table(again, table), "read twice, it differs"


def pandas(random: Random, store: MemoryStore) -> None:
    backend = random.choice(
        [{}, {}, {"dtype_backend": random.choice(["pyarrow", "numpy_nullable"])}]
    )
    with blz.open(store) as table:
        if MANY_ROWS < table.nrows < 1 << 40:
            return
    frame = blz.read_blz(store, **backend)
    if len(frame) <= SMALL_ROWS:
        # Arrow 26 crashes on nulls in a dictionary of type null, whoever made it.
        if not any("values=null" in str(dtype) for dtype in frame.dtypes):
            frame.isna()
        frame.copy(deep=True)
        assert frame.index.memory_usage() >= 0
        # Warnings about times outside of Python's years, and about unknown zones.
        with contextlib.suppress(NotImplementedError, ValueError):
            frame.equals(frame)
            len(frame.index.unique())


def rows_of(random: Random, store: MemoryStore) -> None:
    with blz.open(store) as table:
        sound(table.head(random.choice([0, 1, 9])))
        for name in table.column_names:
            if table.column_names.count(name) == 1:
                column = table[name]
                start, stop = sorted(random.randrange(max(table.nrows, 1)) for _ in range(2))
                if stop - start <= SMALL_ROWS:
                    sound(pa.table({"x": column[start:stop]}))
                if 0 < table.nrows <= SMALL_ROWS:
                    with contextlib.suppress(ValueError, ArithmeticError):
                        column[random.randrange(table.nrows)]
                    outcome(column.to_numpy)
                    column.to_pandas()


def columns_of(random: Random, store: MemoryStore) -> None:
    with blz.open(store) as table:
        names = [random.choice(table.column_names) for _ in range(2 if table.column_names else 0)]
        sound(table.to_arrow(names))
        if not MANY_ROWS < table.nrows < 1 << 40:
            table.to_pandas(names)


def filtered(random: Random, store: MemoryStore) -> None:
    """Filter by a value that the table has, on codes too."""
    codes.ROWS_PER_VALUE = 1 / 1000
    with blz.open(store) as table:
        if not table.column_names or not 0 < table.nrows <= SMALL_ROWS:
            return
        name = random.choice(table.column_names)
        row = random.randrange(table.nrows)
        if table.column_names.count(name) > 1:
            return
        value = table[name].to_arrow()[row]
        field = pc.field(name)
        for condition in (field == value, field <= value, field.is_null(), field.is_valid()):
            outcome(lambda condition=condition: sound(table.to_arrow(filters=condition)))


def picked(random: Random, store: MemoryStore) -> None:
    """Take single rows, which must be those of a whole read."""
    with blz.open(store) as table:
        if not 0 < table.nrows <= SMALL_ROWS:
            return
        rows = [random.randrange(table.nrows) for _ in range(random.choice([1, 3, 9]))]
        found = table.take(rows)
        sound(found)
        try:
            whole = table.to_arrow()
        except blz.BlzError:
            return
        if whole.num_columns:
            expected = pa.concat_tables([whole.slice(row, 1) for row in rows])
            assert same_table(found, expected), "rows differ from those of a whole read"


def as_dictionaries(random: Random, store: MemoryStore) -> None:
    with blz.open(store) as table:
        names = [
            field.name for field in table.schema if is_text(field.type) or is_binary(field.type)
        ]
        sound(table.to_arrow(dictionaries=names))


def streamed(random: Random, store: MemoryStore) -> None:
    """Read by batches; the other side of the interface only gets the error message."""
    with blz.open(store) as table:
        positions = range(len(table.column_names))
        for batch in Batches(table._snapshot, positions):
            sound(pa.table(batch))
        sound(pa.table(table))


def looked_at(random: Random, store: MemoryStore) -> None:
    with blz.open(store) as table:
        repr(table)
        assert isinstance(dict(table.attrs), dict)
        _ = (table.nbytes, table.cbytes, table.version, table.nrows, table.schema)
        for name in set(table.column_names):
            if table.column_names.count(name) == 1:
                repr(table[name])
        for version in range(1, table.version):
            blz.read_table(store, version=version)


def statistics(random: Random, store: MemoryStore) -> None:
    version, pinned = pin(store)
    with pinned:
        version = version.flat
        for index in range(len(version.schema)):
            parts = version.column(index)
            assert len(parts.statistics) == len(parts.k)
            for group in range(len(parts.k)):
                facts, key = parts.facts[group], parts.key(group, version.head.bundles)
                entry = store._entries.get(key) if key else None
                data = entry.data if entry and entry.data else b""
                if 0 < facts.front_length < len(data) >= facts.trailer_length:
                    front = data[: facts.front_length]
                    foot = data[len(data) - facts.trailer_length :]
                    found = unpack(front, foot, facts)
                    pages = -(-found.info.rows // found.info.page_rows)
                    for layer in found.trailer.layers.values():
                        Statistics.decode(layer.decode(), min(pages, 1 << 24))


def written(random: Random, store: MemoryStore) -> None:
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


def chunks_alone(random: Random) -> str:
    """Decode damaged chunks in buffers that end right before forbidden memory."""
    size = random.choice([1, 15, 16, 17, 100, 1000, 4096, 70_000])
    pattern = bytes(random.randrange(256) for _ in range(random.choice([1, 3, 16, size])))
    raw = bytearray((pattern * (size // len(pattern) + 1))[:size])
    for _ in range(random.choice([0, 1, 20])):
        bytes_in(random, raw)
    typesize = random.choice([1, 2, 4, 8, 16, 3, 255])
    codec = random.choice(["blosclz", "lz4", "lz4hc", "zlib", "zstd"])
    shuffle, clevel = random.choice([0, 1, 2]), random.choice([1, 5, 9])
    chunk = blosc.compress(bytes(raw), typesize, clevel, shuffle, codec)
    source, target = fenced(2 * size + (1 << 12)), fenced(size)
    before = target[: len(target) - size]
    before[:] = 0xA5
    outcomes = set()
    for _ in range(50):
        damaged = bytearray(chunk)
        for _ in range(random.choice([1, 1, 2, 5])):
            bytes_in(random, damaged, may_resize=True)
        if random.random() < 0.9:
            # Past the checks of the header, to the codecs; sometimes with other block sizes.
            damaged = damaged.ljust(17, b"\0")
            block = chunk[8:12]
            if random.random() < 0.2:
                block = random.randrange(1, size + 1).to_bytes(4, "little")
            flags = chunk[2] if random.random() < 0.7 else damaged[2] & ~8
            sizes = chunk[3:8] + block + len(damaged).to_bytes(4, "little")
            damaged[:16] = chunk[:2] + bytes([flags]) + sizes
        chunk_there = source[len(source) - len(damaged) :]
        chunk_there[:] = np.frombuffer(damaged, np.uint8)
        try:
            if random.random() < 0.5:
                decompress_into(chunk_there.data, typesize, target.ctypes.data + len(before), size)
            else:
                places = np.array([sorted(random.randrange(size + 1) for _ in range(2))])
                decompress_blocks(chunk_there.data, typesize, target[len(before) :], *places.T)
        except blz.BlzError:
            outcomes.add("refused")
        else:
            outcomes.add("read")
        assert (before == 0xA5).all(), "written before the buffer"
    return outcomes.pop() if len(outcomes) == 1 else "both"


@functools.cache
def fenced(nbytes: int) -> np.ndarray:
    """Return whole pages of memory; an access behind them ends the process."""
    page = mmap.PAGESIZE
    size = -(-nbytes // page) * page
    memory = np.frombuffer(mmap.mmap(-1, size + page), np.uint8)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if protect(memory.ctypes.data + size, page, 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    return memory[:size]


# Running.


def worker(seed: int, only: str = "") -> Callable[[int], tuple[str, str]]:
    """Run in the worker: return the outcome of a case and the place of its failure."""
    stores = seeds(only)
    blosc.set_nthreads(1)

    def answer(case: int) -> tuple[str, str]:
        # Warnings of pandas about labels that a later version will refuse.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        try:
            return result(seed, case, stores), ""
        except BaseException as error:
            return "failed", "".join(traceback.format_exception(error))

    return answer


def result(seed: int, case: int, stores: dict[str, MemoryStore]) -> str:
    """Return the outcome of a case, or an unexpected exception."""
    random = Random(f"{seed}/{case}")
    if random.random() < 0.05:
        return f"chunks {chunks_alone(random)}"
    store, _ = mutated(random, stores)
    return read_all(random, store)


def run(
    seed: int, first: int, seconds: float, out: Path, only: str = ""
) -> collections.Counter[str]:
    """Run cases until the time is over; save those that fail."""
    out.mkdir(parents=True, exist_ok=True)
    stores, counts, seen = seeds(only), collections.Counter[str](), collections.Counter[str]()
    begin = told = time.monotonic()
    case = first
    while time.monotonic() < begin + seconds:
        with WorkerProcess(worker, seed, only, growth=600 << 20) as process:
            for _ in range(RENEWED_AFTER):
                try:
                    result, reason = process.ask(case)
                except WorkerLost as lost:
                    result, reason = "lost", str(lost)
                counts[result] += 1
                if reason:
                    place = where(reason)
                    seen[place] += 1
                    if seen[place] <= 3:
                        save(out / f"{seed}-{case}", seed, case, stores, place, reason)
                now = time.monotonic()
                if now > told + 60 or now > begin + seconds:
                    told = now
                    speed = counts.total() / (now - begin)
                    print(f"{now - begin:.0f} s, case {case}, {speed:.1f} a second, {dict(counts)}")
                    for place, count in seen.most_common():
                        print(f"  {count} {place}")
                    sys.stdout.flush()
                    if now > begin + seconds:
                        break
                case += 1
    return counts


def where(reason: str) -> str:
    """Return the key of a failure: its exception, and the last lines of ours in its traceback."""
    lines = reason.splitlines()
    ours = [line.strip() for line in lines if "blztable/" in line and line.strip()[:4] == "File"]
    if lines[0].startswith("Traceback"):
        return f"{lines[-1][:100]} at {' < '.join(reversed(ours[-1:]))}"
    return f"{lines[0][:60]} at {' < '.join(ours[:1])}"


def save(path: Path, seed: int, case: int, stores: Any, place: str, reason: str) -> None:
    """Save the table as a directory, with its mutations."""
    random = Random(f"{seed}/{case}")
    path.mkdir(parents=True, exist_ok=True)
    if random.random() < 0.05:
        (path / "what.txt").write_text(f"{place}\nseed {seed}, case {case}: chunks\n{reason}")
        return
    store, done = mutated(random, stores)
    for key, entry in store._entries.items():
        if entry.data is not None:
            (path / "t.blz" / key).parent.mkdir(parents=True, exist_ok=True)
            (path / "t.blz" / key).write_bytes(entry.data)
    lines = [place, f"seed {seed}, case {case}", *done, "", reason]
    (path / "what.txt").write_text("\n".join(lines), errors="backslashreplace")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="run this case alone, in this process")
    parser.add_argument("--only", default="", help="tables whose names begin with this")
    parser.add_argument("--out", type=Path, default=Path("findings"))
    chosen = parser.parse_args()
    if chosen.case is not None:
        print(result(chosen.seed, chosen.case, seeds(chosen.only)))
        return 0
    # Arrow, in the workers, checks for writes past its buffers.
    os.environ.setdefault("ARROW_DEBUG_MEMORY_POOL", "abort")
    counts = run(chosen.seed, chosen.first, chosen.minutes * 60, chosen.out, chosen.only)
    return int(counts["failed"] + counts["lost"] > 0)


if __name__ == "__main__":
    sys.exit(main())
