"""DataFrames of every index, dtype and kind of label that a table keeps.

Knows nothing of blztable. Each constructor gives the same frame at each call: the golden tables
were written from these frames, and must be read as these frames.
"""

import datetime
import decimal
from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa

ROWS = 12
WORDS = ["Oslo", None, "", "Bern", "größer", "😀"] * 2
DAYS = pd.date_range("2026-01-30", periods=ROWS, freq="D")


def values(index: pd.Index | None = None) -> pd.DataFrame:
    """Two columns over an index."""
    return pd.DataFrame({"n": np.arange(ROWS), "word": WORDS}, index)


def numpy_dtypes() -> pd.DataFrame:
    """Every dtype of numpy, with NaN, NaT and the extremes."""
    columns: dict[str, object] = {"bool": [True, False, False] * 4}
    for bits in (8, 16, 32, 64):
        for sign in ("int", "uint"):
            limits = np.iinfo(f"{sign}{bits}")
            columns[f"{sign}{bits}"] = np.array([limits.min, limits.max, 1] * 4, f"{sign}{bits}")
    for bits in (16, 32, 64):
        columns[f"float{bits}"] = np.array(
            [np.nan, -0.0, np.inf, -np.inf, 1.5, 0] * 2, f"f{bits // 8}"
        )
    for unit in ("s", "ms", "us", "ns"):
        days = DAYS.as_unit(unit).to_series().where(np.arange(ROWS) % 3 != 1)
        columns[f"datetime {unit}"] = days.to_numpy()
        columns[f"datetime {unit} zoned"] = days.dt.tz_localize("Europe/Berlin").array
        columns[f"timedelta {unit}"] = (days - days.iloc[0]).to_numpy()
    columns["UTC"] = DAYS.tz_localize("UTC")
    columns["fixed offset"] = DAYS.tz_localize("+05:30")
    return pd.DataFrame(columns)


def extension_dtypes() -> pd.DataFrame:
    """Masked, text, period and Arrow dtypes."""
    columns: dict[str, object] = {}
    for bits in (8, 16, 32, 64):
        for sign in ("Int", "UInt"):
            columns[f"{sign}{bits}"] = pd.array([None, 1, 100] * 4, f"{sign}{bits}")
    for bits in (32, 64):
        columns[f"Float{bits}"] = pd.array([None, -0.0, 1.5] * 4, f"Float{bits}")
    columns["boolean"] = pd.array([None, True, False] * 4, "boolean")
    for storage in ("python", "pyarrow"):
        for missing in (np.nan, pd.NA):
            columns[f"string {storage} {missing}"] = pd.array(
                WORDS, pd.StringDtype(storage, na_value=missing)
            )
    for freq in ("D", "M", "Q-DEC", "W-SUN", "3h"):
        columns[f"period {freq}"] = pd.PeriodIndex(
            [pd.NaT, *pd.period_range("2026-01-01", periods=ROWS - 1, freq=freq)], freq=freq
        )
    for type_ in (pa.int16(), pa.string(), pa.large_string(), pa.date32(), pa.decimal128(13, 3)):
        cells = pa.array([None, 1, 3] * 4).cast(pa.int32()).cast(type_)
        columns[f"arrow {type_}"] = pd.array(cells, dtype=pd.ArrowDtype(type_))
    return pd.DataFrame(columns)


def object_columns() -> pd.DataFrame:
    """Columns of Python objects."""
    cells = {
        "text": ["a", None, "ü"],
        "bytes": [b"\xff", None, b""],
        "bool": [True, None, False],
        "date": [datetime.date(1970, 1, 1), None, datetime.date(2026, 12, 31)],
        "time": [datetime.time(23, 59, 59, 999999), None, datetime.time()],
        "decimal": [decimal.Decimal("1.25"), None, decimal.Decimal("-99.99")],
    }
    return pd.DataFrame({name: pd.Series(cell * 4, dtype=object) for name, cell in cells.items()})


def categories() -> pd.DataFrame:
    """Categories of several dtypes, ordered and not, used and not, and missing values."""
    codes = [0, 1, -1] * 4
    kinds = {
        "text": pd.Index(["b", "a", "unused"]),
        "objects": pd.Index(["b", "a"], dtype=object),
        "numbers": pd.Index([3, 1, 2]),
        "range": pd.RangeIndex(3),
        "floats": pd.Index([1.5, -0.5]),
        "days": DAYS[:3],
        "zoned": DAYS[:3].tz_localize("Europe/Berlin"),
        "periods": pd.period_range("2026-01", periods=2, freq="M"),
        "deltas": pd.to_timedelta([2, 1], unit="s"),
        "booleans": pd.Index([True, False]),
    }
    return pd.DataFrame(
        {
            f"{name} {ordered}": pd.Categorical.from_codes(codes, found, ordered=ordered)
            for name, found in kinds.items()
            for ordered in (False, True)
        }
    )


def with_attrs() -> pd.DataFrame:
    """Attributes, plain ones and those that JSON has no word for."""
    frame = values()
    frame.attrs = {
        "source": "till 7",
        "nested": {"list": [1, -5, 1.5, None, True, 10**30], "": {}},
        "tag": {"blz:value": 1},
        "floats": [float("inf"), float("-inf")],
        "numpy": [np.int8(-5), np.float32(1.5), np.float64(-0.0), np.bool_(True), np.str_("x")],
        "moment": np.datetime64("2026-01-30T12", "h"),
        "span": np.timedelta64(-5, "us"),
        "timestamp": pd.Timestamp("2026-01-30 12:00", tz="Europe/Berlin"),
        "timedelta": pd.Timedelta(days=1),
        "period": pd.Period("2026-01", "M"),
        "datetime": datetime.datetime(2026, 1, 30, 12, 0, 0, 5),
        "array": np.array([1, -2], "i2"),
        "texts": np.array(["a", "äö"]),
        "days": DAYS[:2].to_numpy("M8[D]"),
        "date": datetime.date(2026, 1, 30),
        "missing": [pd.NaT, pd.NA],
    }
    return frame


def with_labels(labels: pd.Index | list) -> pd.DataFrame:
    """As many columns of numbers as there are labels."""
    cells = np.arange(ROWS * len(labels), dtype="f8").reshape(ROWS, len(labels))
    return pd.DataFrame(cells, columns=labels)


def without_duplicates() -> pd.DataFrame:
    """A frame that allows no label twice."""
    return values().set_flags(allows_duplicate_labels=False)


NAMES = pd.Index(list("abcdefghijkl"), name="letter")
INDEXES: dict[str, pd.Index] = {
    "range": pd.RangeIndex(ROWS),
    "range-stepped": pd.RangeIndex(5, 5 + 3 * ROWS, 3, name="row"),
    "range-down": pd.RangeIndex(ROWS, 0, -1),
    "integers": pd.Index(np.arange(ROWS, dtype="u2") * 7 % 12),
    "floats": pd.Index([np.nan, -0.0, 0.5] * 4, name=1.5),
    "booleans": pd.Index([True, False] * 6),
    "text": NAMES,
    "text-missing": pd.Index(WORDS, name=("a", 1)),
    "objects": pd.Index([b"a", b"b", None] * 4, dtype=object),
    "days": DAYS.rename("day"),
    "months": pd.date_range("2026-01-31", periods=ROWS, freq="ME"),
    "no-frequency": DAYS[[3, 1, 2] * 4],
    "zoned": DAYS.tz_localize("America/New_York"),
    "deltas": pd.timedelta_range("1h", periods=ROWS, freq="30min", name=7),
    "periods": pd.period_range("2026-01", periods=ROWS, freq="Q-DEC", name="quarter"),
    "categories": pd.CategoricalIndex(["b", "a", None] * 4, ["a", "b", "c"], ordered=True),
    "masked": pd.Index(pd.array([None, 1, 2] * 4, "Int32"), name=False),
    "arrow": pd.Index(pd.array([None, 1, 2] * 4, pd.ArrowDtype(pa.int16()))),
    "levels": pd.MultiIndex.from_arrays(
        [DAYS.tz_localize("Europe/Berlin"), list("aabb") * 3, [1.5, None] * 6],
        names=["day", None, ("x", 2)],
    ),
    "one-level": pd.MultiIndex.from_arrays([NAMES], names=["letter"]),
}
LABELS: dict[str, pd.Index] = {
    "range": pd.RangeIndex(3),
    "numbers": pd.Index([7, -1, 7], name="number"),
    "floats": pd.Index([0.5, np.inf]),
    "days": DAYS[:3],
    "periods": pd.period_range("2026", periods=2),
    "categories": pd.CategoricalIndex(["b", "a", "b"], ["a", "b", "c"], name="kind"),
    "mixed": pd.Index(["n", 1, ("a", 2), None, DAYS[0]], dtype=object, tupleize_cols=False),
    "twice": pd.Index(["n", "n", ""], name="name"),
    "levels": pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)], names=["x", None]),
}

FRAMES: dict[str, Callable[[], pd.DataFrame]] = {
    "numpy": numpy_dtypes,
    "extension": extension_dtypes,
    "objects": object_columns,
    "categories": categories,
    "attrs": with_attrs,
    "no-duplicates": without_duplicates,
    "no-rows": lambda: numpy_dtypes().iloc[:0],
    "no-columns": lambda: values()[[]],
    "empty": pd.DataFrame,
    **{
        f"index-{name}": lambda index=index: values(index.copy()) for name, index in INDEXES.items()
    },
    **{
        f"labels-{name}": lambda labels=labels: with_labels(labels.copy())
        for name, labels in LABELS.items()
    },
}
