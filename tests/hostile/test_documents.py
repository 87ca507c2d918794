"""Documents from an attacker: our error, in bounded time and memory.

Threats 3 to 9 and 18 of the model. As in `test_chunks.py`, each table lies behind valid
checksums and another process reads it.
"""

import json

import pyarrow as pa
import pytest

import blztable as blz
from blztable.format import jsontext
from support import tamper
from support.hostile_reader import WAYS, assert_read, assert_refused, make, outcomes

NUMBERS = pa.table({"x": pa.array([None, *range(15)], "i8")})


@pytest.fixture
def path(tmp_path):
    """Make a table of one part with a file."""
    return make(tmp_path / "t.blz", NUMBERS, attrs={"a": 1})


# JSON: threats 3 to 8.

PLACES = ["head", "metadata"]


def edit_text(path, place: str, change) -> None:
    """Change the text of the head, or of the metadata of a data file."""
    with tamper.editing(path) as table:
        owner = table if place == "head" else table.file()
        name = "head" if place == "head" else "metadata"
        setattr(owner, name, change(tamper.as_text(getattr(owner, name))))


def put_json(path, place: str, value: bytes) -> None:
    """Put the value under an unknown key into one of the documents."""
    edit_text(path, place, lambda text: text[:-1] + b',"?":' + value + b"}")


def is_refused(path, place, error, words):
    """Check the error of a read, or of a check of the file, which alone reads its metadata."""
    if place == "head":
        assert_refused(path, error, words)
        return
    assert_read(path)
    with blz.open(path) as table:
        report = table.verify()
    assert not report
    assert any(words in one.message for one in report.problems), report
    with pytest.raises(error, match=words or None), blz.SuperChunk.open(file_of(path)):
        pass


def file_of(path):
    [file] = (path / "data" / "col0").iterdir()
    return file


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "value",
    [
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"[[1.5,-1e999]]",
        b"9" * 5000,
        b'"\\ud800"',
        b'{"\\udfff":1}',
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":2}',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\xc0\xaf"',
        b"[" * 65 + b"]" * 65,
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b"",
        b"'a'",
        b'"\x01"',
        b"0x10",
        b"01",
        b"1,",
        b"// 1",
        b'1} {"a":1',
    ],
    ids=lambda value: repr(value[:16])[2:-1],
)
def test_json_that_the_format_does_not_allow_is_refused(path, place, value):
    put_json(path, place, value)
    is_refused(path, place, blz.CorruptError, "JSON")


@pytest.mark.parametrize("place", PLACES)
def test_json_that_the_format_allows_is_passed_over(path, place):
    put_json(path, place, b'{"a":[1,-1.5e300,"\\ud83d\\ude00",null,{"a":[]}]}')
    assert_read(path)


@pytest.mark.parametrize("place", PLACES)
def test_a_bomb_of_brackets_is_refused_before_it_is_parsed(path, place):
    put_json(path, place, b"[" + b"[]," * 5_000_000 + b"1]")
    is_refused(path, place, blz.LimitError, "brackets in JSON; at most 1048576")


@pytest.mark.parametrize("opening", ["[", "{"])
def test_brackets_are_bounded_alike_when_written_and_when_read(opening):
    empty = {"[": [], "{": {}}[opening]
    most = [empty] * (jsontext.MAX_BRACKETS - 1)
    assert jsontext.loads(jsontext.dumps(most), "it") == most
    with pytest.raises(blz.LimitError, match=r"1048577 brackets"):
        jsontext.dumps([*most, empty])
    with pytest.raises(blz.LimitError, match=r"it: 1048577 brackets"):
        jsontext.loads(json.dumps([*most, empty]).encode(), "it")


@pytest.mark.parametrize("place", PLACES)
def test_a_document_beyond_64_mib_is_refused(path, place):
    put_json(path, place, b'"' + b"a" * jsontext.MAX_BYTES + b'"')
    error = blz.LimitError if place == "head" else blz.CorruptError
    is_refused(path, place, error, "at most")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig"])
def test_json_in_another_encoding_than_utf_8_is_refused(path, place, encoding):
    edit_text(path, place, lambda text: text.decode().encode(encoding))
    is_refused(path, place, blz.CorruptError, "")


# Keys and types: threats 9, 18.


def test_a_table_of_a_later_writer_is_refused_as_such(path):
    with tamper.editing(path) as table:
        table.head["requires"] = ["later"]
    assert_refused(path, blz.FormatError, "newer blztable")


def test_rows_that_do_not_add_up_are_refused(path):
    with tamper.editing(path) as table:
        table.head["rows"] += 1
    assert_refused(path, blz.CorruptError, "the head says 17")


def test_a_column_listed_twice_is_refused(tmp_path):
    path = make(tmp_path / "t.blz", pa.table({"x": range(8), "y": range(8)}))
    with tamper.editing(path) as table:
        table.head["ids"] = [0, 0]
    assert_refused(path, blz.CorruptError, "")


DESCRIPTORS = (
    {},
    {"version": 1},
    {"version": 1, "index": "x"},
    {"index": [{"kind": "range"}]},
    {"version": 2, "index": []},
    {"version": True, "index": []},
    {"x": 1},
)


@pytest.mark.parametrize("descriptor", DESCRIPTORS, ids=str)
def test_a_pandas_descriptor_that_is_not_known_stops_frames_only(path, descriptor):
    """Readers of the Arrow table do not look at the description of a DataFrame."""
    with tamper.editing(path) as table:
        table.head["pandas"] = descriptor
    assert outcomes(path) | {"frame": None} == dict.fromkeys(WAYS)
    assert_refused(path, blz.FormatError, "pandas", ways=["frame"])
    assert blz.read_table(path) == NUMBERS
    with blz.open(path) as t:
        assert t.schema == NUMBERS.schema
        assert t.to_arrow(filters=[("x", ">", 12)])["x"].to_pylist() == [13, 14]
        assert pa.table(t) == pa.Table.from_batches(t.to_batches()) == NUMBERS
        assert t.dataset().to_table() == NUMBERS
        assert "int64" in repr(t)
        assert t.verify()


def test_a_pandas_descriptor_of_a_later_version_is_refused_by_its_version(path):
    with tamper.editing(path) as table:
        table.head["pandas"] = {"version": 2, "index": []}
    words = "pandas descriptor has version 2, and this blztable knows version 1; read the table"
    assert_refused(path, blz.FormatError, words, ways=["frame"])


def test_a_pandas_descriptor_of_a_field_that_is_not_known_stops_frames_only(path):
    for descriptor in (b"?", b"{}", b'{"dtype":"later"}'):
        with tamper.editing(path) as table:
            field = pa.field("x", pa.int64(), metadata={"blz:pandas": descriptor})
            schema = pa.schema([field]).serialize().to_pybytes()
            table.schema = schema
            table.head["pandas"] = {
                "version": 1,
                "index": [{"kind": "range", "start": 0, "step": 1}],
            }
        assert_refused(path, blz.FormatError, "", ways=["frame"])
        assert blz.read_table(path) == NUMBERS


def test_an_attribute_of_an_unknown_tag_stops_attributes_only(path):
    with tamper.editing(path) as table:
        table.head["attributes"] = {"known": 1, "later": {"blz:value": ["later", 1]}}
    assert blz.read_table(path) == NUMBERS
    with blz.open(path) as t:
        assert t["x"].to_arrow().to_pylist() == NUMBERS["x"].to_pylist()
        with pytest.raises(blz.FormatError, match="later"):
            dict(t.attrs)
