"""Directories of BLZ and bcolz, and files of Bloscpack, opened as tables."""

import functools
import json
import random
import tempfile
import warnings
from pathlib import Path

import blosc
import numpy as np
import pyarrow as pa

import blztable as blz
from golden.old_writer import compressed, file_of, write_array, write_table
from golden.sets import unpacked
from support import tamper
from support.fuzzed import arrays, tables
from support.fuzzed.changes import WORDS, bytes_in, json_text, json_value, number

Random = random.Random

LEGACY = unpacked("legacy") / "bcolz"
DTYPES = ["i1", "<u4", ">i4", "f4", "f8", "?", "S3", "U2", "M8[D]", "m8[ns]", "i4,f8", "c8"]
# Dtypes as documents have them.
NAMED = [*map(str, map(np.dtype, DTYPES)), "<U1", "O", "[('a','O')]"]
# Fields of the header of a file, and of its chunk: where they lie, and their bytes.
FIELDS = [("flags", 18, 1), ("typesize", 19, 1), ("nbytes", 20, 4), ("blocksize", 24, 4)]
FIELDS += [("ctbytes", 28, 4), ("version", 16, 1), ("nchunks", 8, 8), ("checksum", 5, 1)]
# Names of columns, some of which lead out of the directory.
NAMES = ["..", ".", "/", "a/b", "\0", "x", *WORDS[:4]]
MOST_BYTES = 200_000

# Keys are paths below the directory; a file has the key "".
Files = dict[str, bytes]


@functools.cache
def seeds(only: str = "") -> dict[str, Files]:
    """Return directories of each program, of each type, and files of Bloscpack."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        columns = {}
        for dtype in DTYPES:
            values = np.zeros(50, dtype)
            if np.dtype(dtype).kind in "iufc":
                values[:] = np.arange(50)
            columns[dtype.replace(",", "").replace("[", "").replace("]", "")] = values
        for number_, (name, values) in enumerate(columns.items()):
            write_array(root / f"array {name}", values, 20, {"unit": 1}, is_blz=number_ % 2 == 1)
        square = np.arange(120).reshape(20, 2, 3)
        write_array(root / "array square", square, 7, shuffle=2, codec="zstd")
        write_table(root / "table", columns, 20, {"till": 7})
        write_table(root / "table of blz", columns, dict.fromkeys(columns, 9), is_blz=True)
        for path in [*sorted(root.iterdir()), *sorted(LEGACY.glob("*/*"))]:
            if path.is_dir() and path.name != "_expected":
                files = [one for one in path.rglob("*") if one.is_file()]
                found[path.name] = {
                    str(one.relative_to(path)): one.read_bytes() for one in sorted(files)
                }
    small = {n: f for n, f in found.items() if sum(map(len, f.values())) <= MOST_BYTES}
    small |= {f"file {name}": {"": data} for name, data in arrays.seeds().items()}
    return {name: files for name, files in small.items() if name.startswith(only)}


def mutated(random: Random, seeds: dict[str, Files]) -> tuple[Files, list[str]]:
    """Return a directory with one to three changes, or a changed file."""
    directories = sorted(name for name in seeds if not name.startswith("file "))
    if not directories or random.random() < 0.3:
        files = {name: one[""] for name, one in seeds.items() if "" in one}
        data, done = arrays.mutated(random, files)
        return {"": data}, done
    name = random.choice(directories)
    files, done = dict(seeds[name]), [name]
    for _ in range(random.choice([1, 1, 2, 3])):
        documents = [path for path in files if not path.endswith(".blp")]
        chunks = [path for path in files if path.endswith(".blp")]
        kind = random.random()
        if documents and (kind < 0.6 or not chunks):
            path = random.choice(documents)
            said = document(random, files, path)
        elif chunks and kind < 0.9:
            path = random.choice(chunks)
            said = chunk(random, files, path)
        else:
            path, other = random.choice(sorted(files)), random.choice(sorted(files))
            said = f"like {other}"
            files[path] = files[other]
            if random.random() < 0.3:
                del files[path]
                said = "gone"
        done.append(f"{path}: {said}")
        if not files:
            break
    return files, done


def document(random: Random, files: Files, path: str) -> str:
    """Change a document."""
    try:
        value = json.loads(files[path])
    except (ValueError, RecursionError):
        return "no document any more"
    if isinstance(value, dict) and random.random() < 0.4:
        # Sizes and types that the chunks may have after all.
        key = random.choice(sorted(value) or ["x"])
        near = value.get(key)
        if key == "dtype":
            value[key] = random.choice(
                [*map(str, map(np.dtype, DTYPES)), "<U1", "O", "[('a','O')]"]
            )
        elif isinstance(near, list) and near:
            near[random.randrange(len(near))] = random.choice([number(random, 50), *NAMES])
        else:
            value[key] = number(random, near) if type(near) is int else random.choice(NAMES)
        said = f"{key}: {value.get(key)!s:.60}"
    else:
        value, said = json_value(random, value)
    files[path] = tamper.as_text(value)
    if random.random() < 0.1:
        files[path], said = json_text(random, value)
    return said


def chunk(random: Random, files: Files, path: str) -> str:
    """Change the bytes of a chunk, its header, or its values."""
    data = bytearray(files[path])
    match random.randrange(5):
        case 0 if len(data) > 32:
            said = f"bytes: {bytes_in(random, data, may_resize=True)}"
        case 1 | 2 if len(data) > 32:
            name, at, size = random.choice(FIELDS)
            value = number(random, int.from_bytes(data[at : at + size], "little"))
            data[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
            said = f"{name} {value}"
        case _:
            try:
                raw = bytearray(blosc.decompress(bytes(data[16:])))
            except Exception:
                return "no chunk any more"
            said = f"values: {bytes_in(random, raw, may_resize=random.random() < 0.2)}"
            width = max(*data[19:20], 1, 1)
            data[:] = file_of(compressed(bytes(raw) or b"\0", np.dtype(f"V{width}")))
    files[path] = bytes(data)
    return said


def save(files: Files, path: Path) -> None:
    """Save the directory or the file."""
    for name, data in files.items():
        target = path / "old" / name if name else path / "a.blp"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def read_all(random: Random, files: Files) -> str:
    """Read in every way; return the outcome, or an unexpected exception."""
    with tempfile.TemporaryDirectory() as folder:
        save(files, Path(folder))
        path = Path(folder) / ("a.blp" if "" in files else "old")
        ways = [tables.rows_of, tables.streamed, looked_at, tables.columns_of, tables.filtered]
        ways += [tables.picked, tables.pandas, skipped, converted, whole, fields]
        outcomes = {tables.outcome(lambda: whole(random, path))}
        for way in random.sample(ways, 3):
            outcomes.add(tables.outcome(lambda way=way: way(random, path)))
    return "read" if outcomes == {"read"} else "refused" if "read" not in outcomes else "both"


def whole(random: Random, path: Path) -> None:
    tables.whole(path)


def looked_at(random: Random, path: Path) -> None:
    tables.looked_at(random, path)
    with blz.open(path) as table:
        # Their `repr` is pyarrow's, which cannot show every date.
        for value in table.defaults.values():
            value.validate(full=True)
        table.describe()
        assert sum(one.stop - one.start for one in table.row_groups) == len(table)
        str(table.verify())


def fields(random: Random, path: Path) -> None:
    with blz.open(path) as table:
        for column in table.schema:
            if pa.types.is_struct(column.type):
                child = random.choice(list(column.type))
                tables.sound(table.to_arrow([(column.name, child.name)]))


def skipped(random: Random, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        tables.sound(blz.read_table(path, on_corrupt="skip"))


def converted(random: Random, path: Path) -> None:
    with blz.open(path) as table:
        if len(table) > tables.MANY_ROWS:
            return
    target = path.parent / "new.blz"
    blz.copy(path, target)
    tables.whole(target)
