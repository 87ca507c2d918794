"""The head of a version: a JSON object that comes back, each key checked for its meaning."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.errors import CorruptError, FormatError
from blztable.format import jsontext, manifest
from blztable.format.jsontext import MAX_NUMBER
from blztable.format.layout import MAX_ID
from blztable.format.manifest import DELETIONS, NESTED, TAGS, Head, encodings_of, paths_of
from blztable.format.metalayers import FIXED, VARIABLE, LayerKey
from blztable.format.records import CONSTANT, NUMBERS, PART, PLAIN, STREAM, Records

SIZES = st.integers(0, MAX_NUMBER)
IDS = st.integers(0, MAX_ID - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
JSON = st.dictionaries(TEXT, st.none() | st.booleans() | st.integers() | TEXT, max_size=3)
PAIRS = st.lists(st.tuples(TEXT, SIZES), max_size=2).map(tuple)
TIME = "2026-11-21T08:41:00.000000+00:00"
HISTORY = st.lists(st.tuples(st.just(TIME), SIZES), max_size=2).map(tuple)
# The depths of a number, a struct of a list of numbers and a number, and a number.
DEPTHS = (0, 0, 1, 2, 1, 0)


@st.composite
def heads(draw):
    version = draw(st.integers(1, 1 << 62))
    ids = draw(st.lists(IDS, min_size=len(DEPTHS), max_size=len(DEPTHS), unique=True))
    paths = paths_of(ids, DEPTHS)
    owner = draw(st.sampled_from(["", *(str(path[0]) for path in paths if len(path) == 1)]))
    return Head(
        version=version,
        uuid=draw(TEXT),
        parent=draw(st.integers(0, version - 1)),
        commit=draw(TEXT),
        writer=draw(TEXT),
        time=TIME,
        operation=draw(TEXT),
        did={"rows_appended": draw(SIZES), "seconds": 0.25},
        durable=draw(st.booleans()),
        lasting=draw(st.integers(0, version - 1)),
        changed=draw(st.integers(0, version)),
        rows=draw(SIZES),
        paths=paths,
        next_column=max(ids) + 1,
        next_file=draw(st.integers(1, MAX_ID)),
        properties=draw(JSON),
        attributes=draw(JSON),
        pandas=draw(st.none() | JSON),
        commit_ids=draw(PAIRS),
        history=draw(HISTORY),
        requires=frozenset({NESTED, TAGS, *draw(st.sets(st.sampled_from(["numbers", DELETIONS])))}),
        metalayers={LayerKey(owner, draw(st.sampled_from([FIXED, VARIABLE])), "m"): b"\0x"},
        tags={"first": draw(st.integers(1, version - 1))} if version > 1 else {},
    )


@given(heads())
def test_a_head_comes_back(head):
    text = jsontext.loads(jsontext.dumps(head.to_json()), "a head")
    assert Head.from_json(text, DEPTHS) == head


def test_a_path_is_the_ids_from_the_column_down():
    assert paths_of([5, 7, 3, 9, 2, 0], DEPTHS) == ((5,), (7,), (7, 3), (7, 3, 9), (7, 2), (0,))
    assert paths_of([5, 7], (0, 0)) == ((5,), (7,))


HEAD = Head(
    version=3,
    uuid="u",
    parent=2,
    commit="c",
    writer="w",
    time=TIME,
    operation="create",
    did={"rows_appended": 15, "seconds": 0.5},
    durable=True,
    rows=15,
    paths=((7,), (5,)),
    next_column=8,
    attributes={"k": 1},
    commit_ids=(("mine", 2),),
    history=((TIME, 1),),
)


def good_head():
    return jsontext.loads(jsontext.dumps(HEAD.to_json()), "a head")


def refused(value, kind=CorruptError, match=None):
    with pytest.raises(kind, match=match):
        Head.from_json(value, (0, 0))


def test_the_good_head_is_what_the_lies_are_made_from():
    assert Head.from_json(good_head(), (0, 0)) == HEAD


@pytest.mark.parametrize("key", good_head())
def test_a_head_lacks_nothing(key):
    value = good_head()
    del value[key]
    refused(value, (CorruptError, FormatError))


@pytest.mark.parametrize("found", [None, "parquet", 1, [], 1.0])
def test_a_document_of_another_kind_is_a_format_error(found):
    refused(good_head() | {"format": found}, FormatError)


WRONG = [None, True, -1, 1.5, "x", [[]], {"x": "y"}, MAX_NUMBER + 1, 10**300]
NUMBERED = ("version", "parent", "lasting", "changed", "rows", "next_column", "next_file")
OF_ANOTHER_TYPE = [
    (key, found)
    for key, value in good_head().items()
    for found in WRONG
    if type(found) is not type(value) or key in (*NUMBERED, "ids", "commit_ids", "history", "did")
    if not (key in NUMBERED and type(found) is int and 0 <= found <= MAX_NUMBER)
    if not (key == "pandas" and isinstance(found, dict))
]


@pytest.mark.parametrize(("key", "found"), OF_ANOTHER_TYPE, ids=lambda value: str(value)[:20])
def test_a_field_of_another_type_is_refused(key, found):
    refused(good_head() | {key: found}, (CorruptError, FormatError))


@pytest.mark.parametrize("needed", [["deletes"], ["a", "b"], [""], [None], [1]], ids=str)
def test_a_table_that_needs_what_is_not_known_is_a_format_error(needed):
    refused(good_head() | {"requires": needed}, FormatError, match="newer")


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
    refused(good_head() | {"time": time}, match="time")
    refused(good_head() | {"history": [[time, 1]]}, match="time")


@pytest.mark.parametrize("key", ["commit_ids", "history"])
@pytest.mark.parametrize(
    "pair", [[], ["a"], ["a", "b"], [1, 1], ["a", True], ["a", 1.0], ["a", -1], {}]
)
def test_commits_are_pairs_of_text_and_number(key, pair):
    refused(good_head() | {key: [pair]})


@pytest.mark.parametrize("found", [-1, True, None, "1", 1 << 63, [1]])
def test_what_a_commit_did_is_counted(found):
    refused(good_head() | {"did": {"rows_appended": found}}, match="rows_appended")


@pytest.mark.parametrize(
    "ids", [[], [7], [7, 7], [7, 8], [7, -1], [7, True], [7, "5"], [7, 5, 3], [7, 5.0], {}]
)
def test_each_node_has_an_id_of_its_own_below_the_next_one(ids):
    refused(good_head() | {"ids": ids})


@pytest.mark.parametrize(
    "fields",
    [
        {"version": 0},
        {"parent": 3},
        {"parent": 4},
        {"lasting": 3},
        {"changed": 4},
        {"next_file": 0},
        {"next_column": 7},
        {"next_column": MAX_NUMBER},
        {"tags": {"first": 3}},
        {"tags": {"first": 0}},
        {"tags": {"": 1}},
        {"tags": {"12": 1}},
    ],
    ids=str,
)
def test_numbers_that_no_writer_would_say_are_refused(fields):
    refused(good_head() | {"requires": [TAGS]} | fields)


def test_a_version_says_that_it_has_tags_and_nested_columns():
    tagged = good_head() | {"tags": {"first": 1}}
    refused(tagged, match="'requires' lacks \\['tags'\\]")
    Head.from_json(tagged | {"requires": [TAGS]}, (0, 0))
    with pytest.raises(CorruptError, match="'requires' lacks \\['nested'\\]"):
        Head.from_json(good_head(), (0, 1))
    Head.from_json(good_head() | {"requires": [NESTED]}, (0, 1))


@pytest.mark.parametrize(
    "found",
    [
        [],
        {"6": {"fixed": {"a": "AAA="}}},
        {"": []},
        {"": {"other": {"a": "AAA="}}},
        {"": {"fixed": []}},
        {"": {"fixed": {"a": "A"}}},
        {"": {"fixed": {"a": 1}}},
        {"": {"fixed": {"blz.a": "AAA="}}},
    ],
    ids=str,
)
def test_metalayers_belong_to_the_table_or_to_a_column(found):
    refused(good_head() | {"metalayers": found})


def test_the_encodings_of_records_are_named_without_plain_values():
    streams = of_kinds([PLAIN, NUMBERS, CONSTANT, NUMBERS])
    assert encodings_of(streams) == {"numbers", "constant"}
    assert encodings_of(of_kinds([])) == frozenset()


def of_kinds(kinds):
    streams = np.zeros(len(kinds), STREAM)
    streams["kind"] = kinds
    return replace(Records(1, 1, np.zeros(1, PART)), streams=streams)


@pytest.mark.parametrize("name", ["a", "2026-Q1", "x" * 255, "v1.0 (final)", "ä"])
def test_a_name_that_a_tag_may_have(name):
    assert manifest.is_tag(name)


@pytest.mark.parametrize("name", ["", "12", "x" * 256, "a\n", "\0", 1, None, "٣"])
def test_a_name_that_no_tag_may_have(name):
    assert not manifest.is_tag(name)
