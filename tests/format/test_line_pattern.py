"""Line pattern: a line is recognised only if it says what the decoded one says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.format.line import ColumnParts, LinePattern, LineTemplate, PartMetaArrays, Statistics
from blztable.format.superchunk import PartMeta

GROUPS = 2


def line_of(path=3, at=(7, 9), rows=(2000, 50), bound=b"12345678", **changes):
    """Return a column of two parts that lie in bundles."""
    facts = [PartMeta(count, 2048, 100 + path, 0, 0, 0) for count in rows]
    statistics = Statistics((0, 1), (0, 0), (bound, None), (bound, bound))
    values = {
        "path": (path,),
        "k": (0, 0),
        "meta": PartMetaArrays.of(facts),
        "streams": {"values": tuple(8 * count for count in rows)},
        "statistics_json": statistics.to_json(),
        "at": at,
    }
    return ColumnParts(**{**values, **changes})


LIKE = LinePattern(line_of().encode(), GROUPS)


@given(
    st.integers(1, 10**18 - 1),
    st.lists(st.integers(1, 10**18 - 1), min_size=GROUPS, max_size=GROUPS),
    st.binary(max_size=8),
)
def test_lines_that_differ_in_places_and_statistics_are_alike(path, at, bound):
    line = line_of(path, tuple(at), bound=bound)
    assert LIKE.first_entries(line.encode(), (path,)) == at
    decoded = ColumnParts.decode(line.encode(), (path,), GROUPS)
    assert list(decoded.at) == at
    assert decoded.meta.rows == line_of().meta.rows


@pytest.mark.parametrize(
    "other",
    [
        line_of(rows=(2000, 51)),
        line_of(streams={"valid": (250, 7), "values": (16000, 400)}),
        line_of(flags={"nan_is_null": (1, 0)}),
        line_of(at=(7, 0), k=(0, 4)),
        line_of(at=(), k=(3, 4)),
    ],
)
def test_a_line_that_says_something_else_is_not_alike(other):
    assert LIKE.first_entries(other.encode(), other.path) is None


@pytest.mark.parametrize(
    ("change", "by"),
    [
        (b'"at":[7,9]', b'"at":[7]'),
        (b'"at":[7,9]', b'"at":[7,9,1]'),
        (b'"at":[7,9]', b'"at":[07,9]'),
        (b'"at":[7,9]', b'"at":[7, 9]'),
        (b'"at":[7,9]', b'"at":[0,9]'),
        (b'"at":[7,9]', b'"at":[7,1000000000000000000]'),
        (b'"nulls":[0,1]', b'"nulls":[0,[]]'),
        (b'"nulls":[0,1]', b'"nulls":[0,-1]'),
        (b'"min":["MTIzNDU2Nzg=",null]', b'"min":["\\u0022",null]'),
        (b'"path":3', b'"path":[3]'),
        (b'"k":[0,0]', b'"k":[000]'),
        (b'"cbytes":[103,103],', b'"cbytes":[103],'),
        (b'"cbytes":[103,103],', b'"cbytes":[103,103,103],'),
        (
            b'"nans":[0,0],"min":["MTIzNDU2Nzg=",null]',
            b'"nans":[0],"min":["MTIzNDU2Nzg=",null,null]',
        ),
        (b"}", b"} "),
    ],
)
def test_other_spellings_are_decoded_and_not_compared(change, by):
    line = line_of().encode()
    assert change in line
    assert LIKE.first_entries(line.replace(change, by), (3,)) is None


def test_a_line_of_another_path_is_not_alike():
    assert LIKE.first_entries(line_of(4).encode(), (3,)) is None
    assert LIKE.first_entries(line_of(4).encode(), (3, 4)) is None


@pytest.mark.parametrize(
    "like",
    [
        line_of(at=(), k=(1, 2)).encode(),
        line_of().encode().replace(b'"known":', b'"\\u006b":') + b" \\",
        line_of().encode().replace(b'"at":[7,9],', b"").replace(b'"nulls"', b'"at":[7,9],"nulls"'),
    ],
)
def test_a_line_that_is_not_spelled_as_lines_in_bundles_are_has_none_like_it(like):
    assert LinePattern(like, GROUPS).first_entries(like, (3,)) is None


@given(
    st.integers(1, 10**18 - 1),
    st.integers(1, 10**18 - 1),
    st.integers(0, 10**18 - 1),
    st.none() | st.binary(max_size=16),
    st.booleans(),
)
def test_a_template_encodes_lines_as_they_are_encoded_one_by_one(path, at, cbytes, bound, claims):
    def of(path, at, cbytes, statistics):
        return ColumnParts(
            (path,),
            (0,),
            PartMetaArrays.of([PartMeta(2000, 2048, cbytes, 0, 0, 0)]),
            {"values": (16000,), "100 %d": (1,)},
            statistics.to_json(),
            (at,),
            {"nan_is_null": (1,)} if claims else {},
        ).encode()

    template = LineTemplate(of(1, 2, 3, Statistics((0,), (0,), (b"a",), (None,))))
    statistics = Statistics((cbytes % 7,), (at % 3,), (bound,), (b"9",))
    assert template.line((path,), at, cbytes, statistics) == of(path, at, cbytes, statistics)
