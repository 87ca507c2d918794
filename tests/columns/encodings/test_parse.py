"""Encodings in the metadata of a file from anyone: refused by name, or sound."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest

from blztable.columns.blocks import StreamLayout
from blztable.columns.encodings.parse import parse
from blztable.errors import CorruptError, FormatError

I64 = StreamLayout("values", "<i8", 8, 64)
F64 = StreamLayout("values", "<f8", 8, 64)
F32 = StreamLayout("values", "<f4", 4, 32)
ONE = base64.b64encode(bytes(8)).decode()
NARROW = {"kind": "narrow", "bases": ONE}
SCALED = {"kind": "scaled", "power": 2, "form": "/", "bases": ONE}


@pytest.mark.parametrize("kind", [None, 7, [], "", "pco", "x" * 1000])
def test_a_kind_that_is_not_known_is_refused_by_name(kind):
    with pytest.raises(FormatError, match="is unknown; upgrade blztable") as caught:
        parse({"kind": kind}, I64, "|u1", 8, 8)
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
        (StreamLayout("values", "|V16", 16, 128), NARROW, "|u1"),
    ],
)
def test_an_encoding_that_does_not_suit_the_values_is_corrupt(layout, encoding, dtype):
    with pytest.raises(CorruptError, match="encoding '"):
        parse(encoding, layout, dtype, 8, 8)


@pytest.mark.parametrize("bases", [None, 7, "?", "AAAA", ONE[:-4], base64.b64encode(bytes(24))])
def test_bases_are_one_or_one_for_each_page(bases):
    if isinstance(bases, bytes):
        bases = bases.decode()
    with pytest.raises(CorruptError, match="bases of an encoding; expected base64 of 2 integers"):
        parse({**NARROW, "bases": bases}, I64, "|u1", 16, 8)
    for count in (1, 2):
        both = base64.b64encode(bytes(8 * count)).decode()
        assert len(parse({**NARROW, "bases": both}, I64, "|u1", 16, 8).bases) == count


@pytest.mark.parametrize("power", [None, -1, 19, 2.0, True, "2", 10**30])
def test_a_power_is_a_whole_number_to_18(power):
    with pytest.raises(CorruptError, match="with power"):
        parse({**SCALED, "power": power}, F64, "|u1", 8, 8)


@pytest.mark.parametrize("form", [None, "", "%", ["/"]])
def test_a_form_is_one_of_two(form):
    with pytest.raises(CorruptError, match="with form"):
        parse({**SCALED, "form": form}, F64, "|u1", 8, 8)


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
    made = parse(encoding, StreamLayout("values", dtype, 8, 64), "|u1", len(values), 8)
    made.decode(0, np.array(codes, "u1"), out.view("u1"))
    assert out.tolist() == values


def test_powers_of_ten_are_the_nearest_doubles():
    for power in range(19):
        for form, factor in (("/", 10**power), ("*", float(f"1e-{power}"))):
            encoding = parse({**SCALED, "power": power, "form": form}, F64, "<u4", 1, 8)
            out = np.empty(1)
            encoding.decode(0, np.array([123_457], "<u4").view("u1"), out.view("u1"))
            assert out[0] == (123_457 / factor if form == "/" else 123_457 * factor)
