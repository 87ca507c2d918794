"""JSON as the format allows it: any input becomes plain data or a CorruptError."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.errors import CorruptError, LimitError
from blztable.format import jsontext

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
)


def refused(text):
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(CorruptError, match="the thing"):
        jsontext.loads(data, "the thing")


@given(VALUES)
def test_a_value_comes_back(value):
    data = jsontext.dumps(value)
    assert b"\n" not in data
    found = jsontext.loads(data, "it")
    assert found == value
    assert json.dumps(found) == json.dumps(value)  # 1, 1.0 and True stay different


@given(st.binary())
def test_any_bytes_are_plain_data_or_corrupt(data):
    try:
        value = jsontext.loads(data, "it")
    except CorruptError:
        return
    assert jsontext.loads(jsontext.dumps(value), "it") == value


@pytest.mark.parametrize("text", ['{"a":1,"a":1}', '[{"b":{"a":1,"\\u0061":2}}]'])
def test_a_key_that_stands_twice_is_refused(text):
    refused(text)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_numbers_that_are_none_are_refused_wherever_they_stand(word):
    for text in ("{}", "[{}]", '{{"a":{}}}', "[1,{},true]", "[[1.5,{}]]", '["a",{}]'):
        refused(text.format(word))


@pytest.mark.parametrize(
    "text", ['"\\ud800"', '["a","\\udfff"]', '{"\\ud800":1}', '[[["\\ud800"]]]']
)
def test_a_lone_surrogate_is_refused_wherever_it_stands(text):
    refused(text)


@pytest.fixture
def unlimited():
    """Lift Python's own limit of digits, as any program may do."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    yield
    sys.set_int_max_str_digits(limit)


@pytest.mark.usefixtures("unlimited")
@pytest.mark.parametrize("before", ["", " " * 1000, " " * 2149, " " * 2150, " " * 9999])
@pytest.mark.parametrize("form", ["{}", "-{}", "[1,{},2]", '{{"a":{}}}', '"{}"'])
def test_a_whole_number_has_as_many_digits_as_the_limit_and_no_more(before, form):
    digits = "1" * jsontext.MAX_DIGITS
    text = before + form.format(digits)
    assert jsontext.loads(text.encode(), "it") == json.loads(text)
    longer = before + form.format(digits + "0")
    if form == '"{}"':
        assert jsontext.loads(longer.encode(), "it") == json.loads(longer)
    else:
        refused(longer)


def test_a_number_of_very_many_digits_is_refused():
    refused("1" * 100_000)
    refused("[1," + "1" * 100_000 + "]")


@pytest.mark.parametrize("text", ["", " ", "{", "[1,]", "'a'", "01", "{1:2}", "\ufeff{}", "1 2"])
def test_what_is_not_json_is_refused(text):
    refused(text)


@pytest.mark.parametrize(
    "data", [b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', "1".encode("utf-16")]
)
def test_what_is_not_utf_8_is_refused(data):
    refused(data)


@pytest.mark.parametrize(("start", "end"), [("[", "]"), ('{"a":', "}")])
@pytest.mark.parametrize("depth", [jsontext.MAX_DEPTH + 1, 1000, 1_000_000])
def test_deep_nesting_is_refused(start, end, depth):
    refused(start * depth + "1.5" + end * depth)
    refused(start * depth)


@pytest.mark.parametrize(("start", "end"), [("[", "]"), ('{"a":', "}")])
def test_nesting_up_to_the_limit_is_read(start, end):
    for depth in (1, jsontext.MAX_DEPTH - 1, jsontext.MAX_DEPTH):
        text = start * depth + "1.5" + end * depth
        value = jsontext.loads(text.encode(), "it")
        for _ in range(depth):
            [value] = value.values() if isinstance(value, dict) else value
        assert value == 1.5


@pytest.mark.parametrize("beside", ["[]", "{}", '"[["', '{"a":"]"}', "[1,null]"])
def test_nesting_counts_levels_whatever_stands_beside_them(beside):
    value = "[]"
    for level in range(jsontext.MAX_DEPTH - 1):
        value = f"[{beside},{value}]" if level % 2 else f'{{"x":{beside},"y":{value}}}'
    jsontext.loads(value.encode(), "it")
    refused(f"[{beside},{value}]")
    jsontext.loads(f"[{','.join([beside] * 100)}]".encode(), "it")


@pytest.mark.parametrize(
    "text", ['"\\\\ud800"', '"\\ud83d\\ude00"', '["\\u0001"]', '{"\\u00e9":1}']
)
def test_escapes_that_are_no_lone_surrogate_are_read(text):
    assert jsontext.loads(text.encode(), "it") == json.loads(text)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {"\udfff": 1}])
def test_values_json_does_not_have_are_not_written(value):
    with pytest.raises(ValueError):  # noqa: PT011
        jsontext.dumps([value])


def test_a_text_above_the_limit_is_neither_written_nor_read():
    text = "x" * (jsontext.MAX_BYTES - 2)
    data = jsontext.dumps(text)
    assert len(data) == jsontext.MAX_BYTES
    assert jsontext.loads(data, "it") == text
    with pytest.raises(LimitError):
        jsontext.dumps(text + "x")
    with pytest.raises(LimitError, match="it"):
        jsontext.loads(data[:-1] + b'x"', "it")


def members(count: int, key: str = "{}") -> bytes:
    """Return an object with `count` members, inside of a list."""
    inner = ",".join(f'"{key.format(number)}" :0' for number in range(count))
    return b'["\\"a:b\\\\",{' + inner.encode() + b"}]"


@pytest.mark.parametrize("key", ["{}", "{}\\\\", '{}:\\":'], ids=["plain", "backslash", "colon"])
def test_more_members_than_the_limit_are_refused_before_they_are_read(monkeypatch, key):
    most = 1000
    monkeypatch.setattr(jsontext, "MAX_MEMBERS", most)
    (_, found) = jsontext.loads(members(most, key), "it")
    assert len(found) == most
    with pytest.raises(
        LimitError, match=f"it: {most + 1} members in JSON; at most {most} are kept"
    ):
        jsontext.loads(members(most + 1, key), "it")
    with pytest.raises(LimitError, match=f"{most + 1} members in JSON"):
        jsontext.dumps(dict.fromkeys(range(most + 1), 0))


def test_a_text_may_have_any_number_of_colons(monkeypatch):
    monkeypatch.setattr(jsontext, "MAX_MEMBERS", 1000)
    value = {"text": '":{' * 10 + ":" * (jsontext.MAX_MEMBERS + 1) + '":'}
    assert jsontext.loads(jsontext.dumps(value), "it") == value
