"""Arrow columns of every type that format version 1 stores, with the values at their edges.

Knows nothing of blztable. The columns are the same at each call.
"""

import struct
from collections.abc import Iterable, Sequence

import pyarrow as pa

ROWS = 20
UNITS = ("s", "ms", "us", "ns")

# Both zeros, both infinities, the smallest and the largest number, NaN that is quiet, signalling,
# negative, and with a payload.
FLOATS = {
    pa.float16(): (
        0,
        0x8000,
        0x7C00,
        0xFC00,
        1,
        0x7BFF,
        0x3C00,
        0x7E00,
        0x7D01,
        0xFE00,
        0xFE2B,
    ),
    pa.float32(): (
        0,
        1 << 31,
        0x7F800000,
        0xFF800000,
        1,
        0x7F7FFFFF,
        0x3F800000,
        0x7FC00000,
        0x7F800001,
        0xFFC00000,
        0xFFC12345,
    ),
    pa.float64(): (
        0,
        1 << 63,
        0x7FF << 52,
        0xFFF << 52,
        1,
        (0x7FF << 52) - 1,
        0x3FF << 52,
        0x7FF8 << 48,
        (0x7FF << 52) + 1,
        0xFFF8 << 48,
        (0xFFF8 << 48) + 0x123456789,
    ),
}
DECIMALS = (
    pa.decimal32(1, 0),
    pa.decimal32(9, 2),
    pa.decimal64(18, 4),
    pa.decimal128(5, -2),
    pa.decimal128(38, 10),
    pa.decimal128(38, 38),
    pa.decimal256(39, 0),
    pa.decimal256(76, 20),
)
TIMES = (
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
    *(pa.timestamp(unit) for unit in UNITS),
    pa.timestamp("s", "Europe/Berlin"),
    pa.timestamp("ms", "+05:30"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns", "America/New_York"),
    *(pa.duration(unit) for unit in UNITS),
)
# One character of each length of UTF-8, the zero byte, the characters beside the surrogates.
WORDS = (
    "",
    "a",
    "a\0b",
    "äö",
    "中文",
    "😀",
    "\n\t",
    "\x7f\x80",
    "\ud7ff\ue000",
    "\uffff\U0010ffff",
    "more than twelve bytes",
    "x" * 300,
    " ",
    "NaN",
    "null",
)
BLOBS = (b"", b"\0", b"\xff", b"\xff\xfe\xfd", b"more than twelve bytes", bytes(range(256)))


def numbers() -> pa.Table:
    """Integers and floats."""
    columns = {}
    for bits in (8, 16, 32, 64):
        top = 1 << (bits - 1)
        signed = (-top, top - 1, 0, 1, -1, 7)
        unsigned = (0, 2 * top - 1, 1, top, 7)
        columns |= variants(fixed(getattr(pa, f"int{bits}")(), signed))
        columns |= variants(fixed(getattr(pa, f"uint{bits}")(), unsigned))
    for type_, bits in FLOATS.items():
        columns |= variants(fixed(type_, bits))
    return pa.table(columns)


def decimals() -> pa.Table:
    """Decimals of each width, with their largest and smallest values."""
    columns = {}
    for type_ in DECIMALS:
        top = 10**type_.precision - 1
        columns |= variants(fixed(type_, (top, -top, 0, 1, -1, top // 7)))
    columns["all null"] = pa.nulls(ROWS, pa.decimal128(38, 10))
    return pa.table(columns)


def times() -> pa.Table:
    """Dates, times, timestamps, durations and intervals of every unit."""
    columns = {}
    for type_ in TIMES:
        top = 1 << (type_.bit_width - 1)
        columns |= variants(fixed(type_, (0, 1, -1, 86_399, 86_400_000, -top, top - 1)))
    parts = ((0, 0, 0), (-1, 2, -3), (2**31 - 1, -(2**31), 2**63 - 1), (1, 30, -(2**63)))
    packed = [struct.pack("<iiq", *part) for part in parts]
    columns |= variants(of_bytes(pa.month_day_nano_interval(), packed))
    return pa.table(columns)


def binaries() -> pa.Table:
    """Bytes of fixed width: none, few, a page of typesize 255, and more than 255."""
    columns = {}
    for width in (0, 1, 3, 16, 255, 256, 300):
        items = [bytes([fill]) * width for fill in (0, 1, 0x7F, 0xFF)]
        columns |= variants(of_bytes(pa.binary(width), items))
    return pa.table(columns)


def texts() -> pa.Table:
    """Text and bytes of any length, views among them, and booleans and nulls."""
    columns = {}
    for make in (pa.string, pa.large_string, pa.string_view):
        columns |= variants(pa.array(cycle(WORDS), make()))
    for make in (pa.binary, pa.large_binary, pa.binary_view):
        columns |= variants(pa.array(cycle(BLOBS), make()))
    columns["string, all null"] = pa.nulls(ROWS, pa.string())
    columns["string, all empty"] = pa.array([""] * ROWS)
    columns["string, empty and null"] = pa.array(["", None] * (ROWS // 2))
    columns |= variants(pa.array(cycle((True, False, False))))
    columns["bool, all true"] = pa.array([True] * ROWS)
    columns["null"] = pa.nulls(ROWS)
    return pa.table(columns)


def dictionaries() -> pa.Table:
    """Dictionaries of each index type and of many value types, with nulls on both sides."""
    words = pa.array(["Oslo", "", "Bern", None, "Æ"])
    columns = {}
    for bits in (8, 16, 32, 64):
        for sign in ("int", "uint"):
            index = getattr(pa, f"{sign}{bits}")()
            columns[f"codes of {index}"] = dictionary(index, words, (0, 4, 2, None, 3, 1))
    for name, codes in {
        "no nulls": (0, 1, 2, 4),
        "null codes": (0, None, 2, 4),
        "null values": (0, 3, 2, 3),
    }.items():
        columns[name] = dictionary(pa.int32(), words, codes)
    columns["ordered"] = dictionary(pa.int8(), words, (2, 1, 0), ordered=True)
    columns["empty"] = dictionary(pa.int16(), words[:0], (None,))
    columns["all null"] = dictionary(pa.int32(), words, (None,))
    columns["only null values"] = dictionary(pa.int32(), pa.array([None], pa.string()), (0,))
    columns["unused values"] = dictionary(pa.int32(), words, (4,))
    columns["equal values"] = dictionary(pa.int32(), pa.array(["a", "a", "b"]), (0, 1, 2))
    for values in (
        *(pa.array(cycle(WORDS)[:15], make()) for make in (pa.large_string, pa.string_view)),
        *(pa.array(BLOBS, make()) for make in (pa.binary, pa.large_binary, pa.binary_view)),
        *(fixed(type_, bits)[: len(bits)] for type_, bits in FLOATS.items()),
        *(fixed(type_, (0, 5, -5))[:3] for type_ in (pa.int8(), pa.int64(), *DECIMALS[:5])),
        *(fixed(type_, (0, 5, -5))[:3] for type_ in TIMES),
        of_bytes(pa.month_day_nano_interval(), [struct.pack("<iiq", 1, 2, 3)])[:1],
        *(of_bytes(pa.binary(width), [b"a" * width])[:1] for width in (0, 3, 300)),
        pa.array([True, False, None]),
        pa.nulls(2),
    ):
        codes = (*range(len(values)), None)
        columns[f"values of {values.type}"] = dictionary(pa.int32(), values, codes)
    return pa.table(columns)


def schemas() -> pa.Table:
    """Names and metadata of every kind: equal names, empty ones, fields that allow no null."""
    count = pa.array(range(ROWS), pa.int32())
    fields = [
        pa.field("n", pa.int32(), metadata={"unit": "m", b"\xff": b"\0\xfe"}),
        pa.field("n", pa.int32(), nullable=False),
        pa.field("", pa.int32()),
        pa.field("line\nfeed", pa.int32(), metadata={"": ""}),
        pa.field('"quoted" \\ {path}/../x', pa.int32()),
        pa.field("😀 größer", pa.int32()),
        pa.field("x" * 300, pa.int32()),
    ]
    metadata = {"source": "till 7", b"\x80": b"\xff", "": "empty key"}
    return pa.table([count] * len(fields), pa.schema(fields, metadata))


def everything() -> pa.Table:
    """One column of each type, named after it."""
    columns = {}
    for table in (numbers(), decimals(), times(), binaries(), texts()):
        columns |= {str(field.type): table[field.name] for field in table.schema}
    columns |= {str(column.type): column for column in dictionaries().columns}
    return pa.table(columns)


def variants(array: pa.Array) -> dict[str, pa.Array]:
    """The column as it is, and with nulls: the first page has some, the last one nothing else."""
    name = str(array.type)
    present = [row % 3 != 1 and row < 16 for row in range(len(array))]
    return {name: array, f"{name}, nulls": masked(array, present)}


def masked(array: pa.Array, present: Sequence[bool]) -> pa.Array:
    """The column with nulls where `present` is False; the values below them stay as they are."""
    bits = sum(flag << row for row, flag in enumerate(present))
    bitmap = pa.py_buffer(bits.to_bytes(-(-len(present) // 8), "little"))
    if array.type in (pa.string_view(), pa.binary_view()):
        kept = [value if flag else None for value, flag in zip(array, present, strict=True)]
        return pa.array([value and value.as_py() for value in kept], array.type)
    return pa.Array.from_buffers(array.type, len(array), [bitmap, *array.buffers()[1:]])


def fixed(type_: pa.DataType, values: Iterable[int]) -> pa.Array:
    """A column of these values, given as the integers whose bytes they have."""
    width = type_.bit_width // 8
    top = 1 << (8 * width)
    return of_bytes(type_, [(value % top).to_bytes(width, "little") for value in values])


def of_bytes(type_: pa.DataType, items: Sequence[bytes]) -> pa.Array:
    """A column whose values have these bytes, over and over."""
    data = pa.py_buffer(b"".join(cycle(items)))
    return pa.Array.from_buffers(type_, ROWS, [None, data])


def dictionary(
    index: pa.DataType, values: pa.Array, codes: Sequence[int | None], ordered: bool = False
) -> pa.Array:
    """A dictionary column with these codes, over and over."""
    indices = pa.array(cycle(codes), index)
    return pa.DictionaryArray.from_arrays(indices, values, ordered=ordered)


def cycle(items: Sequence) -> list:
    """The items over and over, a table's rows of them."""
    return [items[row % len(items)] for row in range(ROWS)]
