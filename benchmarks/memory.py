"""Peak memory of streams and of a full read, and the cost of validation: figures and asv suite.

    python benchmarks/memory.py

Each figure comes from a fresh process: the growth of its peak resident memory (Linux: VmHWM, reset
after the imports) during the call. The stream takes no time to make: it has copies of one batch in
separate memory, with 16 columns like those of lineitem.
"""

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import data_sets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from systems.ours import Blztable
from systems.system import remove, touch

OURS = Blztable()
BATCH_ROWS = 1 << 16
KEYS = 1 << 20
# Row groups of a stream; a stream may hold two of them.
GROUPS = 40
GROUP_BYTES = 256_000_000
TIMEOUT = 1800


def batch() -> pa.RecordBatch:
    """Return a batch with columns like those of lineitem."""
    draw = np.random.default_rng(0)
    words = np.array([f"carefully bold package number {index}" for index in range(5000)])
    columns = {f"key{index}": draw.integers(0, KEYS, BATCH_ROWS) for index in range(4)}
    columns |= {f"price{index}": draw.random(BATCH_ROWS).round(2) for index in range(4)}
    columns |= {
        f"day{index}": pa.array(draw.integers(8000, 10000, BATCH_ROWS, "i4"), pa.date32())
        for index in range(3)
    }
    for index, kinds in enumerate([3, 2, 7, 4, 5000]):
        text = pa.array(words[draw.integers(0, kinds, BATCH_ROWS)], pa.large_string())
        columns[f"text{index}"] = text
    return pa.record_batch(columns)


def copies(one: pa.RecordBatch, count: int) -> Iterator[pa.RecordBatch]:
    """Yield copies of the batch, each in new memory."""
    nothing = one.slice(0, 0)
    for _ in range(count):
        columns = zip(one.columns, nothing.columns, strict=True)
        arrays = [pa.concat_arrays(pair) for pair in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=one.schema)


def write_stream(path: Path) -> dict[str, float]:
    """Write about `GROUPS` row groups of the default size from an iterator."""
    one = batch()
    assert OURS.blz
    count = GROUPS * GROUP_BYTES // one.nbytes
    growth = Growth()
    OURS.blz.to_blz(copies(one, count), path, durability="process")
    with OURS.blz.open(path) as table:
        return growth.against(2 * group_bytes(table), table.nbytes)


def read_stream(path: Path) -> dict[str, float]:
    """Read the table of `write_stream`, batch by batch."""
    with OURS.blz.open(path) as table:
        growth, rows = Growth(), 0
        for part in table.to_batches():
            rows += part.num_rows
        assert rows == len(table)
        return growth.against(2 * group_bytes(table), table.nbytes)


def filter_stream(path: Path) -> dict[str, float]:
    """Read one row in a hundred, some in every page, batch by batch."""
    with OURS.blz.open(path) as table:
        growth, rows = Growth(), 0
        for part in table.to_batches(filters=pc.field("key0") < KEYS // 100):
            rows += part.num_rows
        assert 0 < rows < len(table) // 50
        return growth.against(2 * group_bytes(table), table.nbytes)


def read_all(path: Path) -> dict[str, float]:
    """Read lineitem into Arrow."""
    assert OURS.blz
    growth = Growth()
    result = OURS.blz.read_table(path)
    touch(result)
    return growth.against(result.get_total_buffer_size(), result.nbytes)


def validate(path: Path) -> dict[str, float]:
    """Read lineitem with and without validation: the share of the time that it takes.

    Both run in turn in one process; each figure is a median. The run without validation leaves out
    the digests, the checks of item ends, codes and booleans, and UTF-8. Both compare the fields of
    the chunk headers.
    """
    blz = OURS.blz
    read, text = (importlib.import_module(f"blztable.{name}") for name in UNCHECKED)
    known = read.Run.decode, text.TextDecoder.checks

    def decode(run: object) -> None:
        unchecked(run, read)

    seconds: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(24):
        checks = turn % 2 == 0
        read.Run.decode = known[0] if checks else decode
        text.TextDecoder.checks = known[1] if checks else lambda self: ()
        start = time.perf_counter()
        touch(blz.read_table(path))
        if turn > 3:
            seconds[checks].append(time.perf_counter() - start)
    whole, bare = np.median(seconds[True]), np.median(seconds[False])
    return {"seconds": whole, "without": bare, "share": 1 - bare / whole}


UNCHECKED = ("engine.read.requests", "columns.codecs.text")


def unchecked(run: object, read: object) -> None:
    """Decode a run of chunks as `decode` does, without validation."""
    import blosc

    part, place = run.part, run.place
    number = place.first_chunk + run.first
    offsets = part.offsets[number : place.first_chunk + run.last + 1]
    raw = read.scratch(offsets[-1] - offsets[0])
    part.reader.read_into(offsets[0], raw)
    (request,) = run.requests
    begin = run.begin
    for index, nbytes in enumerate(place.info.chunks[run.first : run.last]):
        end = offsets[index + 1] - offsets[0] - part.checksum.size
        chunk = raw[offsets[index] - offsets[0] : end]
        blosc.decompress_ptr(chunk, request.sink.address + begin)
        begin += nbytes
    if place.name == "ends":
        # This check also moves the ends to their place, so it is needed.
        request.sink.finish(run.begin, begin)


class Growth:
    """Growth of the peak resident memory from now on."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")
        self.before = self.status("VmRSS")

    @staticmethod
    def status(name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))

    def against(self, nbytes: int, whole: int) -> dict[str, float]:
        grown = self.status("VmHWM") - self.before
        return {"grown": grown, "measure": nbytes, "ratio": grown / nbytes, "whole": whole}


def group_bytes(table: object) -> int:
    return table.nbytes * max(table._snapshot.version.head.row_groups) // len(table)


def figure(name: str, path: Path) -> dict[str, float]:
    """Return one figure, measured in a separate process."""
    command = [sys.executable, __file__, name, str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)


def figures(folder: Path) -> dict[str, dict[str, float]]:
    """Return all figures; the folder needs 3 GB for about 11 GB of data."""
    lineitem, stream = folder / "lineitem.blz", folder / "stream.blz"
    OURS.write(data_sets.load("lineitem"), lineitem)
    try:
        return {
            "write_stream": figure("write_stream", stream),
            "read_stream": figure("read_stream", stream),
            "filter_stream": figure("filter_stream", stream),
            "read_all": figure("read_all", lineitem),
            "validate": figure("validate", lineitem),
        }
    finally:
        remove(stream)
        remove(lineitem)


class Memory:
    """Peak memory relative to its limit, and the share of validation in a full read."""

    timeout = TIMEOUT

    def setup_cache(self):
        with TemporaryDirectory(dir=".") as folder:
            return figures(Path(folder).absolute())

    setup_cache.timeout = TIMEOUT

    def track_writing_a_stream(self, found):
        return found["write_stream"]["ratio"]

    def track_reading_a_stream(self, found):
        return found["read_stream"]["ratio"]

    def track_filtering_a_stream(self, found):
        return found["filter_stream"]["ratio"]

    def track_reading_all(self, found):
        return found["read_all"]["ratio"]

    def track_validation(self, found):
        return found["validate"]["share"]


for _method in (
    Memory.track_writing_a_stream,
    Memory.track_reading_a_stream,
    Memory.track_filtering_a_stream,
    Memory.track_reading_all,
    Memory.track_validation,
):
    _method.unit = "ratio"


def main() -> None:
    if len(sys.argv) == 3:
        name, path = sys.argv[1:]
        print(json.dumps(globals()[name](Path(path))))
        return
    with TemporaryDirectory() as folder:
        for name, found in figures(Path(folder)).items():
            print(name, {key: round(value, 3) for key, value in found.items()})


if __name__ == "__main__":
    main()
