"""Validity as the rows where it changes: the same bits come back."""

import base64
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.columns.blocks import VALIDITY, StreamLayout
from blztable.columns.encodings.choose import encoded
from blztable.columns.encodings.items import MAX_MADE_BYTES
from blztable.columns.encodings.parse import StreamContext, parse
from blztable.columns.encodings.runs import FEW_RUNS, MOST_RUNS, BitmapRuns, few_runs
from blztable.columns.types import encode
from blztable.errors import CorruptError


def words(*numbers) -> str:
    return base64.b64encode(np.array(numbers, "<i8").tobytes()).decode()


def parsed(at, rows, layout=VALIDITY):
    return parse({"kind": "runs", "at": at}, StreamContext(layout, rows, 8), "bitmap")


def bits(one, rows):
    """Return the bits of whole bytes, however these are cut."""
    whole = decoded(one, 0, -(-rows // 8))
    for row in range(len(whole)):
        assert decoded(one, row, 1).tobytes() == whole[row : row + 1].tobytes()
    return np.unpackbits(whole, bitorder="little")[:rows].astype(bool)


def decoded(one, row, nbytes):
    out = np.zeros(nbytes, "u1")
    one.decode(row, out, out)
    return out


@given(st.data())
def test_any_rows_are_the_bits_that_change_there(data):
    rows = data.draw(st.integers(1, 200))
    at = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, unique=True).map(sorted))
    expected = np.cumsum(np.bincount(at, minlength=rows)) % 2 == 0
    one = parsed(words(*at), rows)
    assert bits(one, rows).tolist() == expected.tolist()
    some = np.array(sorted(data.draw(st.sets(st.integers(0, rows - 1), min_size=1))))
    out = np.empty(-(-len(some) // 8), "u1")
    one.pick(some, out, out)
    found = np.unpackbits(out, bitorder="little")[: len(some)].astype(bool)
    assert found.tolist() == expected[some].tolist()
    assert json.loads(json.dumps(one.to_json())) == {"kind": "runs", "at": words(*at)}


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 300)), min_size=1, max_size=2 * FEW_RUNS))
def test_a_mask_is_encoded_if_it_has_few_runs(runs):
    mask = np.concatenate([np.full(length, flag) for flag, length in runs])
    bitmap = np.packbits(mask, bitorder="little")
    changes = np.count_nonzero(np.diff(mask, prepend=True))
    at = few_runs(bitmap, mask)
    assert (at is None) == (changes > FEW_RUNS)
    if at is not None:
        assert bits(BitmapRuns(VALIDITY, at), len(mask)).tolist() == mask.tolist()


@pytest.mark.parametrize("count", [FEW_RUNS, FEW_RUNS + 1])
def test_the_validity_of_an_array_is_encoded_beside_its_values(count):
    rows = 9 * (count + 1)
    array = pa.array(np.arange(rows), mask=np.arange(rows) // 9 % 2 == 1)
    valid, values = encoded(encode(array)).streams
    assert values.encoding.kind == "narrow"
    assert valid.encoding is None if count > FEW_RUNS else valid.encoding.kind == "runs"


@pytest.mark.parametrize(
    "at",
    [None, 7, "", "?", words(-1), words(8), words(2, 2), words(3, 2), words(*range(MOST_RUNS + 1))],
)
def test_the_rows_ascend_and_are_those_of_the_part(at):
    assert parsed(words(0, 7), 8).at.tolist() == [0, 7]
    with pytest.raises(CorruptError, match=r"at of an encoding|places of an encoding of 8 rows"):
        parsed(at, 8)


@pytest.mark.parametrize("name", ["values", "ends", "codes"])
def test_only_validity_has_runs(name):
    with pytest.raises(CorruptError, match=f"encoding 'runs' of stream '{name}'"):
        parsed(words(1), 8, StreamLayout(name, "<i8", 8, 64))


def test_a_file_without_bytes_does_not_claim_many():
    rows = 8 * MAX_MADE_BYTES
    parsed(words(5), rows)
    with pytest.raises(CorruptError, match="are made of nothing; at most"):
        parsed(words(5), rows + 1)


def test_the_example_of_the_format_page():
    page = (Path(__file__).parents[3] / "docs/format.md").read_text(encoding="utf-8")
    encoding = {"kind": "runs", "at": words(2, 5)}
    assert json.dumps(encoding, separators=(",", ":")) in page
    assert bits(parsed(encoding["at"], 6), 6).tolist() == [True, True, False, False, False, True]
