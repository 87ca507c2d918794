"""A table with encoded values answers like one with plain values, after any changes."""

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.read.parts import OpenParts
from blztable.errors import CorruptError
from blztable.storage.memory import MemoryStore
from support import tamper
from support.bit_equality import same_table
from support.samples import NUMBER_ROWS, numbers_table

TABLE = numbers_table()
CUTS = {"row_group_rows": 300, "page_rows": 64}


def encodings_of(store) -> dict[str, str | None]:
    """Return the kind of each column's first part, None for plain values."""
    result = {}
    with blz.open(store) as table:
        version = table._snapshot.version
        for index, name in enumerate(version.schema.names):
            places = OpenParts(version).open(index, 0).root.streams
            one = places.get("values") or places["codes"]
            result[name] = one.encoding.kind if one.encoding else None
    return result


@pytest.fixture
def stores():
    plain, encoded = MemoryStore("plain"), MemoryStore("encoded")
    blz.to_blz(TABLE, plain, **CUTS)
    blz.to_blz(TABLE, encoded, encoding="auto", **CUTS)
    return plain, encoded


def test_each_column_has_the_encoding_that_suits_it(stores):
    kinds = {
        "near": "narrow",
        "rising": "delta",
        "price": "scaled",
        "product": "scaled",
        "any": None,
        "day": "narrow",
        "at": "delta",
        "money": "narrow",
        "word": "narrow",
        "unsigned": "narrow",
    }
    found = encodings_of(stores[1])
    assert {name: found[name] for name in kinds} == kinds
    # Steps from and to a null are none of the values.
    of_nulls = {name: found[f"{name} or null"] for name in kinds}
    assert of_nulls == kinds | {"rising": "narrow", "at": "narrow"}
    assert set(encodings_of(stores[0]).values()) == {None}


def test_a_table_with_encodings_is_smaller_and_of_the_same_size_in_memory(stores):
    with blz.open(stores[0]) as plain, blz.open(stores[1]) as encoded:
        assert encoded.nbytes == plain.nbytes
        assert encoded.cbytes < plain.cbytes
        assert encoded["near"].nbytes == 8 * NUMBER_ROWS


def check_equal(plain, encoded):
    with blz.open(plain) as one, blz.open(encoded) as other:
        assert same_table(other.to_arrow(), one.to_arrow())
        assert other.verify()
        assert other.verify(full=False)
        for filters in (
            [("near", ">", 10**12 + 100)],
            [("price", "<=", 33.25), ("word", "==", "word 3")],
            pc.field("rising or null").is_null() | (pc.field("at") > pc.field("at")),
        ):
            if {"near", "price", "word", "rising or null", "at"} <= set(one.column_names):
                assert same_table(other.to_arrow(filters=filters), one.to_arrow(filters=filters))
                assert other.count(filters=filters) == one.count(filters=filters)
        if one.nrows:
            rows = np.arange(one.nrows)[::-37]
            assert same_table(other.take(rows), one.take(rows))
            middle = one.nrows // 2
            assert same_table(other.to_arrow().slice(middle, 5), one.to_arrow().slice(middle, 5))
            for name in one.column_names[:3]:
                assert other[name][middle : middle + 70 : 3].equals(
                    one[name][middle : middle + 70 : 3]
                )


def test_reads_filters_and_picks_are_those_of_plain_values(stores):
    check_equal(*stores)


CHANGES = {
    "append": lambda t: t.append(numbers_table(150, 7)),
    "update": lambda t: t.update({"price": 0.1, "near": 7}, where=[("near", ">", 10**12 + 150)]),
    "expression": lambda t: t.update({"rising": pc.field("rising") + 1}),
    "delete": lambda t: t.delete([("price", "<", 30)]),
    "compact": lambda t: t.compact(),
    "sort": lambda t: t.compact(sort_by=["price", ("near", "descending")]),
    "add": lambda t: t.add_column(f"new {len(t.column_names)}", pc.field("near") * 2),
    "resize": lambda t: t.resize(t.nrows + 100),
    "truncate": lambda t: t.truncate(t.nrows // 2),
}


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(list(CHANGES)), min_size=1, max_size=5), st.booleans())
def test_any_changes_of_encoded_values_are_those_of_plain_values(names, is_one_commit):
    plain, encoded = MemoryStore("plain"), MemoryStore("encoded")
    for store, options in ((plain, {}), (encoded, {"encoding": "auto"})):
        blz.to_blz(TABLE.slice(0, 600), store, **CUTS, **options)
        with blz.open(store, "a") as table:
            if is_one_commit:
                with table.transaction() as transaction:
                    for name in names:
                        CHANGES[name](transaction)
            else:
                for name in names:
                    CHANGES[name](table)
    check_equal(plain, encoded)


def test_an_encoding_may_differ_by_column_and_is_kept_for_appends(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz(TABLE.select(["near", "price"]), path, encoding={"price": "auto"})
    assert encodings_of(path) == {"near": None, "price": "scaled"}
    blz.to_blz(TABLE.select(["near", "price"]), path, mode="a")
    with blz.open(path, "a") as table:
        table.compact()
    assert encodings_of(path) == {"near": None, "price": "scaled"}


def test_an_encoding_that_is_not_known_is_refused_as_an_option(tmp_path):
    with pytest.raises(ValueError, match="encoding must be one of None, 'auto', 'plain', not 'x'"):
        blz.to_blz(TABLE, tmp_path / "t.blz", encoding="x")


@pytest.mark.parametrize(
    "change",
    [
        lambda stream: stream.pop("encoding"),
        lambda stream: stream.update(encoding=7),
        lambda stream: stream["encoding"].pop("bases"),
        lambda stream: stream.update(typesize=1),
        lambda stream: stream.update(dtype="<u2"),
    ],
)
def test_metadata_of_codes_that_do_not_fit_together_are_corrupt(change):
    store = MemoryStore()
    blz.to_blz(TABLE.select(["near"]), store, encoding="auto")
    with tamper.editing(store) as table:
        change(table.part(0).metadata["streams"][0])
    with pytest.raises(CorruptError):
        blz.read_table(store)


def test_a_chunk_that_cuts_a_page_of_distances_is_corrupt():
    store = MemoryStore()
    blz.to_blz(TABLE.select(["rising"]), store, encoding="auto", page_rows=64)
    with tamper.editing(store) as table:
        stream = table.part(0).metadata["streams"][0]
        assert stream["encoding"]["kind"] == "delta"
        stream["encoding"]["firsts"] = stream["encoding"]["firsts"][:12]
        table.part(0).metadata["page_rows"] = 1024
    with pytest.raises(CorruptError):
        blz.read_table(store)
