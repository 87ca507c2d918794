"""Small tables of everything that can be stored, for tests of damage, fuzzing and reading.

Each call returns the same tables. Rows repeat and have nulls; pages, row groups and dictionaries
differ.
"""

import datetime
import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

import blztable as blz
from blztable.engine.change.creation import create
from blztable.storage.resolve import store_at
from support import arrow_strategies as types
from support.new_tables import Stream
from support.options import arguments, tiny

ROWS = 40
WORDS = [None, "", "a", "äö", "word", "a longer one, more than twelve bytes", "中文", "😀"]


def array(type_: pa.DataType, rows: int = ROWS) -> pa.Array:
    """Return rows of any type, every seventh of them null."""
    if pa.types.is_null(type_):
        return pa.nulls(rows)
    if pa.types.is_dictionary(type_):
        values = array(type_.value_type, 8).slice(1)
        codes = pa.array([None if row % 7 == 3 else row % 5 for row in range(rows)])
        codes = codes.cast(type_.index_type)
        return pa.DictionaryArray.from_arrays(codes, values, ordered=type_.ordered)
    if type_ in types.TEXTS:
        words = [WORDS[row % len(WORDS)] for row in range(rows)]
        return pa.array([word and word.encode() for word in words]).cast(type_)
    mask = np.arange(rows) % 7 != 3
    if pa.types.is_boolean(type_):
        return pa.array(np.arange(rows) % 3 == 0, mask=~mask)
    width = type_.bit_width // 8
    if pa.types.is_fixed_size_binary(type_):
        items = [bytes([row]) * width for row in range(rows)]
    else:
        # Small numbers, valid in every precision; whole days or microseconds.
        unit = 86_400_000 if width == 8 else 1
        items = [(row % 9 * unit).to_bytes(width, "little") for row in range(rows)]
    data = b"".join(
        item if there else bytes(width) for item, there in zip(items, mask, strict=True)
    )
    return pa.Array.from_buffers(type_, rows, [types.bitmap(mask), pa.py_buffer(data)])


def of(kinds: list[pa.DataType], rows: int = ROWS) -> pa.Table:
    """Return a table with a column of each type, named after it."""
    return pa.table({str(kind): array(kind, rows) for kind in kinds})


DICTIONARIES = [
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint32(), pa.large_binary(), ordered=True),
    pa.dictionary(pa.int64(), pa.timestamp("ms", "Europe/Berlin")),
    pa.dictionary(pa.int32(), pa.bool_()),
    pa.dictionary(pa.int16(), pa.string_view()),
    pa.dictionary(pa.int32(), pa.decimal128(5, -2)),
]


def frame() -> pd.DataFrame:
    """Return a DataFrame with most facts that a descriptor can hold."""
    rows = range(12)
    days = pd.date_range("2026-01-01", periods=12, freq="D", tz="Europe/Berlin", name="day")
    data = {
        "int": np.arange(12, dtype="i4"),
        "masked": pd.array([None, *range(11)], dtype="Int16"),
        "boolean": pd.array([None, True, False] * 4, dtype="boolean"),
        "str": [WORDS[row % len(WORDS)] for row in rows],
        "python": pd.array(["a", None] * 6, dtype=pd.StringDtype("python", na_value=pd.NA)),
        "category": pd.Categorical(["a", "b", None] * 4, categories=["b", "a", "c"], ordered=True),
        "period": pd.period_range("2026-01", periods=12, freq="M"),
        "delta": pd.to_timedelta(rows, unit="s"),
        "naive": pd.date_range("2026", periods=12, unit="ms"),
        "arrow": pd.array([1, None] * 6, dtype=pd.ArrowDtype(pa.uint8())),
        "date": [datetime.date(2026, 1, 1), None] * 6,
        "time": [datetime.time(1, 2, 3)] * 12,
        "decimal": [decimal.Decimal("1.25"), decimal.Decimal("-3")] * 6,
        "bytes": [b"\xff", None] * 6,
        "mixed": pd.Series([True, None] * 6, dtype=object),
    }
    index = pd.MultiIndex.from_arrays([days, pd.Index(list("aabb") * 3, name=("a", 1))])
    return pd.DataFrame(data).set_axis(index)


def labelled() -> pd.DataFrame:
    """Return a DataFrame whose labels are not text, and whose index is a range."""
    columns = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)], names=["x", None])
    result = pd.DataFrame(np.arange(30.0).reshape(10, 3), pd.RangeIndex(5, 25, 2), columns)
    result.attrs = {"source": ["till", 7]}
    return result


def timed() -> pd.DataFrame:
    """Return a DataFrame with an index of a frequency and labels that are dates."""
    days = pd.date_range("2026-01-31", periods=9, freq="MS", name="month")
    return pd.DataFrame(np.arange(18).reshape(9, 2), days, pd.period_range("2026", periods=2))


def table(kinds: list[pa.DataType], **options: Any) -> Callable[[Any], None]:
    """Return a function that writes a table of these types, in several pages and row groups."""

    def write(place: Any) -> None:
        data = of(kinds)
        settings = tiny(**{"page_rows": 8, "row_group_rows": 24, **options})
        _, pinned = create(store_at(place), Stream(data), settings, replace_existing=True)
        pinned.close()

    return write


def _frame(make: Callable[[], pd.DataFrame], **options: Any) -> Callable[[Any], None]:
    return lambda place: blz.to_blz(
        make(), place, **arguments(page_rows=8, row_group_rows=8, **options)
    )


def _versions(place: Any) -> None:
    """Write three versions with attributes, each in another way."""
    kinds = [pa.int32(), pa.string()]
    blz.to_blz(of(kinds, 9), place, compression="zlib")
    blz.to_blz(
        of([*kinds, pa.float64()], 9),
        place,
        compression="zstd",
    )
    with blz.open(place, "a") as table:
        table.attrs["checked"] = {"by": ["me", 1.5, None]}


# Each function writes its table to a directory or a store.
SAMPLES: dict[str, Callable[[Any], None]] = {
    "integers": table([*types.INTEGERS, *types.FLOATS]),
    "decimals": table([*types.DECIMALS, pa.bool_()], compression="zstd"),
    "times": table(types.TIMES, compression="zlib", clevel=1),
    "binaries": table(
        [*types.FIXED_BINARIES, pa.month_day_nano_interval(), pa.null()], shuffle="bit"
    ),
    "texts": table(types.TEXTS, clevel=9),
    "pieces": table([pa.string(), pa.int64(), DICTIONARIES[0]], chunk_bytes=64, clevel=9),
    "dictionaries": table(DICTIONARIES, compression="lz4hc"),
    "stored": table([pa.int64(), pa.string(), pa.bool_()], clevel=0, shuffle="none"),
    "bundles": table(
        [*types.INTEGERS, *types.FLOATS, pa.string(), pa.bool_(), pa.null(), *DICTIONARIES],
        page_rows=None,
    ),
    "frame": _frame(frame),
    "labelled": _frame(labelled, compression="zstd"),
    "timed": _frame(timed),
    "versions": _versions,
    "no-rows": lambda place: blz.to_blz(of([*types.PLAIN, *DICTIONARIES], 0), place),
    "no-columns": lambda place: blz.to_blz(pd.DataFrame(index=range(5)), place),
}


NUMBER_ROWS = 1000
NUMBER_WORDS = pa.array([f"word {n % 7}" for n in range(NUMBER_ROWS)])
LINES = pa.array([f"line {n} of text {'ä' * (n % 3)}" for n in range(NUMBER_ROWS)])
MODES = pa.array(["", "air", "rail", "ä ship", "a truck of many letters"])
# Two kinds of NaN and of zero among them.
FEW_DOUBLES = np.append(np.arange(1, 9) / 7, [np.nan, -0.0, 0.0, -np.inf, 1e300, 5e-324])
FEW_DOUBLES = np.append(FEW_DOUBLES, np.array([0x7FF8_0000_0000_0123], "<u8").view("<f8"))
# Too many for a dictionary, and all of one length.
FLAGS = pa.array([b"%03d" % n for n in range(NUMBER_ROWS)], pa.large_binary())


def many_items(rows: int = 4500, seed: int = 5) -> pa.Table:
    """Return text of so many items that a code takes two bytes, and some of one length."""
    rng = np.random.default_rng(seed)
    items = [f"https://example.org/{n}/{'page ' * (n % 9)}" for n in range(300)]
    url = pa.array(items).take(pa.array(rng.integers(0, len(items), rows)))
    clerks = [f"Clerk#{n:09}/{n * 7919 % 1000:03}" * 2 for n in range(200)]
    clerk = pa.array(clerks).take(pa.array(rng.integers(0, len(clerks), rows)))
    nulls = pa.array(np.arange(rows) % 7 == 3)
    return pa.table({"url": url, "clerk": clerk, "url or null": pc.if_else(nulls, None, url)})


def numbers_table(rows: int = NUMBER_ROWS, seed: int = 5) -> pa.Table:
    """Return a table with columns that suit each encoding of numbers, with and without nulls."""
    number, rng = np.arange(rows), np.random.default_rng(seed)
    columns = {
        "near": pa.array(10**12 + rng.integers(0, 200, rows)),
        "rising": pa.array(np.cumsum(rng.integers(0, 9, rows)) * 1000),
        "price": pa.array(rng.integers(0, 10_000, rows) / 100),
        "product": pa.array(rng.integers(0, 10_000, rows) * 0.01),
        "odd": pa.array(
            np.where(number % 99 == 5, -0.0, np.where(number == 7, np.nan, number / 4))
        ),
        "any": pa.array(rng.normal(size=rows)),
        "day": pa.array(19_000 + number // 9, pa.int32()).cast(pa.date32()),
        "at": pa.array(1_600_000_000_000_000 + number * 250, pa.timestamp("us", "UTC")),
        "money": pa.array(rng.integers(0, 999, rows).astype("i4")).cast(pa.decimal64(18, 2)),
        "word": NUMBER_WORDS.take(pa.array(number % NUMBER_ROWS)).dictionary_encode(),
        "unsigned": pa.array(2**64 - 1 - rng.integers(0, 99, rows).astype("u8")),
        "line": LINES.take(pa.array(rng.integers(0, len(LINES), rows))),
        "flag": FLAGS.take(pa.array(rng.integers(0, len(FLAGS), rows))),
        "mode": MODES.take(pa.array(rng.integers(0, len(MODES), rows))),
        "same": pa.array(np.full(rows, -0.0)),
        "few": pa.array(FEW_DOUBLES[rng.integers(0, len(FEW_DOUBLES), rows)]),
        "id": pa.array(rng.choice(rng.integers(-(2**62), 2**62, 20), rows)),
        "cents": pa.array(rng.integers(-99, 99, rows)).cast(pa.decimal128(21, 0)),
    }
    nulls = pa.array(number % 7 == 3)
    for name in list(columns):
        # Arrow makes plain text of a dictionary, and wider decimals.
        made = pc.if_else(nulls, None, columns[name])
        made = made.dictionary_encode() if name == "word" else made.cast(columns[name].type)
        columns[f"{name} or null"] = made
    # Nulls in long runs.
    columns["outage"] = pa.array(rng.integers(-(2**63), 2**63, rows), mask=number % 130 > 85)
    return pa.table(columns)
