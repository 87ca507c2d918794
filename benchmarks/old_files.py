"""Directories of bcolz, for asv: time to read one, to filter it and to make a table of it.

asv run --python=same --bench old_files
"""

import json
import shutil
import struct
import tempfile
from pathlib import Path

import blosc
import numpy as np
import pyarrow.compute as pc

import blztable as blz

ROWS = 2_000_000
CHUNK_ROWS = 65_536


def columns(rows: int) -> dict[str, np.ndarray]:
    """Return numbers, times and text, as bcolz stores them."""
    rng = np.random.default_rng(0)
    return {
        "key": np.arange(rows),
        "price": np.round(rng.normal(100, 20, rows), 3),
        "at": np.arange(rows).astype("M8[ns]"),
        "city": rng.choice(np.array(["Oslo", "Zürich", "London"]), rows),
    }


def write(path: Path, data: dict[str, np.ndarray]) -> None:
    """Write a ctable."""
    for name, values in data.items():
        (path / name / "data").mkdir(parents=True)
        (path / name / "meta").mkdir()
        storage = {"dtype": str(values.dtype), "cparams": {}, "chunklen": CHUNK_ROWS, "dflt": 0}
        sizes = {"shape": [len(values)], "nbytes": values.nbytes, "cbytes": 0}
        (path / name / "meta" / "storage").write_text(json.dumps(storage))
        (path / name / "meta" / "sizes").write_text(json.dumps(sizes))
        for number, start in enumerate(range(0, len(values), CHUNK_ROWS)):
            raw = values[start : start + CHUNK_ROWS].tobytes()
            head = struct.pack("<4sB3xq", b"blpk", 1, 1)
            chunk = blosc.compress(raw, 4 if values.dtype.kind == "U" else 8, cname="lz4")
            (path / name / "data" / f"__{number}.blp").write_bytes(head + chunk)
    (path / "__rootdirs__").write_text(json.dumps({"names": list(data)}))


class OldFiles:
    """A directory of bcolz, read and converted."""

    def setup(self):
        """Write the directory."""
        self._directory = tempfile.TemporaryDirectory()
        self.path = Path(self._directory.name) / "old"
        write(self.path, columns(ROWS))

    def teardown(self):
        """Remove the directory."""
        self._directory.cleanup()

    def time_read(self):
        """Read all columns into Arrow."""
        blz.read_table(self.path)

    def time_filter(self):
        """Read one column of few rows."""
        blz.read_table(self.path, columns=["city"], filters=pc.field("price") > 180)

    def time_convert(self):
        """Make a table of it, and compare both."""
        new = self.path.parent / "new"
        shutil.rmtree(new, ignore_errors=True)
        blz.copy(self.path, new)

    def track_bytes(self):
        """Return the bytes of the new table as a share of those of the directory."""
        self.time_convert()
        old, new = (
            sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            for path in (self.path, self.path.parent / "new")
        )
        return new / old
