"""Defaults: they come back bit for bit, and only values of the column's type are accepted."""

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blztable.columns.default import (
    MAX_DEFAULT_BYTES,
    MAX_ROWS,
    decode_default,
    decode_nested,
    encode_default,
    encode_nested,
    zero_of,
)
from blztable.errors import CorruptError, LimitError
from support import arrow_strategies as own
from support import nested_arrays
from support.bit_equality import bits, same

quick = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
ONE = (1).to_bytes(8, "little")
WITH_VALUES = [type_ for type_ in own.PLAIN if not pa.types.is_null(type_)]
TYPES = [*WITH_VALUES, *(pa.dictionary(pa.int16(), type_, True) for type_ in WITH_VALUES)]


def one(data, type_):
    """Return an array with one row that is not null, and its scalar."""
    array = data.draw(own.arrays(type_, 12, stray_codes=False))
    there = [at for at, row in enumerate(bits(array)) if row is not None]
    if not there:
        value = zero_of(type_)
        return pa.repeat(value, 1) if not pa.types.is_dictionary(type_) else None, value
    at = data.draw(st.sampled_from(there))
    return array.slice(at, 1), array[at]


@pytest.mark.parametrize("type_", TYPES, ids=str)
@quick
@given(data=st.data())
def test_a_default_comes_back_to_the_bit(type_, data):
    array, scalar = one(data, type_)
    encoded = encode_default(scalar)
    back = decode_default(encoded, type_)
    assert back.type == type_
    assert encode_default(back) == encoded
    if array is not None:
        assert [encoded] == bits(array)
        assert same(as_array(back), array)


def as_array(scalar):
    if not pa.types.is_dictionary(scalar.type):
        return pa.repeat(scalar, 1)
    index = pa.repeat(scalar.index, 1)
    return pa.DictionaryArray.from_arrays(index, scalar.dictionary, ordered=scalar.type.ordered)


@pytest.mark.parametrize("type_", TYPES, ids=str)
@quick
@given(data=st.binary(max_size=20))
def test_any_bytes_are_a_value_or_corrupt(type_, data):
    plain = type_.value_type if pa.types.is_dictionary(type_) else type_
    try:
        scalar = decode_default(data, type_)
    except CorruptError:
        assert not is_value(data, plain)
    else:
        assert is_value(data, plain)
        assert encode_default(scalar) == data


def is_value(data, type_):
    """True if the bytes are a value of the type; only text, booleans and decimals exclude some."""
    if type_ in (*own.STRINGS, pa.string_view()):
        return data.decode(errors="replace").encode() == data
    if type_ in own.TEXTS:
        return True
    if type_ == pa.bool_():
        return data in (b"\0", b"\1")
    if pa.types.is_decimal(type_):
        fits = abs(int.from_bytes(data, "little", signed=True)) < 10**type_.precision
        return fits and len(data) == type_.bit_width // 8
    return len(data) == type_.bit_width // 8


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_the_zero_of_a_type_is_empty_or_all_bits_zero(type_):
    scalar = zero_of(type_)
    assert scalar.type == type_
    assert scalar.is_valid
    assert not any(bits(as_array(scalar))[0])


def test_zeros_as_python_has_them():
    assert zero_of(pa.int8()).as_py() == 0
    assert zero_of(pa.bool_()).as_py() is False
    assert zero_of(pa.string_view()).as_py() == ""
    assert zero_of(pa.dictionary(pa.int8(), pa.string())).as_py() == ""
    assert zero_of(pa.binary(3)).as_py() == b"\0\0\0"
    assert zero_of(pa.null()).as_py() is None
    # The value is not stored, so it has no limit.
    assert zero_of(pa.binary(1 << 20)).as_py() == bytes(1 << 20)


def test_a_default_of_nothing_but_null_is_corrupt():
    with pytest.raises(CorruptError, match="of type null"):
        decode_default(b"", pa.null())


@pytest.mark.parametrize("type_", [pa.string(), pa.large_binary(), pa.string_view()], ids=str)
def test_a_default_has_a_limit(type_):
    longest = pa.scalar("x" * MAX_DEFAULT_BYTES).cast(type_)
    assert decode_default(encode_default(longest), type_).equals(longest)
    with pytest.raises(LimitError, match="65537 bytes; at most 65536"):
        encode_default(pa.scalar("x" * (MAX_DEFAULT_BYTES + 1)).cast(type_))
    with pytest.raises(LimitError, match="65537 bytes; at most 65536"):
        decode_default(b"x" * (MAX_DEFAULT_BYTES + 1), type_)


@quick
@given(type_=nested_arrays.TYPES, seed=st.integers(0, 1 << 32))
def test_a_default_of_a_nested_type_comes_back_to_the_bit(type_, seed):
    array = nested_arrays.array_of(type_, 5, seed)
    for row, value in enumerate(array):
        if value.is_valid:
            back = decode_nested(encode_nested(value), type_)
            assert back.type == type_
            assert back.as_py() == value.as_py() or "nan" in str(value.as_py())
            assert bits(pa.repeat(back, 2)) == bits(array.slice(row, 1)) * 2


@settings(quick, max_examples=150)
@given(
    kind=st.sampled_from(sorted(nested_arrays.KINDS)),
    seed=st.integers(0, 100),
    data=st.data(),
)
def test_any_streams_of_nodes_are_a_value_or_corrupt(kind, seed, data):
    type_ = nested_arrays.KINDS[kind]
    value = next(one for one in nested_arrays.array_of(type_, 20, seed) if one.is_valid)
    nodes = [dict(streams) for streams in encode_nested(value)]
    for _ in range(data.draw(st.integers(1, 2))):
        streams = data.draw(st.sampled_from(nodes))
        name = data.draw(st.sampled_from(["valid", "lengths", "values", *streams]))
        how = data.draw(st.sampled_from(["bytes", "flip", "longer", "gone", "node"]))
        if how == "bytes":
            streams[name] = data.draw(st.binary(max_size=9))
        elif how == "node":
            nodes = data.draw(st.permutations(nodes))
        elif how == "gone":
            streams.pop(name, None)
        elif how == "longer":
            streams[name] = streams.get(name, b"") * 2
        elif streams.get(name):
            at = data.draw(st.integers(0, len(streams[name]) - 1))
            byte = data.draw(st.integers(0, 255))
            streams[name] = streams[name][:at] + bytes([byte]) + streams[name][at + 1 :]
    try:
        found = decode_nested(nodes, type_)
    except (CorruptError, LimitError):
        return
    pa.repeat(found, 1).validate(full=True)
    if found.is_valid:
        back = decode_nested(encode_nested(found), type_)
        assert bits(pa.repeat(back, 1)) == bits(pa.repeat(found, 1))


def test_a_default_of_a_nested_type_has_the_same_limit():
    type_ = pa.list_(pa.int64())
    longest = pa.scalar(list(range((MAX_DEFAULT_BYTES - 8) // 8)), type_)
    assert decode_nested(encode_nested(longest), type_).equals(longest)
    with pytest.raises(LimitError, match="at most 65536"):
        encode_nested(pa.scalar([*longest.as_py(), 1], type_))
    with pytest.raises(LimitError, match="at most 65536"):
        decode_nested([{"lengths": b"1000"}, {"values": bytes(MAX_DEFAULT_BYTES)}], type_)


@pytest.mark.parametrize("items", [MAX_ROWS + 1, (1 << 31) - 1])
def test_items_without_bytes_have_a_limit(items):
    for size, lengths in ((items, {}), (0, {"lengths": items.to_bytes(8, "little")})):
        type_ = pa.list_(pa.null(), size) if size else pa.list_(pa.null())
        with pytest.raises(LimitError, match=f"a default has {items + 1} items; at most"):
            decode_nested([lengths, {}], type_)
    with pytest.raises(LimitError, match="at most"):
        encode_nested(pa.scalar([None] * (MAX_ROWS + 1), pa.list_(pa.null())))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([], "0 nodes"),
        ([{"lengths": ONE}], "1 nodes"),
        ([{"lengths": ONE}, {}], "the streams"),
        ([{"lengths": ONE}, {"values": b"1", "more": b""}], "the streams"),
        ([{"lengths": ONE}, {"values": b"12"}], "2 bytes of 'values', for 1 rows"),
        ([{"lengths": ONE, "valid": b""}, {"values": b"1"}], "0 bytes of 'valid'"),
        ([{"lengths": b"1000"}, {"values": b"1"}], "4 bytes of 'lengths', for 1 rows"),
        ([{"lengths": b"\xff" * 8}, {"values": b""}], "an impossible length"),
    ],
)
def test_nodes_that_are_not_those_of_the_type_are_told(nodes, message):
    with pytest.raises(CorruptError, match=message):
        decode_nested(nodes, pa.list_(pa.int8()))


def test_more_values_than_a_dictionary_has_codes_are_corrupt():
    type_ = pa.list_(pa.dictionary(pa.int8(), pa.int16()))
    for count, is_fine in ((128, True), (129, False)):
        lengths = count.to_bytes(8, "little")
        values = b"".join(number.to_bytes(2, "little") for number in range(count))
        if is_fine:
            value = decode_nested([{"lengths": lengths}, {"values": values}], type_)
            assert value.as_py() == list(range(count))
        else:
            with pytest.raises(CorruptError, match="129 values"):
                decode_nested([{"lengths": lengths}, {"values": values}], type_)
