"""Strategies: Arrow arrays of every type that can be stored, as awkward as Arrow allows.

Nulls with garbage below them, slices at odd offsets, every bit pattern of a float. A few values are
drawn and repeated, so that an array of many pages costs hypothesis little.
"""

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

UNITS = ("s", "ms", "us", "ns")
INTEGERS = [f() for f in (pa.int8, pa.int16, pa.int32, pa.int64)]
INTEGERS += [f() for f in (pa.uint8, pa.uint16, pa.uint32, pa.uint64)]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
DECIMALS = [
    pa.decimal32(1, 0),
    pa.decimal32(9, 2),
    pa.decimal64(18, 4),
    pa.decimal128(5, -2),
    pa.decimal128(38, 10),
    pa.decimal256(76, 20),
]
TIMES = [pa.date32(), pa.date64()]
TIMES += [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
TIMES += [pa.timestamp(unit) for unit in UNITS]
TIMES += [pa.timestamp("s", "Europe/Berlin"), pa.timestamp("ns", "America/New_York")]
TIMES += [pa.timestamp("ms", "+05:30"), pa.timestamp("us", "UTC")]
TIMES += [pa.duration(unit) for unit in UNITS]
FIXED_BINARIES = [pa.binary(width) for width in (0, 3, 16, 300)]
FIXED = [*INTEGERS, *FLOATS, *DECIMALS, *TIMES, pa.month_day_nano_interval(), *FIXED_BINARIES]
STRINGS = [pa.string(), pa.large_string()]
BINARIES = [pa.binary(), pa.large_binary()]
VIEWS = [pa.string_view(), pa.binary_view()]
TEXTS = [*STRINGS, *BINARIES, *VIEWS]
PLAIN = [pa.null(), pa.bool_(), *FIXED, *TEXTS]

# NaN quiet and signalling, of both signs, with payloads; infinities, zeros, the smallest.
FLOAT_BITS = {
    2: (0x7E00, 0xFE01, 0x7C01, 0x7C00, 0xFC00, 0x8000, 0, 1, 0x3C00),
    4: (0x7FC00000, 0xFFC12345, 0x7F800001, 0x7F800000, 0xFF800000, 1 << 31, 0, 1, 0x3F800000),
    8: (
        0x7FF8 << 48,
        (0xFFF8 << 48) + 12345,
        (0x7FF0 << 48) + 1,
        0x7FF0 << 48,
        0xFFF0 << 48,
        1 << 63,
        0,
        1,
        0x3FF0 << 48,
    ),
}
# Characters of one to four bytes, zero, the last before and the first after the surrogates.
LETTERS = st.sampled_from("ab\0\x7f\x80é߿ࠀ中\ud7ff\ue000\uffff😀\U0010ffff")
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.sampled_from(
    ["", "../x", "a/b", "/", "..", "🙂", "n\0ul", "con", "x" * 10_000]
)


def types() -> st.SearchStrategy[pa.DataType]:
    """Every type that can be stored."""
    return st.sampled_from(PLAIN) | st.sampled_from(PLAIN).flatmap(dictionaries_of)


def dictionaries_of(value_type: pa.DataType) -> st.SearchStrategy[pa.DataType]:
    """Dictionary types of these values: any index, ordered or not."""
    return st.builds(pa.dictionary, st.sampled_from(INTEGERS), st.just(value_type), st.booleans())


@st.composite
def arrays(
    draw: st.DrawFn, type_: pa.DataType, rows: int | None = None, stray_codes: bool = True
) -> pa.Array:
    """An array that may be a slice, with any nulls; `stray_codes` lie outside of the dictionary."""
    rows = draw(st.integers(0, 60)) if rows is None else rows
    before, after = draw(st.sampled_from([(0, 0), (0, 3), (1, 0), (5, 1), (8, 8), (13, 2)]))
    total = before + rows + after
    mask = draw(masks(total))
    if pa.types.is_null(type_):
        whole = pa.nulls(total)
    elif pa.types.is_dictionary(type_):
        whole = draw(_dictionaries(type_, total, mask, stray_codes))
    elif pa.types.is_boolean(type_):
        bits = pa.py_buffer(draw(st.binary(min_size=total // 8 + 1, max_size=total // 8 + 1)))
        whole = pa.Array.from_buffers(type_, total, [bitmap(mask), bits])
    elif type_ in VIEWS:
        values = _as_python(draw(repeated(items(type_), total)), type_ == pa.string_view())
        present = [True] * total if mask is None else mask.tolist()
        shown = [value if there else None for value, there in zip(values, present, strict=True)]
        whole = pa.array(shown, type_)
    elif type_ in TEXTS:
        values = draw(repeated(items(type_), total))
        if mask is not None:
            garbage = draw(repeated(st.binary(max_size=5), total))
            values = [v if m else g for v, g, m in zip(values, garbage, mask, strict=True)]
        whole = varying(type_, values, mask)
    else:
        data = b"".join(draw(repeated(items(type_), total)))
        whole = pa.Array.from_buffers(type_, total, [bitmap(mask), pa.py_buffer(data)])
    return whole.slice(before, rows)


@st.composite
def columns(draw: st.DrawFn, type_: pa.DataType, chunks_max: int = 4) -> pa.ChunkedArray:
    """A column of some chunks, empty ones among them; those of a dictionary type may share it."""
    chunks = draw(st.lists(arrays(type_, stray_codes=False), max_size=chunks_max))
    return pa.chunked_array(chunks, type_)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """A table of any types and names, with metadata, cut in its own chunks in each column."""
    rows = draw(st.integers(0, 40))
    kinds = draw(st.lists(types(), min_size=1, max_size=5))
    fields, values = [], []
    for kind in kinds:
        array = draw(arrays(kind, rows, stray_codes=False))
        cut = draw(st.integers(0, rows))
        chunks = [array] if draw(st.booleans()) else [array[:cut], array[cut:]]
        values.append(pa.chunked_array(chunks, kind))
        metadata = draw(st.none() | st.dictionaries(NAMES, NAMES, min_size=1, max_size=2))
        may_be_null = array.null_count > 0 or pa.types.is_null(kind) or draw(st.booleans())
        fields.append(pa.field(draw(NAMES), kind, may_be_null, metadata))
    metadata = draw(st.none() | st.dictionaries(NAMES, NAMES, min_size=1, max_size=2))
    return pa.Table.from_arrays(values, schema=pa.schema(fields, metadata))


@st.composite
def masks(draw: st.DrawFn, rows: int) -> np.ndarray | None:
    """True where a row has a value, None for no bitmap at all."""
    kind = draw(st.sampled_from(["none", "full", "empty", "any", "any"]))
    if kind == "none":
        return None
    if kind != "any":
        return np.full(rows, kind == "full")
    packed = draw(st.binary(min_size=rows // 8 + 1, max_size=rows // 8 + 1))
    bits = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")
    return bits[:rows].astype(bool)


@st.composite
def repeated(draw: st.DrawFn, item: st.SearchStrategy[bytes], rows: int) -> list[bytes]:
    """A few items in any order."""
    if rows == 0:
        return []
    pool = draw(st.lists(item, min_size=1, max_size=6))
    return [pool[at % len(pool)] for at in draw(st.binary(min_size=rows, max_size=rows))]


def items(type_: pa.DataType) -> st.SearchStrategy[bytes]:
    """The bytes of one value."""
    if type_ in (pa.string(), pa.large_string(), pa.string_view()):
        short, long = st.text(LETTERS, max_size=9), st.text(LETTERS, min_size=20, max_size=45)
        return st.builds(str.encode, short | long)
    if type_ in TEXTS:
        return st.binary(max_size=9) | st.builds(
            bytes.__add__, st.just(b"\xff" * 30), st.binary(max_size=9)
        )
    width = type_.bit_width // 8
    if pa.types.is_decimal(type_):
        limit = 10**type_.precision - 1
        return st.integers(-limit, limit).map(
            lambda value: value.to_bytes(width, "little", signed=True)
        )
    any_bits = st.binary(min_size=min(width, 24), max_size=min(width, 24)).map(
        lambda data: (data * (width // max(len(data), 1) + 1))[:width]
    )
    if pa.types.is_floating(type_):
        special = st.sampled_from(FLOAT_BITS[width])
        return special.map(lambda bits: bits.to_bytes(width, "little")) | any_bits
    return any_bits


def varying(type_: pa.DataType, values: list[bytes], mask: np.ndarray | None) -> pa.Array:
    """Text or binary from bytes as they are, below nulls too."""
    width = 8 if type_ in (pa.large_string(), pa.large_binary()) else 4
    offsets = np.cumsum([0, *map(len, values)], dtype=f"<i{width}")
    buffers = [bitmap(mask), pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(type_, len(values), buffers)


def bitmap(mask: np.ndarray | None) -> pa.Buffer | None:
    """A mask as Arrow has it."""
    return None if mask is None else pa.py_buffer(np.packbits(mask, bitorder="little"))


@st.composite
def _dictionaries(
    draw: st.DrawFn, type_: pa.DataType, rows: int, mask: np.ndarray | None, stray: bool
) -> pa.Array:
    dictionary = draw(arrays(type_.value_type, draw(st.integers(0, 9))))
    dtype = type_.index_type.to_pandas_dtype()
    codes = np.frombuffer(draw(st.binary(min_size=rows, max_size=rows)), np.uint8)
    codes = (codes % max(len(dictionary), 1)).astype(dtype)
    if len(dictionary) == 0:
        mask = np.zeros(rows, bool)
    if mask is not None and stray:
        codes[~mask] = draw(st.sampled_from([0, np.iinfo(dtype).max, np.iinfo(dtype).min]))
    buffers = [bitmap(mask), pa.py_buffer(codes)]
    return pa.DictionaryArray.from_buffers(type_, rows, buffers, dictionary)


def _as_python(values: list[bytes], is_text: bool) -> list[bytes] | list[str]:
    return [value.decode() for value in values] if is_text else values
