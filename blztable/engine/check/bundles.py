"""Check bundles: the checksums behind their chunks, and that no two streams share bytes.

Neither changes a row that is read. Knows nothing of what a part holds.
"""

from collections.abc import Iterator

import numpy as np

from blztable.engine.read.bundles import OpenBundle
from blztable.engine.read.superchunks import check_digest_behind
from blztable.errors import CorruptError


def bundle_problems(bundle: OpenBundle) -> Iterator[str]:
    """Yield a message for each problem of an open bundle; its rows can be read all the same."""
    superchunk, reader = bundle.superchunk, bundle.reader
    for chunk in range(len(superchunk.offsets) - 1):
        try:
            check_digest_behind(superchunk, reader, chunk)
        except CorruptError as error:
            yield f"chunk {chunk}: {error}"
    entries = bundle.directory.entries
    held = np.sort(entries[entries["nbytes"] > 0], order=["chunk", "start"])
    begins = held["chunk"].astype(np.int64) << 32 | held["start"]
    for entry in np.flatnonzero(begins[1:] < begins[:-1] + held["nbytes"][:-1]).tolist():
        chunk, start = (int(held[name][entry + 1]) for name in ("chunk", "start"))
        yield f"the stream at byte {start} of chunk {chunk} overlaps another one"
