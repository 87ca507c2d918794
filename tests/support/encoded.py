"""Records of a column whose parts are encoded, and stored nowhere."""

import numpy as np
import pyarrow as pa

from blztable.columns.parts.encode import EncodedPart, encode
from blztable.format.records import PAGE, PART, STREAM, WORD, Records


def records_of(arrays: list[pa.Array], page: int = 3) -> Records:
    """Return the records of a column: a part for each array."""
    return records_of_parts([encode(array, page) for array in arrays])


def records_of_parts(encoded: list[EncodedPart]) -> Records:
    """Return the records of a column of these parts, without chunks."""
    parts = np.zeros(len(encoded), PART)
    streams = np.zeros(sum(len(one.streams) for one in encoded), STREAM)
    words, at = [np.zeros(0, WORD)], 0
    for part, one in zip(parts, encoded, strict=True):
        part["rows"], part["nbytes"], part["page"] = one.rows, one.nbytes, one.page
        part["streams"], part["flags"] = len(one.streams), one.flags
        part["prefix"], part["pages"] = len(one.prefix), len(one.pages)
        for stream in one.streams:
            record = streams[at]
            for name in ("name", "kind", "flags", "power", "width", "typesize", "exceptions"):
                record[name] = getattr(stream, name)
            record["words"] = len(stream.words)
            words.append(stream.words)
            at += 1
    pages = np.concatenate([np.zeros(0, PAGE), *(one.pages for one in encoded)])
    prefixes = np.frombuffer(b"".join(one.prefix for one in encoded), np.uint8)
    return Records(
        1,
        len(encoded),
        parts,
        streams,
        pages=pages,
        words=np.concatenate(words),
        prefixes=prefixes,
    )
