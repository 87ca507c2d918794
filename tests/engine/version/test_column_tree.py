"""Column trees: each field has the lines of its nodes, and no others."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.engine.version.schema import paths_of, roots_of
from blztable.errors import CorruptError

TYPES = st.recursive(
    st.sampled_from([pa.int8(), pa.string(), pa.dictionary(pa.int8(), pa.string())]),
    lambda inner: (
        inner.map(pa.list_)
        | inner.map(lambda type_: pa.map_(pa.string(), type_))
        | st.lists(inner, max_size=3).map(
            lambda types: pa.struct([(f"f{i}", type_) for i, type_ in enumerate(types)])
        )
    ),
    max_leaves=8,
)


def children_of(type_):
    """The types of the child nodes, written down by hand."""
    if pa.types.is_map(type_):
        return [type_.key_type, type_.item_type]
    return [type_.field(number).type for number in range(type_.num_fields)]


def nodes_of(type_, path, ids):
    """The nodes of a type: a node, then those of each child, with any ids that differ."""
    below = [nodes_of(child, (*path, next(ids)), ids) for child in children_of(type_)]
    return [path, *(one for some in below for one in some)]


def schema_of(types):
    return pa.schema([(f"c{i}", type_) for i, type_ in enumerate(types)])


@given(st.lists(TYPES, max_size=4), st.randoms(use_true_random=True))
def test_each_field_has_the_nodes_of_its_type(types, random):
    ids = random.sample(range(100), len(types))
    nodes = [
        nodes_of(type_, (id_,), iter(random.sample(range(1000), 1000)))
        for type_, id_ in zip(types, ids, strict=True)
    ]
    paths = [path for some in nodes for path in some]
    roots = roots_of(schema_of(types), paths)
    assert [paths[first:stop] for first, stop in pairwise(roots)] == nodes


@given(st.lists(TYPES, min_size=1, max_size=4), st.data())
def test_nodes_that_a_type_has_not_are_refused(types, data):
    paths = [path for id_, type_ in enumerate(types) for path in paths_of(type_, (id_,))]
    assert roots_of(schema_of(types), paths)
    wrong = list(paths)
    index = data.draw(st.integers(0, len(paths) - 1))
    if data.draw(st.booleans()):
        del wrong[index]
    else:
        wrong.insert(index + 1, (*paths[index], 7))
    with pytest.raises(CorruptError):
        roots_of(schema_of(types), wrong)


def test_a_child_node_of_a_flat_column_is_refused_by_name():
    with pytest.raises(CorruptError, match=r"column 'c0' has the nodes .*its type int8"):
        roots_of(schema_of([pa.int8()]), [(3,), (3, 0)])
    with pytest.raises(CorruptError, match="1 fields, 2 columns"):
        roots_of(schema_of([pa.int8()]), [(3,), (4,)])
    with pytest.raises(CorruptError, match="1 fields, 1 columns"):
        roots_of(schema_of([pa.int8()]), [(3, 0), (3,)])
