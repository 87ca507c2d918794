"""The reader of the page alone reads any table that is written: rows, nulls, NaN bits, statistics.

A few examples in the suite, other ones in each storm. The tables are those of the other
properties: a rule of the page that the writer breaks is found here, whatever type breaks it.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blztable as blz
from golden import reader, stated
from support import arrow_strategies
from support.bit_equality import bits
from support.moved_first import moved_first
from support.options import arguments
from support.strange_tables import own_tables, pyarrow_tables

FORMS = [
    {"page_rows": 8, "row_group_rows": 16, "encoding": "plain"},
    {"page_rows": 16, "row_group_rows": 24, "encoding": "auto"},
    {"row_group_rows": 24},
    {"row_group_rows": 7, "layout": "file"},
    {"row_group_rows": 24, "packing": "per_item"},
    {"row_group_rows": 24, "compression": "zstd", "shuffle": "bit"},
    {"layout": "file"},
    {},
]
NOTES = {
    b"blz:run_ends",
    b"blz:values:extension:name",
    b"blz:values:extension:metadata",
}
FEW, MANY = 10, 2000
STORM = pytest.param(MANY, marks=[pytest.mark.storm, pytest.mark.timeout(7200)])
EXAMPLES = pytest.mark.parametrize("examples", [FEW, STORM])
TABLES = [arrow_strategies.tables, pyarrow_tables, own_tables]
SOURCES = pytest.mark.parametrize("tables", TABLES)


def check_version(path: Path, wanted: pa.Table, number: int | None = None) -> None:
    """Compare a version, as the reader of the page reads it, with the rows that it must have."""
    found = reader.read(path, number)
    assert shown(found.schema).equals(shown(wanted.schema), check_metadata=True)
    # A reader that ignores our keys, of fields at any level, shows what the schema says.
    is_noted = any(note in found.schema.serialize().to_pybytes() for note in NOTES)
    assert found.schema.types == wanted.schema.types or is_noted
    assert found.head["rows"] == wanted.num_rows
    for column, other in zip(found.columns, wanted.columns, strict=True):
        assert column.rows == bits(other)
    stated.check_version(found)


def shown(schema: pa.Schema) -> pa.Schema:
    """Return names and metadata of fields alone, but for the notes of what Arrow cannot say."""
    fields = []
    for field in schema:
        metadata = {k: v for k, v in (field.metadata or {}).items() if k not in NOTES}
        fields.append(pa.field(field.name, pa.int8(), field.nullable, metadata or None))
    return pa.schema(fields, schema.metadata)


def for_all(examples: int, strategy: st.SearchStrategy, check: Callable) -> None:
    """Run a check on so many tables and forms, each in a folder of its own."""
    health = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run = settings(max_examples=examples, suppress_health_check=health, deadline=None)

    def in_folder(table: pa.Table, form: dict, data: st.DataObject) -> None:
        with tempfile.TemporaryDirectory() as folder:
            check(Path(folder, "t.blz"), table, {"durability": "process", **form}, data)

    run(given(strategy, st.sampled_from(FORMS), st.data())(in_folder))()


def written(path: Path, table: pa.Table, form: dict, data: st.DataObject) -> None:
    """Write a table, and read it by the page."""
    blz.to_blz(table, path, **arguments(**form))
    check_version(path, table)


def changed(path: Path, table: pa.Table, form: dict, data: st.DataObject) -> None:
    """Change a table a few times, and read each version by the page."""
    types = table.schema.types
    if any(getattr(one, "ordered", False) and pa.types.is_null(one.value_type) for one in types):
        return  # Ordered categories that are all null differ in their number alone.
    names = [f"c{number}" for number in range(table.num_columns)]
    table = table.rename_columns(names).add_column(0, "k", [range(table.num_rows)])
    half = table.num_rows // 2
    blz.to_blz(table[:half], path, **arguments(**form))
    known = {1: table[:half]}
    with blz.open(path, "a", durability="process") as t:
        t.append(table[half:])
        known[t.version] = table
        for verb in data.draw(st.lists(st.sampled_from(VERBS), max_size=4)):
            verb(t, table, data)
            known[t.version] = t.to_arrow()
        assert t.verify()
        numbers = {info.number for info in t.versions()}
    for number in sorted(numbers & set(known)):
        check_version(path, known[number], number)


def some(table: pa.Table, data: st.DataObject) -> list[int]:
    return sorted(data.draw(st.sets(st.integers(0, max(table.num_rows, 1)), max_size=5)))


def delete(t: blz.CTable, table: pa.Table, data: st.DataObject) -> None:
    t.delete(pc.field("k").isin(pa.array(some(table, data), pa.int64())))


def append(t: blz.CTable, table: pa.Table, data: st.DataObject) -> None:
    t.append(table.select([name for name in table.column_names if name in t.columns])[:9])


def update(t: blz.CTable, table: pa.Table, data: st.DataObject) -> None:
    """Give the rows of the least key the values of the first row."""
    keys = [key for key in t.to_arrow(["k"])["k"].to_pylist() if key is not None]
    names = [name for name in t.columns if name != "k" and t.schema.field(name).nullable]
    if keys and names and keys.count(min(keys)) == 1:
        values = t.to_arrow(names)[:1]
        t.update({name: values[name] for name in names}, where=pc.field("k") == min(keys))


def upsert(t: blz.CTable, table: pa.Table, data: st.DataObject) -> None:
    keys = t.to_arrow(["k"])["k"].to_pylist()
    # New rows must have the ordered categories of the table, which row groups may cut.
    ordered = [one for one in t.schema if getattr(one.type, "ordered", False)]
    names = [one.name for one in t.schema if one not in ordered]
    takes_new = all(one.nullable for one in ordered)
    rows = t.to_arrow(names)[:4]
    if len(set(keys)) == len(keys) and None not in keys and rows.num_rows:
        at = rows.column_names.index("k")
        places = range(len(rows))
        new = [1000 + place if place % 2 and takes_new else keys[place] for place in places]
        t.upsert(rows.set_column(at, rows.schema.field("k"), pa.array(new)), on="k")


def deduplicate(t: blz.CTable, table: pa.Table, data: st.DataObject) -> None:
    t.deduplicate(on="k")


def sort(t: blz.CTable, table: pa.Table, data: st.DataObject) -> None:
    t.compact(sort_by=[("k", "descending")])


def compact(t: blz.CTable, table: pa.Table, data: st.DataObject) -> None:
    t.compact()


def resize(t: blz.CTable, table: pa.Table, data: st.DataObject) -> None:
    t.resize(len(t) // 2)


def columns(t: blz.CTable, table: pa.Table, data: st.DataObject) -> None:
    with t.transaction() as tx:
        tx.add_column(f"new {t.version}", "x")
        moved_first(tx, [f"new {t.version}", "k"])


def drop(t: blz.CTable, table: pa.Table, data: st.DataObject) -> None:
    if len(t.columns) > 2:
        t.drop_columns([t.columns[-1]])


def restore(t: blz.CTable, table: pa.Table, data: st.DataObject) -> None:
    t.restore(min(info.number for info in t.versions()))


def tag(t: blz.CTable, table: pa.Table, data: st.DataObject) -> None:
    t.tags[f"tag {t.version}"] = t.version


VERBS = [delete, append, update, upsert, deduplicate, sort, compact, resize, columns, drop]
VERBS += [restore, tag]


@EXAMPLES
@SOURCES
@pytest.mark.parametrize("check", [written, changed])
class TestAsSmallTablesAre:
    def test_the_reader_of_the_page_reads_any_table(self, tables, check, examples):
        for_all(examples, tables(), check)


@EXAMPLES
@SOURCES
@pytest.mark.parametrize("check", [written, changed])
@pytest.mark.usefixtures("encoded", "batched", "deletions")
class TestAsLargeTablesAre:
    def test_the_reader_of_the_page_reads_any_table(self, tables, check, examples):
        for_all(examples, tables(), check)
