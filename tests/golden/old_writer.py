"""Writes directories as bcolz and BLZ do, for any array and any length of chunks.

From the description of the format; the real programs do not run on this Python.
"""

import json
import struct

import blosc
import numpy as np

SHUFFLES = {0: blosc.NOSHUFFLE, 1: blosc.SHUFFLE, 2: blosc.BITSHUFFLE}


def write_table(path, columns, chunk_rows=1000, attrs=None, *, is_blz=False, **options):
    """Write a ctable, or a btable; `chunk_rows` is a number, or one for each name."""
    path.mkdir()
    names = list(columns)
    document = {"names": names}
    if is_blz:
        document["dirs"] = {name: f"/once/here/{name}" for name in names}
    (path / "__rootdirs__").write_text(json.dumps(document) + "\n")
    (path / "__attrs__").write_text(json.dumps(attrs or {}) + "\n")
    for name, values in columns.items():
        rows = chunk_rows[name] if isinstance(chunk_rows, dict) else chunk_rows
        write_array(path / name, values, rows, is_blz=is_blz, **options)


def write_array(
    path,
    values,
    chunk_rows=1000,
    attrs=None,
    *,
    codec="lz4",
    level=5,
    shuffle=1,
    default=0,
    behind=b"",
    is_blz=False,
):
    """Write a carray, or a barray; `behind` are older bytes behind each chunk."""
    data = path / "data"
    data.mkdir(parents=True)
    (path / "meta").mkdir()
    (path / "__attrs__").write_text(json.dumps(attrs or {}) + "\n")
    parameters = {"clevel": level, "shuffle": bool(shuffle) if is_blz else shuffle}
    if not is_blz:
        parameters |= {"cname": codec, "quantize": 0}
    storage = {
        "dtype": str(values.dtype),
        "bparams" if is_blz else "cparams": parameters,
        "chunklen": chunk_rows,
        "expectedlen": len(values),
        "dflt": default,
    }
    sizes = {"shape": list(values.shape), "nbytes": values.nbytes, "cbytes": values.nbytes}
    (path / "meta" / "storage").write_text(json.dumps(storage))
    (path / "meta" / "sizes").write_text(json.dumps(sizes))
    for number, start in enumerate(range(0, len(values), chunk_rows)):
        raw = np.ascontiguousarray(values[start : start + chunk_rows]).tobytes()
        (data / f"__{number}.blp").write_bytes(
            file_of(compressed(raw, values.dtype, codec, level, shuffle)) + behind
        )


def compressed(raw, dtype, codec="lz4", level=5, shuffle=1):
    """Return a chunk of Blosc, with the typesize that these programs give it."""
    width = {"S": 1, "U": 4}.get(dtype.kind, dtype.itemsize)
    if not level:
        codec, level = "lz4", 0
    return blosc.compress(raw, width if width < 256 else 1, level, SHUFFLES[shuffle], codec)


def file_of(chunk):
    """Return a file with one chunk: a header of Bloscpack 1, and the chunk."""
    return struct.pack("<4sB3xq", b"blpk", 1, 1) + chunk
