"""The metadata of an array: what the JSON in the front of a file says.

Knows nothing of where the JSON lies. The keys `dtype`, `shape`, `order` and `container` are those
of Bloscpack, `dtype`, `shape` and `others` those of the proposals; the others are ours.
"""

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from blztable.arrays.files.dtypes import dtype_of, text_of
from blztable.arrays.files.grid import Grid
from blztable.errors import CorruptError, FormatError
from blztable.format import jsontext
from blztable.format.bloscpack import MAX_CHUNKS
from blztable.format.chunk import LARGE_CHUNK_BYTES, SHUFFLES, WRITABLE_CODECS, Compression
from blztable.format.jsontext import Json

# Objects of variable length: the dtype of the proposals, and what an item is.
VARCHAR = "varchar"
BYTES, STR = "bytes", "str"
OURS = "blz"
NUMPY = "numpy"
MAX_DIMENSIONS = 32
# Decimal digits that floats are rounded to.
MAX_DIGITS = 17
# The room for the largest number keeps the size of the text when the array grows.
MAX_ROWS = jsontext.MAX_NUMBER


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """The facts of an array that do not depend on its chunks.

    Attributes
    ----------
    dtype
        The dtype of an item; `object` for items of variable length.
    shape, chunk_shape, order
        The shape, the shape of a chunk, and the order of the items in a chunk.
    items
        What an item of variable length is: `bytes` or `str`; "" for a numpy dtype.
    trailer, trailer_length
        Where the trailer lies; 0 if the file was written as a stream.
    room
        Number of offsets in the front; 0 if they are in the trailer.
    reserve
        Bytes that are kept free in each chunk; as a share of the chunk if below 1.
    decimals
        Decimal digits behind the point that floats keep; None for all.
    """

    dtype: np.dtype
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    order: str = "C"
    items: str = ""
    trailer: int = 0
    trailer_length: int = 0
    room: int = 0
    reserve: float = 0
    decimals: int | None = None
    compression: Compression = field(default_factory=Compression)
    meta: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def grid(self) -> Grid:
        """Return which chunk holds which part."""
        return Grid(self.shape, self.chunk_shape)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all items of fixed width."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def typesize(self) -> int:
        """Return the bytes that Blosc shuffles by."""
        if self.items or self.dtype.itemsize > 255:
            return 1
        return self.dtype.itemsize

    def raw_size(self, number: int) -> int:
        """Return the uncompressed bytes of a chunk of items of fixed width."""
        return self.grid.size_of(number) * self.dtype.itemsize

    def encode(self, length: int = 0) -> bytes:
        """Return the JSON, padded with spaces to `length` bytes."""
        return jsontext.dumps(self.to_json()).ljust(length)

    def most_bytes(self) -> int:
        """Return the length of the JSON that has the largest numbers."""
        shape = (MAX_ROWS, *self.shape[1:])
        largest = replace(self, shape=shape, trailer=MAX_ROWS, trailer_length=MAX_ROWS)
        return len(largest.encode())

    def to_json(self) -> dict[str, object]:
        """Return the metadata as JSON."""
        compression = self.compression
        # First, so that it does not move when a number gets another digit.
        meta = {name: base64.b64encode(content).decode() for name, content in self.meta.items()}
        return {
            "meta": meta,
            "dtype": VARCHAR if self.items else text_of(self.dtype),
            "shape": list(self.shape),
            "others": [],
            "order": self.order,
            "container": NUMPY,
            "chunkshape": list(self.chunk_shape),
            OURS: {
                "trailer": [self.trailer, self.trailer_length],
                "room": self.room,
                "items": self.items,
                "reserve": self.reserve,
                "truncate": self.decimals,
                "codec": compression.codec,
                "clevel": compression.clevel,
                "shuffle": compression.shuffle,
            },
        }

    @classmethod
    def from_json(cls, value: dict[str, Json]) -> Self:
        """Read the metadata that we wrote; each number is checked against the others."""
        try:
            dtype, shape = value["dtype"], shape_of_json(value["shape"])
            chunk_shape = chunk_shape_of_json(value["chunkshape"], shape)
            order, meta, own = value["order"], value["meta"], value[OURS]
            assert isinstance(own, dict)
            trailer, trailer_length = jsontext.numbers(own["trailer"], "trailer", 2)
            room = jsontext.number(own["room"], "room")
            items, reserve, decimals = own["items"], own["reserve"], own["truncate"]
            codec, clevel, shuffle = own["codec"], own["clevel"], own["shuffle"]
        except (KeyError, AssertionError):
            raise CorruptError("the metadata lack a key that each array has") from None
        if items not in ("", BYTES, STR) or (dtype == VARCHAR) != bool(items):
            raise FormatError(f"items of the kind {str(items)[:40]!r}; expected bytes or str")
        if str(codec) not in WRITABLE_CODECS or str(shuffle) not in (*SHUFFLES, "None"):
            raise FormatError(f"codec {str(codec)[:40]!r} and shuffle {str(shuffle)[:40]!r}")
        if not isinstance(reserve, int | float) or not 0 <= reserve <= LARGE_CHUNK_BYTES:
            raise CorruptError(f"reserve is {str(reserve)[:40]!r}")
        if type(clevel) is not int or not 0 <= clevel <= 9 or room > MAX_CHUNKS:
            raise CorruptError(f"clevel {str(clevel)[:40]!r} and room for {room} offsets")
        if decimals is not None:
            decimals = jsontext.number(decimals, "truncate")
        return cls(
            dtype=np.dtype(object) if items else dtype_of(dtype),
            shape=shape,
            chunk_shape=chunk_shape,
            order=order_of_json(order),
            items=str(items),
            trailer=trailer,
            trailer_length=trailer_length,
            room=room,
            reserve=reserve,
            decimals=decimals,
            compression=Compression(str(codec), clevel, None if shuffle is None else str(shuffle)),
            meta=_meta(meta),
        )._checked()

    def _checked(self) -> Self:
        """CorruptError unless the chunks have sizes that a chunk may have."""
        if self.items:
            if len(self.shape) != 1 or self.chunk_shape != (1,):
                raise CorruptError("items of variable length have one axis and one chunk each")
        elif math.prod(self.chunk_shape) * self.dtype.itemsize > LARGE_CHUNK_BYTES:
            raise CorruptError(f"a chunk has the shape {self.chunk_shape}, which is too large")
        if not self.shape:
            raise CorruptError("an array has at least one axis")
        if self.decimals is not None and (self.dtype.kind != "f" or self.decimals > MAX_DIGITS):
            raise CorruptError(f"items of {self.dtype} with {self.decimals} decimal digits")
        if math.prod(self.shape) * self.dtype.itemsize > MAX_ROWS or len(self.grid) > MAX_CHUNKS:
            raise CorruptError(f"an array of shape {self.shape} has too many chunks")
        return self


def shape_of_json(value: Json) -> tuple[int, ...]:
    """Return a shape; CorruptError for more axes or items than an array has."""
    shape = jsontext.numbers(value, "shape")
    # An axis of length 0 must not hide the others.
    if len(shape) > MAX_DIMENSIONS or math.prod(size or 1 for size in shape) > MAX_ROWS:
        raise CorruptError(f"the shape {str(shape)[:200]} is larger than any array")
    return shape


def chunk_shape_of_json(value: Json, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a chunk of an array of that shape."""
    chunk_shape = jsontext.numbers(value, "chunkshape", len(shape))
    if 0 in chunk_shape:
        raise CorruptError(f"the shape of a chunk, {chunk_shape}, has an axis of length 0")
    return chunk_shape


def order_of_json(value: Json) -> str:
    """Return the order of items: C or F."""
    if value not in ("C", "F"):
        raise CorruptError(f"order {str(value)[:40]!r}; expected C or F")
    return str(value)


def _meta(value: Json) -> dict[str, bytes]:
    if not isinstance(value, dict):
        raise CorruptError("'meta' is not an object")
    try:
        return {name: base64.b64decode(str(text), validate=True) for name, text in value.items()}
    except ValueError:
        raise CorruptError("a fixed metalayer is not base64") from None
