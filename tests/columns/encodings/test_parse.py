"""Encodings in the metadata of a file from anyone: refused by name, or sound."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest

from blztable.columns.blocks import VALIDITY, StreamLayout
from blztable.columns.encodings.items import MAX_MADE_BYTES
from blztable.columns.encodings.numbers import MOST_ODD
from blztable.columns.encodings.parse import StreamContext, parse
from blztable.errors import CorruptError, FormatError

I64 = StreamLayout("values", "<i8", 8, 64)
F64 = StreamLayout("values", "<f8", 8, 64)
F32 = StreamLayout("values", "<f4", 4, 32)
ONE = base64.b64encode(bytes(8)).decode()
ENDS = StreamLayout("ends", "<i8", 8, 64)
LENGTHS = {"kind": "lengths"}
EACH = {"kind": "each", "length": 3}
NARROW = {"kind": "narrow", "bases": ONE}
SCALED = {"kind": "scaled", "power": 2, "form": "/", "bases": ONE}


@pytest.mark.parametrize("nan", [-1, 256, 1 << 70, True, 0.0, "0", [0]])
def test_a_code_of_nan_is_a_code(nan):
    with pytest.raises(CorruptError, match="as the code of NaN"):
        parse(SCALED | {"nan": nan}, StreamContext(F64, 8, 8), "|u1")
    assert parse(SCALED | {"nan": 255}, StreamContext(F64, 8, 8), "|u1").nan == 255


@pytest.mark.parametrize("kind", [None, 7, [], "", "pco", "x" * 1000])
def test_a_kind_that_is_not_known_is_refused_by_name(kind):
    with pytest.raises(FormatError, match="is unknown; upgrade blztable") as caught:
        parse({"kind": kind}, StreamContext(I64, 8, 8), "|u1")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("layout", "encoding", "dtype"),
    [
        (I64, NARROW, "<u8"),
        (I64, NARROW, "<i4"),
        (I64, NARROW, ""),
        (F64, NARROW, "|u1"),
        (I64, SCALED, "|u1"),
        (F32, SCALED, "|u1"),
        (StreamLayout("values", "<i2", 2, 16), NARROW, "<u2"),
        (StreamLayout("values", "|V12", 12, 96), NARROW, "|u1"),
        (VALIDITY, NARROW, "|u1"),
        (ENDS, NARROW, "|u1"),
        (ENDS, SCALED, "|u1"),
        (I64, LENGTHS, "|u1"),
        (VALIDITY, LENGTHS, "|u1"),
        (ENDS, LENGTHS, "<u8"),
        (ENDS, LENGTHS, ""),
        (StreamLayout("ends", "<i4", 4, 32), LENGTHS, "<u4"),
        (I64, EACH, "<i8"),
        (VALIDITY, EACH, "bitmap"),
        (ENDS, {"kind": "each", "length": -1}, "<i8"),
        (ENDS, {"kind": "each", "length": True}, "<i8"),
        (ENDS, {"kind": "each", "length": "3"}, "<i8"),
        (ENDS, {"kind": "each"}, "<i8"),
    ],
)
def test_an_encoding_that_does_not_suit_the_values_is_corrupt(layout, encoding, dtype):
    with pytest.raises(CorruptError, match="encoding '"):
        parse(encoding, StreamContext(layout, 8, 8), dtype)


@pytest.mark.parametrize("pages", [None, (24, 5), (23, 7), (21, 9), (24, 9)])
def test_one_length_for_each_item_gives_the_bytes_of_each_page(pages):
    with pytest.raises(CorruptError, match=r"the pages of items|a block without items"):
        parse(EACH, StreamContext(ENDS, 10, 8, pages), "<i8")
    assert parse(EACH, StreamContext(ENDS, 10, 8, (24, 6)), "<i8").length == 3


def test_a_file_without_bytes_does_not_claim_many():
    rows = MAX_MADE_BYTES // 8
    parse({"kind": "each", "length": 0}, StreamContext(ENDS, rows, rows, (0,)), "<i8")
    with pytest.raises(CorruptError, match="are made of nothing; at most"):
        parse({"kind": "each", "length": 0}, StreamContext(ENDS, rows + 1, 2 * rows, (0,)), "<i8")


@pytest.mark.parametrize("bases", [None, 7, "?", "AAAA", ONE[:-4], base64.b64encode(bytes(24))])
def test_bases_are_one_or_one_for_each_page(bases):
    if isinstance(bases, bytes):
        bases = bases.decode()
    with pytest.raises(CorruptError, match="bases of an encoding; expected base64 of 2 integers"):
        parse({**NARROW, "bases": bases}, StreamContext(I64, 16, 8), "|u1")
    for count in (1, 2):
        both = base64.b64encode(bytes(8 * count)).decode()
        assert (
            len(parse({**NARROW, "bases": both}, StreamContext(I64, 16, 8), "|u1").bases) == count
        )


@pytest.mark.parametrize("power", [None, -1, 19, 2.0, True, "2", 10**30])
def test_a_power_is_a_whole_number_to_18(power):
    with pytest.raises(CorruptError, match="with power"):
        parse({**SCALED, "power": power}, StreamContext(F64, 8, 8), "|u1")


def words(*numbers) -> str:
    return base64.b64encode(np.array(numbers, "<i8").tobytes()).decode()


@pytest.mark.parametrize(
    ("at", "odd"),
    [
        (None, words(1)),
        ("", ""),
        (words(1), None),
        (words(1), words(1, 2)),
        (words(1, 2), words(1)),
        (words(-1), words(1)),
        (words(8), words(1)),
        (words(2, 2), words(1, 1)),
        (words(3, 2), words(1, 1)),
        (words(*range(MOST_ODD + 1)), words(*range(MOST_ODD + 1))),
    ],
)
def test_the_rows_of_odd_values_ascend_and_each_has_a_value(at, odd):
    with pytest.raises(CorruptError, match=r"of an encoding|places of an encoding of 8 rows"):
        parse({**SCALED, "at": at, "odd": odd}, StreamContext(F64, 8, 8), "|u1")


@pytest.mark.parametrize("form", [None, "", "%", ["/"]])
def test_a_form_is_one_of_two(form):
    with pytest.raises(CorruptError, match="with form"):
        parse({**SCALED, "form": form}, StreamContext(F64, 8, 8), "|u1")


@pytest.mark.parametrize(
    ("dtype", "encoding", "codes", "values"),
    [
        (
            "<i8",
            {"kind": "narrow", "bases": "6AMAAAAAAAA="},
            [0, 1, 3, 2, 0, 7, 255, 0],
            [1000, 1001, 1003, 1002, 1000, 1007, 1255, 1000],
        ),
        (
            "<f8",
            {"kind": "scaled", "power": 2, "form": "/", "bases": "BQAAAAAAAAA="},
            [0, 1, 0],
            [0.05, 0.06, 0.05],
        ),
        (
            "<i8",
            {"kind": "delta", "firsts": "CgAAAAAAAAA=", "least": "CgAAAAAAAAA="},
            [0, 0, 1, 0],
            [10, 20, 31, 41],
        ),
    ],
)
def test_the_examples_of_the_page_are_decoded(dtype, encoding, codes, values):
    page = (Path(__file__).parents[3] / "docs/format.md").read_text(encoding="utf-8")
    assert json.dumps(encoding, separators=(",", ":")) in page
    assert ", ".join(map(str, codes)) in page
    out = np.empty(len(values), dtype)
    made = parse(
        encoding, StreamContext(StreamLayout("values", dtype, 8, 64), len(values), 8), "|u1"
    )
    made.decode(0, np.array(codes, "u1"), out.view("u1"))
    assert out.tolist() == values


def test_powers_of_ten_are_the_nearest_doubles():
    for power in range(19):
        for form, factor in (("/", 10**power), ("*", float(f"1e-{power}"))):
            encoding = parse(
                {**SCALED, "power": power, "form": form}, StreamContext(F64, 1, 8), "<u4"
            )
            out = np.empty(1)
            encoding.decode(0, np.array([123_457], "<u4").view("u1"), out.view("u1"))
            assert out[0] == (123_457 / factor if form == "/" else 123_457 * factor)
