"""Small tables that have each form of records between them: encodings, types, leaves, files."""

from functools import cache

import numpy as np
import pyarrow as pa

import blztable as blz
from blztable.storage.memory import RamStore
from blztable.tuning import tuned

ROWS = 20
WORDS = ["Oslo", None, "", "Bern", "größer"] * 4
SMALL = {
    "encoded_bytes": 1,
    "sampled_values": 4,
    "rows_per_exception": 2,
    "rows_per_item": 3,
    "few_items": 4,
}
LEAVES = {"leaf_entries": 2, "leaf_few": 2}


def numbers() -> pa.Table:
    """Return numbers: with a base, with sums, decimals, exceptions, NaN, few and equal values."""
    rng = np.random.default_rng(3)
    prices = rng.integers(0, 99, ROWS) / 100
    odd, nans = prices.copy(), prices.copy()
    odd[3], nans[[2, 9]] = 1e300, np.nan
    return pa.table(
        {
            "base": pa.array([1000 + n % 7 for n in range(ROWS)]),
            "sum": pa.array([n * 1000 for n in range(ROWS)]),
            "price": pa.array(prices),
            "odd": pa.array(odd),
            "nan": pa.array(nans),
            "few": pa.array([[0.1, 1 / 3, 2 / 7][n % 3] for n in range(ROWS)]),
            "one": pa.array([7.5] * ROWS),
            "null": pa.array([None, *range(ROWS - 1)], pa.int32()),
        }
    )


def texts() -> pa.Table:
    """Return text and binary: plain, few items, nulls, and a dictionary type."""
    return pa.table(
        {
            "text": pa.array([f"{n:03d} some text" for n in range(ROWS)]),
            "word": pa.array(WORDS),
            "binary": pa.array([bytes([n]) * n for n in range(ROWS)]),
            "coded": pa.array(WORDS).dictionary_encode(),
        }
    )


def plain() -> pa.Table:
    """Return columns of fixed width, of which some are null."""
    rng = np.random.default_rng(5)
    return pa.table(
        {
            "i": pa.array(rng.integers(-(1 << 62), 1 << 62, ROWS)),
            "f": pa.array([None, *rng.random(ROWS - 1)]),
            "b": pa.array([True, False, None, True] * 5),
            "d": pa.array([None, *range(ROWS - 1)], pa.int64()).cast(pa.decimal128(30, 2)),
            "w": pa.array([bytes(3)] * ROWS, pa.binary(3)),
            "none": pa.nulls(ROWS),
        }
    )


def nested() -> pa.Table:
    """Return lists, structs, unions, runs and dictionaries of these."""
    lists = pa.array([[1, 2], None, [], [3]] * 5)
    codes = pa.array([0, None, 1, 0] * 5, pa.int8())
    return pa.table(
        {
            "list": lists,
            "struct": pa.array([{"a": 1, "b": "x"}, None] * 10),
            "map": pa.array(
                [[("k", 1)], None, [], [("l", 2)]] * 5, pa.map_(pa.string(), pa.int8())
            ),
            "runs": pa.array([1] * 10 + [2] * 10).dictionary_encode().cast(pa.int64()),
            "coded": pa.DictionaryArray.from_arrays(codes, pa.array([[7], []])),
            "fixed": pa.array([[1, 2], None] * 10, pa.list_(pa.int16(), 2)),
        }
    )


FORMS: dict[str, tuple] = {
    "numbers": (numbers, {"page_rows": 8}),
    "texts": (texts, {"page_rows": 8}),
    "plain": (plain, {"encoding": "plain", "page_rows": 8}),
    "nested": (nested, {"page_rows": 8}),
    "items": (texts, {"packing": "per_item"}),
    "bundles": (numbers, {}),
    "leaves": (texts, {"row_group_rows": 4}),
    "deleted": (plain, {"row_group_rows": 12}),
}


@cache
def store_of(name: str) -> RamStore:
    """Return the table of this form in memory; whoever edits it copies it first."""
    make, options = FORMS[name]
    store = RamStore()
    with tuned(**SMALL, **LEAVES):
        blz.to_blz(make(), store, storage=blz.Storage(**options))
        if name == "deleted":
            with tuned(rows_per_deleted=1, deleted_rows=1 << 14), blz.open(store, "a") as t:
                t.delete([("i", ">", 1 << 61)])
    return store


def rows_of(name: str) -> pa.Table:
    """Return the rows of this table."""
    found = blz.read_table(store_of(name))
    assert found.num_rows
    return found
