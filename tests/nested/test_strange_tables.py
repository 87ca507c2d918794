"""Any table that Arrow can make comes back identical, and every verb keeps its rows.

A few examples in the suite; `-m storm` tries 2,000 of each.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.arrow.types import first_missing
from blztable.storage.memory import RamStore
from support.bit_equality import bits
from support.options import arguments
from support.strange_tables import own_tables, pyarrow_tables

FORMS = [
    {"page_rows": 8, "row_group_rows": 16, "encoding": "plain"},
    {"page_rows": 8, "row_group_rows": 24, "encoding": "auto"},
    {"row_group_rows": 24},
    {},
]
FEW, MANY = 12, 2000
STORM = pytest.param(MANY, marks=[pytest.mark.storm, pytest.mark.timeout(3600)])
EXAMPLES = pytest.mark.parametrize("examples", [FEW, STORM])
SOURCES = pytest.mark.parametrize("tables", [pyarrow_tables, own_tables])

# The rows of a table, each a tuple of the bits of its values.
Rows = list[tuple]


def rows_of(table: pa.Table) -> Rows:
    if not table.num_columns:
        return [()] * table.num_rows
    return list(zip(*map(bits, table.columns), strict=True))


def for_all(examples: int, strategy: st.SearchStrategy, check: Callable) -> None:
    """Run a check on so many tables and forms."""
    health = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run = settings(max_examples=examples, suppress_health_check=health, deadline=None)
    run(given(strategy, st.sampled_from(FORMS), st.data())(check))()


@EXAMPLES
@SOURCES
def test_any_table_comes_back_identical(tables, examples):
    def check(table: pa.Table, form: dict, data: st.DataObject) -> None:
        store = RamStore()
        blz.to_blz(table, store, **arguments(**form))
        found = blz.read_table(store)
        found.validate(full=True)
        assert found.schema.equals(table.schema, check_metadata=True)
        assert rows_of(found) == rows_of(table)
        with blz.open(store) as opened:
            report = opened.verify()
            assert report, report.problems
            batches = [pa.table(batch) for batch in opened.to_batches(batch_rows=7)]
            assert [row for batch in batches for row in rows_of(batch)] == rows_of(table)

    for_all(examples, tables(), check)


@EXAMPLES
@SOURCES
def test_every_verb_keeps_the_rows_of_any_table(tables, examples):
    def check(table: pa.Table, form: dict, data: st.DataObject) -> None:
        names = [f"c{number}" for number in range(table.num_columns)]
        table = table.rename_columns(names).add_column(0, "k", [range(table.num_rows)])
        rows, half = rows_of(table), table.num_rows // 2
        keys = list(range(table.num_rows))
        store = RamStore()
        blz.to_blz(table[:half], store, **arguments(**form))
        with blz.open(store, "a") as opened:
            opened.append(table[half:])
            assert rows_of(opened.to_arrow()) == rows
            whole = opened.version
            for number, name in enumerate(names, 1):
                assert rows_of(opened.to_arrow([name])) == [(row[number],) for row in rows]
            behind = data.draw(st.integers(0, len(keys)))
            found = opened.to_arrow(filters=pc.field("k") >= behind)
            assert rows_of(found) == rows[behind:]
            if keys:
                places = data.draw(st.lists(st.sampled_from(keys), max_size=9))
                assert rows_of(opened.take(places)) == [rows[place] for place in places]
                start, stop = sorted(data.draw(st.sampled_from(keys)) for _ in range(2))
                sliced = pa.table({name: opened[name][start:stop] for name in opened.columns})
                assert rows_of(sliced) == rows[start:stop]

            # The last rows get the values of the first ones, where the schema allows these.
            count = data.draw(st.integers(0, len(keys) - half))
            later = pc.field("k") >= len(keys) - count
            values = {name: table[name][:count] for name in names}
            values = {
                name: column
                for name, column in values.items()
                if table.schema.field(name).nullable or first_missing(column) is None
            }
            if values and count:
                opened.update(values, later)
                rows[-count:] = [
                    tuple(
                        new if name in values else old
                        for name, new, old in zip(table.column_names, first, last, strict=True)
                    )
                    for first, last in zip(rows[:count], rows[-count:], strict=True)
                ]
                assert rows_of(opened.to_arrow()) == rows
            gone = data.draw(st.sets(st.sampled_from(keys), max_size=5)) if keys else set()
            opened.delete(pc.field("k").isin(pa.array(sorted(gone), pa.int64())))
            rows = [row for row, key in zip(rows, keys, strict=True) if key not in gone]
            assert rows_of(opened.to_arrow()) == rows
            opened.compact()
            assert rows_of(opened.to_arrow()) == rows
            assert opened.verify()
            opened.restore(whole)
            found = opened.to_arrow()
            assert found.schema.equals(table.schema, check_metadata=True)
            assert rows_of(found) == rows_of(table)
            assert opened.verify()
            opened.vacuum()
            assert rows_of(opened.to_arrow()) == rows_of(table)

    for_all(examples, tables(), check)
