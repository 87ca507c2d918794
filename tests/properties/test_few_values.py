"""Columns of few different values answer as plain ones do, through changes and however cut."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.storage.memory import RamStore
from support.bit_equality import same_table
from support.options import arguments

NUMBERS = (pa.int16(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.timestamp("ns"))
ITEMS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
WIDTHS = (pa.binary(3), pa.binary(16))


@st.composite
def columns(draw):
    """Draw values of any bits, in any order or in runs, with nulls or runs of them."""
    rows = draw(st.sampled_from([300, 2500, 9000]))
    count = draw(st.sampled_from([1, 2, 100, 128, 129, 255, 256, 300]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    type_ = draw(st.sampled_from([*NUMBERS, *WIDTHS, *ITEMS]))
    if type_ in ITEMS:
        most = draw(st.sampled_from([0, 4, 30]))
        texts = [f"{n}{rng.bytes(int(rng.integers(most + 1))).hex()}" for n in range(count)]
        texts[0] = draw(st.sampled_from(["", "ä", texts[0]]))
        values = pa.array(texts).cast(type_)
    else:
        data = pa.py_buffer(rng.bytes(count * type_.byte_width))
        values = pa.Array.from_buffers(type_, count, [None, data])
    numbers = rng.integers(0, count, rows)
    if draw(st.booleans()):
        numbers.sort()
    nulls = rng.random(rows) < draw(st.sampled_from([0, 0.2]))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, rows))
        nulls[start : start + draw(st.sampled_from([1, 8, 100, rows]))] = True
    column = values.take(pa.array(numbers, mask=nulls))
    return pa.table({"a": column, "i": np.arange(rows)})


@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(columns(), st.data())
def test_few_values_answer_as_plain_ones(table, data):
    rows = table.num_rows
    cuts = {
        "row_group_rows": data.draw(st.sampled_from([rows, rows // 2 + 1])),
        "page_rows": data.draw(st.sampled_from([8, 64, 1024])),
        "optimize": data.draw(st.sampled_from([None, "size", "speed"])),
    }
    opened = []
    for encoding in ("plain", "auto"):
        store = RamStore(encoding)
        blz.to_blz(table, store, **arguments(encoding=encoding, **cuts))
        opened.append(blz.open(store, "a"))
    plain, encoded = opened
    assert same_table(plain.to_arrow(), table)
    assert same_table(encoded.to_arrow(), table)
    places = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=30))
    assert same_table(encoded.take(places), plain.take(places))
    item = table["a"][places[0]]
    filters = pc.field("a").is_null() if not item.is_valid else pc.field("a") == item
    assert same_table(encoded.to_arrow(filters=filters), plain.to_arrow(filters=filters))
    filters &= pc.field("i") > places[-1]
    assert encoded.count(filters=filters) == plain.count(filters=filters)
    for one in opened:
        one.delete(where=pc.field("i") < places[-1] // 2)
        one.append(table.slice(places[0], 50))
        one.compact()
    assert same_table(encoded.to_arrow(), plain.to_arrow())
    assert encoded.verify()
