"""New arrays: the options of `SuperChunk.create`, checked, as the front of a file.

Knows nothing of how rows are written.
"""

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, SupportsIndex

import numpy as np

from blztable.arrays.changes import MAX_ITEMS
from blztable.arrays.files.dtypes import text_of
from blztable.arrays.files.front import Front, is_genuine
from blztable.arrays.files.info import BYTES, MAX_DIGITS, MAX_DIMENSIONS, STR, ArrayInfo
from blztable.errors import CorruptError, FormatError, SchemaError
from blztable.format import jsontext
from blztable.format.bloscpack import BLOSCPACK, EXTENDED, MAX_CHUNKS
from blztable.format.checksums import BY_NAME
from blztable.format.chunk import LARGE_CHUNK_BYTES, SHUFFLES, WRITABLE_CODECS, Compression
from blztable.format.jsontext import Json

# The size of a chunk that no `chunk_shape` decides.
CHUNK_BYTES = 1 << 20
# The offsets that the front of an array has room for.
ROOM = 1024
# A front of more offsets would be longer than metadata may be.
MAX_ROOM = 1 << 20


@dataclass(frozen=True, slots=True)
class ArrayOptions:
    """The options of `SuperChunk.create`."""

    chunk_shape: tuple[int, ...] | None = None
    order: str = "C"
    compression: str = "lz4"
    clevel: int = 5
    shuffle: str | None = None
    checksum: str = "crc32"
    reserve: float = 0
    expectedlen: int | None = None
    decimals: int | None = None
    meta: Mapping[str, bytes] = field(default_factory=dict)
    version: int | None = None


def new_front(
    dtype: Any, shape: tuple[int, ...], options: ArrayOptions, *, is_stream: bool
) -> Front:
    """Return the front of a new array of no rows; an error names the option that is wrong."""
    items = BYTES if dtype is bytes else STR if dtype is str else ""
    if isinstance(dtype, str) and dtype in (BYTES, STR):
        items = dtype
    kind = np.dtype(object) if items else np.dtype(dtype)
    if not items:
        text_of(kind)
    _check(kind, items, shape, options)
    chunk_shape = options.chunk_shape or _default_chunks(shape, 0 if items else kind.itemsize)
    info = ArrayInfo(
        dtype=kind,
        shape=(0, *shape[1:]),
        chunk_shape=chunk_shape,
        order="C" if len(shape) == 1 else options.order,
        items=items,
        reserve=options.reserve,
        decimals=None if options.decimals is None else int(options.decimals),
        compression=Compression(options.compression, int(options.clevel), options.shuffle),
        meta=dict(options.meta),
    )
    if any(size < 1 for size in chunk_shape) or len(chunk_shape) != len(shape):
        raise ValueError(f"chunk_shape is {chunk_shape}; expected a length for each of {shape}")
    if math.prod(chunk_shape) * kind.itemsize > LARGE_CHUNK_BYTES:
        raise ValueError(f"a chunk has at most {LARGE_CHUNK_BYTES} bytes; pass a chunk_shape")
    if items and chunk_shape != (1,):
        raise ValueError("an item of variable length is a chunk; leave chunk_shape out")
    can_be_genuine = is_genuine(info) and not is_stream
    version = options.version or (BLOSCPACK if can_be_genuine else EXTENDED)
    if version == BLOSCPACK and not can_be_genuine:
        raise ValueError("Bloscpack cannot describe this array; leave version out, or pass 4")
    return fresh_front(version, options.checksum, info, options.expectedlen, shape[0], is_stream)


def fresh_front(
    version: int,
    checksum: str,
    info: ArrayInfo,
    expectedlen: int | None,
    rows: int,
    is_stream: bool,
) -> Front:
    """Return the front of an array of no rows, with room for the offsets that are expected."""
    if expectedlen is not None and (not isinstance(expectedlen, SupportsIndex) or expectedlen < 0):
        raise ValueError(f"expectedlen is {expectedlen!r}; expected a number of rows")
    most = max(rows, expectedlen or 0)
    grid = ArrayInfo(info.dtype, (most, *info.shape[1:]), info.chunk_shape).grid
    room = max(len(grid), ROOM if expectedlen is None else 1)
    if room > MAX_CHUNKS:
        raise ValueError(f"{most} rows take {room} chunks; at most {MAX_CHUNKS} fit")
    info = replace(info, room=0 if is_stream else min(room, MAX_ROOM))
    try:
        is_kept = ArrayInfo.from_json(_read_back(info)) == info
    except (CorruptError, FormatError) as error:
        raise ValueError(f"an array of shape {info.shape} cannot be kept: {error}") from None
    assert is_kept, info
    return Front.new(version, BY_NAME[checksum], info, is_stream=is_stream)


def _read_back(info: ArrayInfo) -> dict[str, Json]:
    value = jsontext.loads(info.encode(), "the metadata")
    assert isinstance(value, dict)
    return value


def checked_reserve(reserve: float) -> float:
    """Return the bytes, or the share below 1, that each chunk keeps free."""
    if not isinstance(reserve, Real) or not 0 <= reserve <= LARGE_CHUNK_BYTES:
        raise ValueError(f"reserve is {reserve!r}; expected bytes, or a share below 1")
    return int(reserve) if reserve >= 1 else float(reserve)


def lengths(name: str, given: object) -> tuple[int, ...]:
    """Return a length for each axis."""
    try:
        return tuple(map(operator.index, given))  # type: ignore[call-overload]
    except TypeError:
        raise TypeError(f"{name} is {given!r}; expected a tuple of whole numbers") from None


def _check(kind: np.dtype, items: str, shape: tuple[int, ...], options: ArrayOptions) -> None:
    if not 1 <= len(shape) <= MAX_DIMENSIONS or min(shape) < 0 or max(shape) > MAX_ITEMS:
        raise ValueError(f"shape is {shape}; expected 1 to {MAX_DIMENSIONS} lengths from 0")
    if items and len(shape) != 1:
        raise ValueError(f"shape is {shape}; items of variable length have one axis")
    allowed = {
        "order": ("C", "F"),
        "compression": tuple(WRITABLE_CODECS),
        "clevel": range(10),
        "shuffle": (None, *SHUFFLES),
        "checksum": tuple(BY_NAME),
        "version": (None, BLOSCPACK, EXTENDED),
        "decimals": (None, *range(MAX_DIGITS + 1)),
    }
    for name, values in allowed.items():
        if getattr(options, name) not in values:
            raise ValueError(f"{name} is {getattr(options, name)!r}; expected one of {values}")
    if options.decimals is not None and kind.kind != "f":
        raise SchemaError(f"decimals is for floats; the dtype is {kind}")


def _default_chunks(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return a shape of about 1 MiB: whole rows, or parts of rows that are larger."""
    if not itemsize:
        return (1,)
    others = [max(size, 1) for size in shape[1:]]
    axis = 0
    while math.prod(others) * itemsize > CHUNK_BYTES and axis < len(others):
        rest = math.prod(others[axis + 1 :]) * itemsize
        others[axis] = max(min(others[axis], CHUNK_BYTES // rest), 1)
        axis += 1
    return (max(CHUNK_BYTES // (math.prod(others) * itemsize), 1), *others)
