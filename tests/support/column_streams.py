"""A column walked by hand: encoded to streams, and decoded from bytes that may lie."""

import numpy as np
import pyarrow as pa

from blztable.columns.blocks import Block, Piece
from blztable.columns.types import decoder


def streams_of(block: Block) -> dict[str, bytes]:
    """The bytes of each stream, by the name the file gives it."""
    return {name: stream.data.tobytes() for name, stream in block.walk()}


def decoded(
    type_: pa.DataType,
    parts: list[tuple[int, dict[str, bytes]]],
    chunk: int = 1 << 20,
    first_byte: int = 0,
) -> pa.ChunkedArray:
    """The column of parts given by their rows and streams, each filled and checked by chunks."""
    pieces = [
        Piece(rows, {name: len(data) for name, data in streams.items()}, first_byte)
        for rows, streams in parts
    ]
    column = decoder(type_, pieces)
    for index, (_, streams) in enumerate(parts):
        for name, data in streams.items():
            target = column.target(index, name)
            assert len(target.buffer) == len(data)
            for start in range(0, len(data), chunk):
                stop = min(start + chunk, len(data))
                target.buffer[start:stop] = np.frombuffer(data[start:stop], np.uint8)
                if target.check is not None:
                    target.check(start, stop)
    for check in column.checks():
        check()
    return column.finish()
