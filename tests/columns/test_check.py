"""Records against types: what a part of a type cannot have is refused before it is decoded."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from blztable.columns.parts.check import check_type
from blztable.columns.parts.encode import encode
from blztable.errors import CorruptError
from blztable.format.records import (
    CONSTANT,
    DICTIONARY,
    ITEM_CHUNKS,
    LENGTHS,
    NAN_CODE,
    NAN_IS_NULL,
    NUMBERS,
    PER_ITEM,
    PLAIN,
    SUM,
    TIMES,
    UNSORTED,
    VALID,
    VALUES,
)
from blztable.tuning import tuned
from support.encoded import records_of_parts

ROWS = 40
NOISE = np.random.default_rng(0)
ARRAYS = {
    "near": pa.array(NOISE.integers(1000, 1200, ROWS)),
    "sums": pa.array(np.cumsum(NOISE.integers(0, 200, ROWS))),
    "money": pa.array(np.round(NOISE.random(ROWS) * 100, 2)),
    "noise": pa.array(NOISE.random(ROWS)),
    "one": pa.array([7.5] * ROWS),
    "few": pa.array(NOISE.choice(NOISE.random(3), ROWS)),
    "nulls": pa.array([None if n % 3 == 0 else n * n for n in range(ROWS)]),
    "text": pa.array([f"{n * 7919:x}" * (n % 3) for n in range(ROWS)]),
    "words": pa.array(["rail", "air", "ship", "air"] * (ROWS // 4)),
    "coded": pa.array(["rail", "air", None, "ship"] * (ROWS // 4)).dictionary_encode(),
    "lists": pa.array([[None] * (n % 3) for n in range(ROWS)], pa.list_(pa.null())),
    "bytes": pa.array([bytes([n] * 3) for n in range(ROWS)], pa.binary(3)),
    "flags": pa.array([n % 3 == 0 for n in range(ROWS)]),
    "struct": pa.array([None if n % 5 == 0 else {} for n in range(ROWS)], pa.struct([])),
    "null": pa.nulls(ROWS),
}


def records_of(array):
    """Return the records of a part, with the bytes of its streams, and two other parts."""
    with tuned(encoded_bytes=0, sampled_values=1, rows_per_exception=4, rows_per_item=2):
        parts = [encode(array, 3), encode(array.slice(0, 0), 3), encode(array.slice(9), 3)]
    records = records_of_parts(parts)
    records.streams["nbytes"] = [len(stream.data) for part in parts for stream in part.streams]
    return records


@pytest.mark.parametrize("name", ARRAYS)
def test_the_parts_of_a_type_are_taken(name):
    check_type(ARRAYS[name].type, records_of(ARRAYS[name]))


@pytest.mark.parametrize("other", ARRAYS)
@pytest.mark.parametrize("name", ["text", "words", "coded", "lists", "bytes", "struct", "null"])
def test_parts_of_one_form_are_none_of_another(name, other):
    if ARRAYS[other].type == ARRAYS[name].type or {name, other} == {"struct", "null"}:
        return
    with pytest.raises(CorruptError):
        check_type(ARRAYS[other].type, records_of(ARRAYS[name]))


def stream(number, **fields):
    def edit(records):
        for field, value in fields.items():
            records.streams[field][number] = value

    return edit


def part(**fields):
    def edit(records):
        for field, value in fields.items():
            records.parts[field][0] = value

    return edit


def word(number, value):
    def edit(records):
        records.words[number] = value

    return edit


# Each edit is of the first part.
EDITS = [
    ("near", stream(0, kind=PLAIN)),
    ("near", stream(0, kind=DICTIONARY)),
    ("near", stream(0, kind=PER_ITEM)),
    ("near", stream(0, width=2)),
    ("near", stream(0, flags=SUM)),
    ("near", stream(0, flags=TIMES)),
    ("near", stream(0, flags=NAN_CODE)),
    ("near", stream(0, flags=UNSORTED)),
    ("near", stream(0, power=2)),
    ("near", stream(0, exceptions=1)),
    ("near", stream(0, nbytes=ROWS - 1)),
    ("near", stream(0, name=LENGTHS)),
    ("near", part(flags=NAN_IS_NULL)),
    ("near", part(flags=ITEM_CHUNKS)),
    ("near", part(rows=ROWS + 1)),
    ("near", part(pages=0)),
    ("sums", stream(0, words=3)),
    ("sums", stream(0, flags=0)),
    ("money", stream(0, flags=SUM)),
    ("money", stream(0, exceptions=3)),
    ("money", stream(0, width=8, nbytes=8 * ROWS)),
    ("money", stream(0, power=0, flags=TIMES)),
    ("noise", stream(0, nbytes=8 * ROWS - 8)),
    ("noise", stream(0, width=8)),
    ("noise", stream(0, power=1)),
    ("noise", stream(0, words=1)),
    ("noise", stream(0, chunk=12)),
    ("one", stream(0, words=2)),
    ("one", stream(0, flags=NAN_CODE)),
    ("few", word(0, 0)),
    ("few", word(0, 4)),
    ("few", word(0, -1)),
    ("few", stream(0, flags=UNSORTED)),
    ("few", stream(1, nbytes=16)),
    ("few", stream(1, kind=CONSTANT)),
    ("nulls", stream(0, nbytes=4)),
    ("nulls", stream(0, kind=NUMBERS)),
    ("nulls", stream(0, kind=CONSTANT)),
    ("nulls", stream(0, name=LENGTHS)),
    ("text", stream(0, kind=CONSTANT)),
    ("text", stream(0, nbytes=1)),
    ("text", stream(0, kind=PER_ITEM)),
    ("text", part(flags=ITEM_CHUNKS)),
    ("text", stream(1, flags=0)),
    ("text", stream(1, kind=PLAIN)),
    ("text", stream(1, nbytes=8)),
    ("text", stream(1, words=2)),
    ("text", word(0, 1)),
    ("text", word(2, 1)),
    ("text", word(5, 1 << 50)),
    ("text", word(6, -1)),
    ("text", word(6, 1 << 40)),
    ("words", stream(0, flags=UNSORTED)),
    ("words", stream(0, nbytes=8)),
    ("words", word(0, 9)),
    ("words", word(0, 1 << 17)),
    ("words", word(1, 1)),
    ("words", stream(2, nbytes=1)),
    ("coded", stream(1, flags=0)),
    ("coded", word(0, -1)),
    ("lists", stream(0, flags=0)),
    ("lists", word(5, 0)),
    ("bytes", stream(0, kind=NUMBERS)),
    ("bytes", stream(0, nbytes=3 * ROWS + 3)),
    ("flags", stream(0, nbytes=5)),
    ("struct", stream(0, name=VALUES)),
    ("struct", stream(0, nbytes=1)),
]


@pytest.mark.parametrize(
    ("name", "edit"), [pytest.param(*one, id=f"{one[0]}-{n}") for n, one in enumerate(EDITS)]
)
def test_what_a_part_of_a_type_cannot_have_is_refused(name, edit):
    records = records_of(ARRAYS[name])
    edit(records)
    with pytest.raises(CorruptError, match="records of parts"):
        check_type(ARRAYS[name].type, records)


def test_validity_of_a_type_without_values_is_refused():
    records = records_of(ARRAYS["struct"])
    assert records.streams["name"].tolist() == [VALID, VALID]
    with pytest.raises(CorruptError, match="streams of the type"):
        check_type(pa.null(), records)


def test_more_items_than_a_page_of_lengths_have_a_word_for_each_page():
    array = pa.array([""]).dictionary_encode()
    part = encode(array, 3)
    codes, lengths, values = part.streams
    codes = replace(codes, words=np.array([(1 << 30) + 1]))

    def checked(words):
        streams = codes, replace(lengths, words=np.zeros(words, np.int64)), values
        check_type(array.type, records_of_parts([replace(part, streams=streams)]))

    checked(2 + 2)
    with pytest.raises(CorruptError, match="words of lengths"):
        checked(1 + 2)
