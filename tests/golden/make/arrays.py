"""Write the arrays in `arrays/`: each form that a file of SuperChunk can have.

Run `python -m golden.make.arrays DIRECTORY` from the folder `tests`. The files in `arrays/` are
never written again: `test_arrays.py` reads them with each later version.
"""

import io
import sys
from pathlib import Path

import numpy as np

import blztable as blz

VALUES = np.arange(60, dtype="i4").reshape(20, 3) * 7 % 50
FLOATS = VALUES / 8
POINTS = np.array([(1, 2.5, "a"), (2, -0.5, "bc")], [("n", "<i2"), ("x", ">f8"), ("tag", "U3")])
ITEMS = ["", "a", "é" * 40]


class Pipe(io.BytesIO):
    """A file that can only be written."""

    def seekable(self) -> bool:
        return False


def appended(values: np.ndarray, file: io.BytesIO | None = None, **options: object) -> bytes:
    """Return the file of an array whose options these are."""
    file = file or io.BytesIO()
    options = {"expectedlen": 4, "attrs": {"unit": "mm"}, "meta": {"pet": b"cat"}} | options
    with blz.SuperChunk.create(file, values.dtype, (0, *values.shape[1:]), **options) as array:
        array.append(values)
        array.vlmeta["note"] = b"n" * 300
    return file.getvalue()


def items(kind: str) -> bytes:
    """Return the file of items of any length."""
    file = io.BytesIO()
    with blz.SuperChunk.create(file, kind, expectedlen=3) as array:
        array.append([item if kind == "str" else item.encode() for item in ITEMS])
    return file.getvalue()


def full() -> bytes:
    """Return a file whose offsets are in the trailer."""
    file = io.BytesIO(appended(VALUES, chunk_shape=(5, 3)))
    with blz.SuperChunk.open(file, "a") as array:
        array.append(VALUES)
    return file.getvalue()


def changed() -> bytes:
    """Return a file that was changed in place."""
    file = io.BytesIO(appended(VALUES, chunk_shape=(5, 3), reserve=100, expectedlen=20))
    with blz.SuperChunk.open(file, "a") as array:
        array[3:12] = VALUES[:9]
        array.meta["pet"] = b"dog"
        array.resize(18)
    return file.getvalue()


def unfinished() -> bytes:
    """Return a file that was never finished."""
    file = io.BytesIO()
    array = blz.SuperChunk.create(file, "i4", (0, 3), chunk_shape=(5, 3), expectedlen=20)
    array.append(VALUES[:12])
    return file.getvalue()


FILES = {
    **{f"{name}.blp": (VALUES, {"checksum": name}) for name in ("none", "adler32", "sha512")},
    **{f"{name}.blp": (VALUES, {"compression": name}) for name in ("lz4", "zlib", "zstd")},
    "grid.blp": (VALUES, {"chunk_shape": (6, 2)}),
    "fortran.blp": (VALUES, {"order": "F"}),
    "truncated.blp": (FLOATS, {"truncate": 1}),
    "points.blp": (POINTS, {}),
    "wide.blp": (np.array(["a", "b"], "U70"), {}),
    "empty.blp": (VALUES[:0], {}),
}
OTHERS = {
    "str.blp": lambda: items("str"),
    "bytes.blp": lambda: items("bytes"),
    "full.blp": full,
    "changed.blp": changed,
    "stream.blp": lambda: appended(VALUES, Pipe(), chunk_shape=(5, 3)),
    "unfinished.blp": unfinished,
}
# What each finished file has.
EXPECTED = {name: values for name, (values, _) in FILES.items()} | {
    "str.blp": np.array(ITEMS, object),
    "bytes.blp": np.array([item.encode() for item in ITEMS], object),
    "full.blp": np.vstack([VALUES, VALUES]),
    "changed.blp": np.vstack([VALUES[:3], VALUES[:9], VALUES[12:18]]),
    "stream.blp": VALUES,
    # One digit of eighths: sixteenths hold them exactly.
    "truncated.blp": FLOATS,
}


def main(directory: Path) -> None:
    """Write all files."""
    directory.mkdir(parents=True)
    for name, (values, options) in FILES.items():
        (directory / name).write_bytes(appended(values, **options))
    for name, make in OTHERS.items():
        (directory / name).write_bytes(make())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
