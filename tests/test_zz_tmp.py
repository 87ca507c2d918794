"""What goes in comes out: every type, to the bit, in tiny pages, row groups and chunks."""

import operator

import pyarrow as pa
import pyarrow.tests.strategies as arrow_strategies
import pytest
from columns import strategies as own
from hypothesis import HealthCheck, assume, example, given, reject, settings
from hypothesis import strategies as st
from sameness import bits, same, same_table

import blztable as blz
from blztable.engine.operations import Contents, create
from blztable.engine.options import WriteOptions
from blztable.errors import SchemaError, TableNotFoundError
from blztable.format.checksum import BY_NAME
from blztable.format.chunk import SHUFFLES, WRITABLE_CODECS
from blztable.storage.memory import MemoryStore

quick = settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
small_cuts = st.builds(
    dict,
    row_group_rows=st.sampled_from([None, 1, 7, 8, 16, 20]),
    page_rows=st.sampled_from([None, 8, 16]),
    chunk_bytes=st.sampled_from([8, 64, 200, 1 << 20]),
)
# One row group of several pages, one page of several chunks, chunks that end inside an item.
SMALL = {"row_group_rows": 40, "page_rows": 8, "chunk_bytes": 64}


def stored(table, rows=None, **options):
    """A store that holds the table."""
    store = MemoryStore()
    contents = Contents(table, table.num_rows if rows is None else rows)
    _, pinned = create(store, contents, WriteOptions(**options), replace_existing=True)
    pinned.close()
    return store


def named(type_):
    return str(type_).replace(" ", "")


@pytest.mark.parametrize("type_", own.PLAIN, ids=named)
@quick
@given(data=st.data(), cuts=small_cuts)
def test_a_column_comes_back_to_the_bit(type_, data, cuts):
    column = data.draw(own.columns(type_))
    back = blz.read_table(stored(pa.table({"a": column}), **cuts))
    back.validate(full=pa.types.is_string(type_))
    assert same(back["a"], column)


@pytest.mark.parametrize("type_", own.PLAIN, ids=named)
@quick
@given(data=st.data(), cuts=small_cuts)
def test_a_dictionary_of_these_values_comes_back_to_the_bit(type_, data, cuts):
    column = data.draw(own.columns(data.draw(own.dictionaries_of(type_)), chunks_max=3))
    back = blz.read_table(stored(pa.table({"a": column}), **cuts))
    assert same(back["a"], column)
