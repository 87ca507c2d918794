"""The manifest: two lines and one line a column, each checked by its sha256 and its meaning."""

import base64
import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.errors import CorruptError, FormatError
from blztable.format import manifest
from blztable.format.jsontext import MAX_NUMBER
from blztable.format.line import NO_FILE, ColumnParts, PartMetaArrays, Statistics, file_numbers
from blztable.format.manifest import HEAD_FIELDS, ColumnIndex, Head
from blztable.format.superchunk import PartMeta

SIZES = st.integers(0, MAX_NUMBER)
PAGE_ROWS = st.integers(3, 30).map(lambda power: 1 << power)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
JSON = st.dictionaries(TEXT, st.none() | st.booleans() | st.integers() | TEXT, max_size=3)
PAIRS = st.lists(st.tuples(TEXT, SIZES), max_size=2).map(tuple)
TIME = "2026-11-21T08:41:00.000000+00:00"
HISTORY = st.lists(st.tuples(st.just(TIME), SIZES), max_size=2).map(tuple)


@st.composite
def column_parts(draw, path, groups):
    def each(value):
        return draw(st.lists(value, min_size=groups, max_size=groups).map(tuple))

    bounds = st.none() | st.binary(max_size=9)
    numbers = st.lists(SIZES, min_size=groups, max_size=groups, unique=True)
    return ColumnParts(
        path,
        draw(numbers.map(tuple)),
        PartMetaArrays.of(each(st.builds(PartMeta, SIZES, PAGE_ROWS, *[SIZES] * 4))),
        {name: each(SIZES) for name in draw(st.lists(TEXT, max_size=3, unique=True))},
        Statistics(each(SIZES), each(SIZES), each(bounds), each(bounds)).to_json(),
    )


@given(st.data(), st.lists(st.integers(0, 3) | SIZES, min_size=1, max_size=3).map(tuple))
@pytest.mark.parametrize("spaced", [False, True])
def test_the_files_of_a_line_are_those_it_names_however_it_is_written(spaced, data, path):
    groups = data.draw(st.integers(0, 4))
    column = data.draw(column_parts(path, groups))
    line = column.encode()
    if spaced:
        line = json.dumps(json.loads(line)).encode()
    assert file_numbers(line, column.path, len(column.k)) == set(column.k) - {NO_FILE}


def test_a_line_with_numbers_of_files_that_are_none_is_refused():
    for k in (b"[1,]", b"[-1,2]", b"[1,x]", b'"1"', b"[1,2"):
        with pytest.raises(CorruptError):
            file_numbers(b'{"path":3,"k":' + k + b"}", (3,), 2)


@st.composite
def heads(draw):
    paths = draw(
        st.lists(st.lists(SIZES, min_size=1, max_size=3).map(tuple), max_size=4, unique=True)
    )

    def each():
        return tuple(draw(SIZES) for _ in paths)

    return Head(
        version=draw(SIZES),
        uuid=draw(TEXT),
        parent=draw(SIZES),
        commit=draw(TEXT),
        writer=draw(TEXT),
        time=TIME,
        operation=draw(TEXT),
        row_groups=tuple(draw(st.lists(st.integers(1, 2**50), max_size=4))),
        schema=draw(st.binary()),
        fields={key: tuple(draw(TEXT) for _ in paths) for key in ("name", "type")},
        next_column=draw(SIZES),
        durable=draw(st.booleans()),
        properties=draw(JSON),
        attributes=draw(JSON),
        pandas=draw(st.none() | JSON),
        commit_ids=draw(PAIRS),
        history=draw(HISTORY),
        lasting=draw(SIZES),
        columns=ColumnIndex(tuple(paths), tuple(max(k, 1) for k in each()), each(), each()),
    )


@given(st.data(), heads())
def test_a_manifest_comes_back(data, head):
    groups = len(head.row_groups)
    columns = [data.draw(column_parts(path, groups)) for path in head.columns.paths]
    lines = [column.encode() for column in columns]
    file = manifest.encode(head, lines)
    length = manifest.head_length(file)
    found = manifest.decode_head(file[:length])
    assert replace(found, columns=head.columns) == head
    assert found.rows == sum(head.row_groups)
    index = found.columns
    assert (index.paths, index.next_k, index.nbytes, index.cbytes) == (
        head.columns.paths,
        head.columns.next_k,
        head.columns.nbytes,
        head.columns.cbytes,
    )
    for number, column in enumerate(columns):
        line = file[index.offsets[number] :][: index.lengths[number]]
        assert line == lines[number]
        assert manifest.decode_column(line, found, number) == column
    assert file.count(b"\n") == 2 + len(lines)


PARTS = ColumnParts(
    (7,),
    (1, 4),
    PartMetaArrays.of([PartMeta(10, 8, 500, 40, 60, 99), PartMeta(5, 8, 300, 40, 60, 98)]),
    {"valid": (2, 0), "values": (80, 40)},
    Statistics((1, 0), (0, 0), (b"\0", None), (b"\1", None)).to_json(),
)
HEAD = Head(
    version=3,
    uuid="u",
    parent=2,
    commit="c",
    writer="w",
    time=TIME,
    operation="create",
    row_groups=(10, 5),
    schema=b"schema",
    fields={"name": ("a",), "type": ("int64",)},
    next_column=8,
    durable=True,
    properties={},
    attributes={"k": 1},
    pandas=None,
    commit_ids=(("mine", 2),),
    history=((TIME, 1),),
    columns=ColumnIndex(((7,),), (5,), (122,), (800,)),
)
FILE = manifest.encode(HEAD, [PARTS.encode()])
HEAD_LENGTH = manifest.head_length(FILE)


def good_head():
    return json.loads(FILE.partition(b"\n")[0])


def sealed(value):
    """Return a head of any JSON, with its sha256; an attacker can compute it too."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return data + b"\n" + hashlib.sha256(data).hexdigest().encode() + b"\n"


def head_refused(value, kind=CorruptError, match=None):
    with pytest.raises(kind, match=match):
        manifest.decode_head(sealed(value))


def test_the_good_head_is_what_the_lies_are_made_from():
    assert manifest.decode_head(sealed(good_head())).columns.paths == ((7,),)


def test_a_head_is_found_only_when_its_end_is_there():
    end = FILE.index(b"\n")
    assert manifest.head_length(FILE[:end]) is None
    assert manifest.head_length(FILE[: end + 1]) == HEAD_LENGTH == end + 66


def test_a_head_that_was_cut_is_refused_wherever_it_was():
    for length in range(HEAD_LENGTH):
        with pytest.raises(CorruptError):
            manifest.decode_head(FILE[:length])
    with pytest.raises(CorruptError):
        manifest.decode_head(FILE[: HEAD_LENGTH + 1])


def test_every_flipped_bit_of_a_head_is_refused():
    for bit in range(8 * HEAD_LENGTH):
        flipped = bytearray(FILE[:HEAD_LENGTH])
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptError):
            manifest.decode_head(bytes(flipped))


def test_every_flipped_bit_of_a_line_is_refused():
    head, line = manifest.decode_head(FILE[:HEAD_LENGTH]), PARTS.encode()
    for bit in range(8 * len(line)):
        flipped = bytearray(line)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptError, match="sha256"):
            manifest.decode_column(bytes(flipped), head, 0)


@pytest.mark.parametrize("key", [*HEAD_FIELDS, "rows", "schema", "columns"])
def test_a_head_lacks_nothing(key):
    value = good_head()
    del value[key]
    head_refused(value)


def test_a_document_of_another_kind_is_a_format_error():
    for found in (None, "parquet", 1, []):
        head_refused(good_head() | {"format": found}, FormatError)
    for found in ([], 1, None, "x"):
        head_refused(found, FormatError)


@pytest.mark.parametrize("found", [0, 2, None, "1", True, 1.0, 10**30])
def test_another_format_version_is_a_format_error(found):
    head_refused(good_head() | {"format_version": found}, FormatError, match="format version")


WRONG = [None, True, -1, 1.5, "x", [[]], {"x": 1}, MAX_NUMBER + 1, 10**300]


OF_ANOTHER_TYPE = [
    (key, found)
    for key, kind in (HEAD_FIELDS | {"schema": int, "columns": str}).items()
    for found in WRONG
    if kind in (int, list) or not isinstance(found, kind)
]


@pytest.mark.parametrize(("key", "found"), OF_ANOTHER_TYPE, ids=lambda value: str(value)[:20])
def test_a_field_of_another_type_is_refused(key, found):
    kinds = (CorruptError, FormatError) if key == "requires" else CorruptError
    head_refused(good_head() | {key: found}, kinds)


@pytest.mark.parametrize("needed", [["deletes"], ["a", "b"], [""], [None], [1]], ids=str)
def test_a_table_that_needs_what_is_not_known_is_a_format_error(needed):
    head_refused(good_head() | {"requires": needed}, FormatError, match="newer")


@pytest.mark.parametrize(
    "time",
    [
        "",
        "then",
        "2026-11-21",
        "2026-11-21T08:41:00+00:00",
        TIME + "\n",
        TIME[:-6] + "+01:00",
        "\u0662" + TIME[1:],
    ],
)
def test_a_time_has_one_form(time):
    head_refused(good_head() | {"time": time}, match="time")
    head_refused(good_head() | {"history": [[time, 1]]}, match="time")


@pytest.mark.parametrize("rows", [14, 16, 0, -15, 15.0, "15", None])
def test_row_groups_add_up_to_the_rows(rows):
    head_refused(good_head() | {"rows": rows})


def test_a_count_of_rows_is_no_truth():
    head_refused(good_head() | {"row_groups": [1], "rows": True})


@pytest.mark.parametrize(
    "groups", [[15, 0], [16, -1], [14, True], [15.0], ["15"], [MAX_NUMBER] * 9]
)
def test_row_groups_are_numbers_of_at_least_one_row(groups):
    rows = sum(groups) if set(map(type, groups)) == {int} else 15
    head_refused(good_head() | {"row_groups": groups, "rows": rows})


@pytest.mark.parametrize("found", [None, 1, "a", {}, [1], [None], [["a"]], [], ["a", "b"]], ids=str)
@pytest.mark.parametrize("key", ["name", "type"])
def test_fields_are_a_name_and_a_type_each(key, found):
    value = good_head()
    value["fields"][key] = found
    head_refused(value)
    del value["fields"][key]
    head_refused(value)


@pytest.mark.parametrize("key", ["commit_ids", "history"])
@pytest.mark.parametrize(
    "pair", [[], ["a"], ["a", "b"], [1, 1], ["a", True], ["a", 1.0], ["a", -1], {}]
)
def test_commits_are_pairs_of_text_and_number(key, pair):
    head_refused(good_head() | {key: [pair]})


@pytest.mark.parametrize("found", ["?", "A", "AA==\n", "é"])
def test_schema_and_digests_are_base64(found):
    head_refused(good_head() | {"schema": found})
    value = good_head()
    value["columns"]["sha256"] = found
    head_refused(value)


@pytest.mark.parametrize(
    "key", ["path", "next_k", "nbytes", "cbytes", "offset", "length", "sha256"]
)
def test_an_index_of_columns_lacks_nothing(key):
    value = good_head()
    del value["columns"][key]
    head_refused(value)


@pytest.mark.parametrize(
    "found", [[], [1, 2], [True], [-1], [1.0], [None], ["1"], [10**300], 1], ids=str
)
@pytest.mark.parametrize("key", ["next_k", "nbytes", "cbytes", "offset", "length"])
def test_an_index_of_columns_holds_a_number_a_column(key, found):
    value = good_head()
    value["columns"][key] = found
    head_refused(value)


@pytest.mark.parametrize(
    "path", [[], [7], [7, -1], [7, True], [7, "../x"], [7, [7]], [7] * 65, -1, True, 1.0, "7", None]
)
def test_a_path_is_a_number_or_some(path):
    value = two_columns()
    for listed in ([path, 8], [7, path], [[1, 2], path], [path, MAX_NUMBER + 1]):
        value["columns"]["path"] = listed
        head_refused(value)
    value["columns"]["path"] = [[1, 2], 8]
    head_refused(value)
    value["requires"] = [*value["requires"], manifest.NESTED]
    assert manifest.decode_head(sealed(value)).columns.paths == ((1, 2), (8,))


def two_columns():
    head = replace(HEAD, columns=ColumnIndex(((7,), (8,)), (5, 5), (1, 1), (1, 1)))
    lines = [PARTS.encode(), replace(PARTS, path=(8,)).encode()]
    return json.loads(manifest.encode(head, lines).partition(b"\n")[0])


def test_no_column_stands_twice():
    value = two_columns()
    assert len(manifest.decode_head(sealed(value)).columns.paths) == 2
    for path in (7, [7, 8]):
        value["columns"]["path"] = [path, path]
        head_refused(value, match="twice")


@pytest.mark.parametrize("offsets", [[1, 2], [0, 0], [0, 1], [5, 0]])
def test_lines_follow_each_other(offsets):
    value = two_columns()
    value["columns"]["offset"] = offsets
    head_refused(value, match="follow")


def test_digests_are_one_a_column():
    for size in (0, 31, 33, 64):
        value = good_head()
        value["columns"]["sha256"] = base64.b64encode(bytes(size)).decode()
        head_refused(value)


def line_refused(value, match=None):
    data = json.dumps(value).encode()
    with pytest.raises(CorruptError, match=match):
        ColumnParts.decode(data, (7,), 2)


def good_line():
    return json.loads(PARTS.encode())


LISTS = ["k", "rows", "page_rows", "cbytes", "front_length", "trailer_length", "crc"]


def test_the_good_line_is_what_the_lies_are_made_from():
    assert ColumnParts.decode(json.dumps(good_line()).encode(), (7,), 2) == PARTS
    assert (PARTS.nbytes, PARTS.cbytes) == (122, 800)
    assert PARTS.meta[1] == PartMeta(5, 8, 300, 40, 60, 98)


@pytest.mark.parametrize("key", [*LISTS, "path", "streams"])
def test_a_line_lacks_nothing(key):
    value = good_line()
    del value[key]
    line_refused(value)


@pytest.mark.parametrize("key", Statistics.KEYS)
def test_statistics_of_a_line_are_checked_when_they_are_asked_for(key):
    value = good_line()
    del value[key]
    parts = ColumnParts.decode(json.dumps(value).encode(), (7,), 2)
    with pytest.raises(CorruptError, match=r"nulls|nans|statistics"):
        _ = parts.statistics


NO_LISTS = [None, 1, [], [1], [1, 2, 3], [1, True], [1, -1], [1, 2.0], [1, None], [1, 10**300]]


@pytest.mark.parametrize("found", NO_LISTS, ids=lambda found: str(found)[:20])
@pytest.mark.parametrize("key", LISTS)
def test_a_line_holds_a_number_a_row_group(key, found):
    line_refused(good_line() | {key: found})
    line_refused(good_line() | {"streams": {"values": found}})


@pytest.mark.parametrize("path", [8, 7.0, [7], [7, 0], [], "7", None])
def test_a_line_is_of_the_column_asked_for(path):
    line_refused(good_line() | {"path": path}, match="its path is another one")


def test_a_line_is_an_object():
    for value in ([], 1, None, "x", True):
        line_refused(value)
    line_refused(good_line() | {"streams": [1, 2]})
