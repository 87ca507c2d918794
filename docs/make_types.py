"""Print the tables of types.md: what each type becomes on disk, and what others make of it.

Each type is written and read by blztable, Parquet and Feather, by pyarrow in the version that is
installed. If an answer changes, run this program and put each table between its markers; a test
compares them.
"""

import datetime
import decimal
import io
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

import blztable as blz
from blztable.storage.memory import MemoryStore

ROWS = 16


def main() -> None:
    """Print the tables."""
    print(arrow_table(), end="\n\n")
    print(pandas_table())


def arrow_arrays() -> Iterator[tuple[str, pa.Array]]:
    """Yield a name and an array with nulls of each type of Arrow."""
    numbers = [None if row % 5 == 3 else row for row in range(ROWS)]
    texts = [None if row is None else f"text {row % 4}" for row in numbers]
    for width in (8, 16, 32, 64):
        for type_ in (f"int{width}", f"uint{width}"):
            yield type_, pa.array(numbers, type_)
    for type_ in (pa.float16(), pa.float32(), pa.float64()):
        yield str(type_), pa.array(numbers, type_)
    yield "float64 with null and NaN", pa.array([None, float("nan"), 1.5, 2.5])
    yield "bool", pa.array([None if row is None else row % 2 == 0 for row in numbers], pa.bool_())
    yield "null", pa.nulls(ROWS)
    for bits, digits in ((32, 9), (64, 18), (128, 38), (256, 76)):
        type_ = getattr(pa, f"decimal{bits}")(digits, 2)
        values = [None if row is None else decimal.Decimal(row) for row in numbers]
        yield str(type_), pa.array(values, type_)
    for type_ in (pa.date32(), pa.date64()):
        days = [None if row is None else datetime.date(2026, 1, row + 1) for row in numbers]
        yield str(type_), pa.array(days, type_)
    for type_ in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")):
        yield str(type_), pa.array(numbers, pa.int64()).cast(_width(type_)).cast(type_)
    for unit in ("s", "ms", "us", "ns"):
        yield f"timestamp[{unit}]", pa.array(numbers, pa.int64()).cast(pa.timestamp(unit))
    zoned = pa.timestamp("us", "Europe/Oslo")
    yield str(zoned), pa.array(numbers, pa.int64()).cast(zoned)
    for unit in ("s", "ms", "us", "ns"):
        yield f"duration[{unit}]", pa.array(numbers, pa.int64()).cast(pa.duration(unit))
    months = [None if row is None else (row, 1, 5) for row in numbers]
    yield "month_day_nano_interval", pa.array(months, pa.month_day_nano_interval())
    for type_ in (pa.string(), pa.large_string(), pa.string_view()):
        yield str(type_), pa.array(texts, pa.string()).cast(type_)
    blobs = [None if text is None else text.encode() for text in texts]
    for type_ in (pa.binary(), pa.large_binary(), pa.binary_view()):
        yield str(type_), pa.array(blobs, pa.binary()).cast(type_)
    yield "fixed_size_binary[6]", pa.array(blobs, pa.binary(6))
    words = pa.array(texts).dictionary_encode()
    yield "dictionary<string, int32>", words
    yield "dictionary<string, int8>", words.cast(pa.dictionary(pa.int8(), pa.string()))
    pairs = words.indices, words.dictionary
    yield "dictionary, ordered", pa.DictionaryArray.from_arrays(*pairs, ordered=True)
    null = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    yield "dictionary with a null in it", null
    lists = [None if row is None else list(range(row % 4)) for row in numbers]
    yield "list", pa.array(lists)
    for name in ("large_list", "list_view", "large_list_view"):
        yield name, pa.array(lists, getattr(pa, name)(pa.int64()))
    yield (
        "fixed_size_list[3]",
        pa.array([None if row is None else [row] * 3 for row in numbers], pa.list_(pa.int32(), 3)),
    )
    structs = [None if row is None else {"x": row, "y": str(row)} for row in numbers]
    yield "struct", pa.array(structs)
    yield "struct<>", pa.array([None if row is None else {} for row in numbers], pa.struct([]))
    maps = [None if row is None else [("a", row)] for row in numbers]
    yield "map", pa.array(maps, pa.map_(pa.string(), pa.int64()))
    yield "list<struct<list>>", pa.array([[{"x": one}] if one else one for one in lists])
    codes, children = (
        pa.array([0, 1, 0], pa.int8()),
        [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])],
    )
    yield "sparse_union", pa.UnionArray.from_sparse(codes, children)
    places = pa.array([0, 0, 1], pa.int32())
    yield "dense_union", pa.UnionArray.from_dense(codes, places, children)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([4, ROWS], pa.int32()), pa.array([7, None]))
    yield "run_end_encoded", runs
    lists = pa.array([[1], [2, None]])
    yield "dictionary<list>", pa.DictionaryArray.from_arrays(pa.array([0, None, 1]), lists)
    short = pa.RunEndEncodedArray.from_arrays(pa.array([4, ROWS], pa.int16()), pa.array([7, None]))
    yield "run_end_encoded<int16>", short
    for type_, values in (
        (pa.uuid(), [None, uuid.UUID(int=7).bytes]),
        (pa.json_(), [None, "{}"]),
        (pa.bool8(), [None, 1]),
        (pa.opaque(pa.binary(), "geometry", "postgis"), [None, b"x"]),
        (pa.fixed_shape_tensor(pa.float32(), [2]), [None, [1, 2]]),
    ):
        storage = pa.array(values, type_.storage_type)
        yield type_.extension_name, pa.ExtensionArray.from_storage(type_, storage)
    ids = pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([uuid.UUID(int=7).bytes], pa.binary(16))
    )
    codes = pa.array([0, None, 0], pa.int32())
    yield "dictionary<arrow.uuid>", pa.DictionaryArray.from_arrays(codes, ids)


def pandas_columns() -> Iterator[tuple[str, Any]]:
    """Yield a name and a column of each dtype of pandas."""
    for dtype in ("int8", "int64", "uint64", "float16", "float32", "float64", "bool"):
        yield dtype, np.arange(4).astype(dtype)
    yield "float64 with NaN", [1.0, np.nan]
    yield "complex128", np.array([1 + 2j, 3])
    for dtype in ("Int8", "Int64", "UInt32", "Float32", "Float64", "boolean"):
        yield dtype, pd.array([1, None, 0], dtype)
    for unit in ("s", "ms", "us", "ns"):
        yield f"datetime64[{unit}]", np.array(["2026-01-01", "NaT"], f"M8[{unit}]")
    yield (
        "datetime64[ns, Europe/Oslo]",
        pd.date_range("2026", periods=3, tz="Europe/Oslo", unit="ns"),
    )
    for unit in ("s", "ns"):
        yield f"timedelta64[{unit}]", np.array([1, 2], f"m8[{unit}]")
    yield "str", pd.array(["a", None], "str")
    yield "string[python]", pd.array(["a", None], "string[python]")
    yield "string[pyarrow]", pd.array(["a", None], "string[pyarrow]")
    yield "category of text", pd.Categorical(["a", None, "b"])
    yield "category, ordered", pd.Categorical(["a", "b"], ["b", "a", "c"], ordered=True)
    yield "category of numbers", pd.Categorical([2.5, None, 1.5])
    yield "category of dates", pd.Categorical(pd.to_datetime(["2026-01-01", "2026-01-02"]))
    yield "period[M]", pd.period_range("2026", periods=3, freq="M")
    yield "interval[float64]", pd.interval_range(0.0, 3.0)
    yield "interval[datetime64]", pd.interval_range(pd.Timestamp("2026"), periods=2)
    yield "Sparse[int64]", pd.arrays.SparseArray([0, 0, 1])
    yield "Sparse[float64]", pd.arrays.SparseArray([np.nan, 1.5])
    yield (
        "ArrowDtype(decimal128)",
        pd.array([decimal.Decimal("1.5"), None], pd.ArrowDtype(pa.decimal128(5, 2))),
    )
    yield "ArrowDtype(list)", pd.array([[1], None], pd.ArrowDtype(pa.list_(pa.int64())))
    yield (
        "ArrowDtype(struct)",
        pd.array([{"a": 1}, None], pd.ArrowDtype(pa.struct([("a", pa.int64())]))),
    )
    for name, values in (
        ("text", ["a", None]),
        ("bytes", [b"a", None]),
        ("int and None", [1, None]),
        ("bool and None", [True, None]),
        ("date", [datetime.date(2026, 1, 1), None]),
        ("time", [datetime.time(1), None]),
        ("Decimal", [decimal.Decimal("1.50"), None]),
        ("Timestamp", [pd.Timestamp("2026", tz="UTC"), None]),
        ("list", [[1, 2], None]),
        ("dict", [{"a": 1}, {"b": 2}]),
        ("set", [{1, 2}, None]),
        ("tuple", [(1, 2), None]),
        ("UUID", [uuid.UUID(int=1), None]),
        ("ndarray", [np.array([1.0, 2.0]), None]),
        ("mixed", ["a", 1]),
    ):
        column = np.empty(len(values), object)
        column[:] = values
        yield f"object: {name}", column


def arrow_table() -> str:
    """Return the table of Arrow's types."""
    rows = []
    for name, array in arrow_arrays():
        table = pa.table({"a": array})
        store = MemoryStore()
        blz.to_blz(table, store, durability="process", storage=blz.Storage(encoding="plain"))
        with blz.open(store) as opened:
            assert opened.to_arrow().equals(table) or "NaN" in name, name
            streams = ", ".join(f"`{one.name}`" for one in opened["a"].streams()) or "none"
        answers = [_answer(table, one) for one in (_through_parquet, _through_feather)]
        rows.append([f"`{name}`", streams, *answers])
    return _lines(["Arrow", "streams on disk", "Parquet", "Feather"], rows)


def pandas_table() -> str:
    """Return the table of the dtypes of pandas."""
    rows = []
    for name, column in pandas_columns():
        frame = pd.DataFrame({"a": column})
        answers = [
            _frame_answer(frame, one) for one in (_frame_blz, _frame_parquet, _frame_feather)
        ]
        rows.append([f"`{name}`", *answers])
    return _lines(["pandas", "blztable", "Parquet", "Feather"], rows)


def _answer(table: pa.Table, through: Callable[[pa.Table], pa.Table]) -> str:
    """Return what another format makes of a table: the same, another type, or an error."""
    try:
        found = through(table)
    except (pa.ArrowException, OSError, ValueError, TypeError):
        return "refused"
    if found.schema.types != table.schema.types:
        return f"`{found.schema.types[0]}`"
    return "same" if str(found.to_pydict()) == str(table.to_pydict()) else "other values"


def _frame_answer(frame: pd.DataFrame, through: Callable[[pd.DataFrame], pd.DataFrame]) -> str:
    try:
        found = through(frame)
    except (pa.ArrowException, OSError, ValueError, TypeError, NotImplementedError, AttributeError):
        return "refused"
    if str(found["a"].dtype) != str(frame["a"].dtype):
        return f"`{found['a'].dtype}`"
    same = [type(one) for one in found["a"]] == [type(one) for one in frame["a"]]
    return "same" if same and str(list(found["a"])) == str(list(frame["a"])) else "other values"


def _through_parquet(table: pa.Table) -> pa.Table:
    file = io.BytesIO()
    pq.write_table(table, file)
    return pq.read_table(file)


def _through_feather(table: pa.Table) -> pa.Table:
    file = io.BytesIO()
    feather.write_feather(table, file)
    return feather.read_table(file)


def _frame_blz(frame: pd.DataFrame) -> pd.DataFrame:
    store = MemoryStore()
    blz.to_blz(frame, store, durability="process")
    return blz.read_blz(store)


def _frame_parquet(frame: pd.DataFrame) -> pd.DataFrame:
    file = io.BytesIO()
    frame.to_parquet(file)
    return pd.read_parquet(file)


def _frame_feather(frame: pd.DataFrame) -> pd.DataFrame:
    file = io.BytesIO()
    frame.to_feather(file)
    return pd.read_feather(file)


def _width(type_: pa.DataType) -> pa.DataType:
    return pa.int32() if type_.bit_width == 32 else pa.int64()


def _lines(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
