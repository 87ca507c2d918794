"""Tables whose items are a chunk each answer as packed ones do, through changes and however cut."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.storage.memory import RamStore
from support.bit_equality import same_table
from support.options import arguments

TYPES = (pa.string(), pa.large_string(), pa.binary(), pa.string_view(), pa.binary_view())
TEXTS = st.none() | st.sampled_from(["", "a", "é", "𝄞"]) | st.text(max_size=40)


@st.composite
def tables(draw, rows):
    """Draw text or binary, alone and within structs and lists, with nulls and empty items."""
    type_ = draw(st.sampled_from(TYPES))
    some = st.lists(TEXTS, min_size=rows, max_size=rows)

    def items():
        found = draw(some)
        is_text = pa.types.is_string(type_) or "string" in str(type_)
        return [one if one is None or is_text else one.encode() for one in found]

    kept = draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
    counts = draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    inner = type_ if "view" not in str(type_) else pa.string()
    words = [[str(n)] * n for n in counts]
    if inner == pa.binary():
        words = [[one.encode() for one in row] for row in words]
    structs = [
        {"n": n, "x": x} if is_kept else None
        for n, (x, is_kept) in enumerate(zip(items(), kept, strict=True))
    ]
    return pa.table(
        {
            "i": range(rows),
            "x": pa.array(items(), type_),
            "s": pa.array(structs, pa.struct({"n": pa.int32(), "x": type_})),
            "l": pa.array(words, pa.list_(inner)),
        }
    )


@settings(deadline=None, max_examples=5, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_items_in_chunks_answer_as_packed_ones(data):
    rows = data.draw(st.sampled_from([0, 1, 9, 40]))
    table = data.draw(tables(rows))
    cuts = {
        "row_group_rows": data.draw(st.sampled_from([7, 64])),
        "page_rows": data.draw(st.sampled_from([8, 16])),
        "encoding": data.draw(st.sampled_from(["auto", "plain"])),
        "optimize": data.draw(st.sampled_from([None, "size"])),
    }
    opened = []
    for packing in ("packed", "per_item"):
        store = RamStore(packing)
        blz.to_blz(table, store, **arguments(packing=packing, **cuts))
        opened.append(blz.open(store, "a"))

    def check():
        packed, chunked = opened
        assert same_table(chunked.to_arrow(), packed.to_arrow())
        count = len(packed)
        start, stop = sorted(data.draw(st.tuples(*[st.integers(0, count)] * 2)))
        assert same_table(chunked[start:stop], packed[start:stop])
        if count:
            places = data.draw(st.lists(st.integers(0, count - 1), max_size=12))
            assert same_table(chunked.take(places), packed.take(places))
        for filters in (
            pc.field("i") >= start,
            pc.field("x").is_null(),
            pc.field("s", "x").is_valid() & (pc.field("i") < stop),
        ):
            found = chunked.to_arrow(["x", "l"], filters=filters)
            assert same_table(found, packed.to_arrow(["x", "l"], filters=filters))
        assert chunked.verify()

    check()
    for move in data.draw(st.permutations(["append", "update", "delete", "compact", "sort"]))[:2]:
        at = data.draw(st.integers(0, max(rows - 1, 0)))
        more = table.slice(at, 5)
        for one in opened:
            match move:
                case "append":
                    one.append(more)
                case "update" if rows:
                    one.update({"x": more["x"][0], "s": more["s"][0]}, where=pc.field("i") == at)
                case "delete":
                    one.delete(where=pc.field("i") == at)
                case "compact":
                    one.compact()
                case "sort":
                    one.compact(sort_by=[("i", "descending")])
        check()
    with tempfile.TemporaryDirectory() as folder:
        source, file = Path(folder, "t.blz"), Path(folder, "one.blz")
        kept = opened[1].to_arrow()
        blz.to_blz(kept, source, **arguments(packing="per_item", durability="process", **cuts))
        blz.copy(source, file, layout="file")
        with blz.open(file) as one:
            assert same_table(one.to_arrow(), kept)
            assert one.verify()
