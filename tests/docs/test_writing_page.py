"""docs/writing.md agrees with the code: operations, properties, mirrors, choices."""

import base64
import json
import re
import struct
from pathlib import Path

import pyarrow as pa

import blztable as blz
from blztable import tuning
from blztable.columns.parts.encode import PAGE
from blztable.engine.change import columns
from blztable.engine.version import versions
from blztable.engine.write import chunks, parts
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from support.moved_first import moved_first

TEXT = (Path(__file__).parents[2] / "docs" / "writing.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """Return the text under a heading, up to the next heading of any level."""
    match = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert match, f"writing.md has no heading {title!r}"
    return match[1]


def table(title: str) -> list[dict[str, str]]:
    """Return the first table under a heading, as a dict for each row."""
    lines = re.search(r"(?:^\|.*\n)+", section(title), re.MULTILINE)[0].splitlines()
    names, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [dict(zip(names, row, strict=True)) for row in rows]


def words(cell: str) -> list[str]:
    """Return the words between backticks."""
    return re.findall(r"`([^`]*)`", cell)


def test_the_operations_are_those_of_the_page():
    store = RamStore()
    made = set()
    schema = pa.schema({"n": pa.int32()})

    def note():
        made.add(versions.load(store, versions.newest_number(store)).head.operation)

    for mode in ("x", "w"):
        blz.create(store, schema, mode=mode).close()
        note()
    with blz.open(store, "a") as t:
        for change in (
            lambda: t.append({"n": [3, 1]}),
            lambda: t.update({"n": 5}, where=[("n", "==", 1)]),
            lambda: t.delete([("n", "==", 5)]),
            lambda: t.resize(2),
            lambda: t.resize(1),
            lambda: t.upsert({"n": [1, 2]}, on="n"),
            lambda: t.append({"n": [7, 7]}, replace_where=[("n", ">", 0)]),
            lambda: t.deduplicate(),
            lambda: t.add_column("m", 1, default=2),
            lambda: t.alter_column("m", default=3),
            lambda: t.rename_columns({"m": "o"}),
            lambda: moved_first(t, ["o"]),
            lambda: t.attrs.update(a=1),
            lambda: t.vlmeta.add("a", b"1"),
            lambda: t.tags.update(a=t.version),
            lambda: t.configure(keep_versions=50),
            lambda: t.append({"n": [2]}),
            lambda: t.compact(),
            lambda: t.compact("n"),
            lambda: t.drop_columns(["o"]),
            lambda: t.restore(t.version - 1),
            *[lambda: t.append({"n": [4]})] * 9,
        ):
            change()
            note()
        with t.transaction() as tx:
            tx.append({"n": [5]})
            tx.attrs["a"] = 2
        note()
        with blz.open(store, "a", durability="process") as hasty:
            hasty.append({"n": [5]}, commit_id="job")
        t.append({"n": [5]}, commit_id="job")
        note()
    with blz.open(store, "a") as t:
        with t.transaction() as tx:
            columns.widen(tx._change_set, tx.schema.set(1, pa.field("n", pa.int64())), None)
        note()
    named = [name for row in table("Operations") for name in words(row["operation"])]
    assert sorted(made) == sorted(named)


def test_the_properties_are_those_of_the_page(tmp_path):
    store = LocalStore(tmp_path / "t.blz")
    blz.to_blz(
        {"n": [1, 2]},
        store,
        storage=blz.Storage(
            optimize="size",
            clevel=1,
            shuffle="bit",
            encoding="auto",
            packing="per_item",
            row_group_rows=99,
            expectedlen=1000,
            nan_as_null=False,
            locks="none",
            columns={"n": blz.Storage(page_rows=8)},
        ),
        compression="zstd",
        sort_by="n",
    )
    with blz.open(store, "a") as t:
        t.configure(keep_versions=5, keep_seconds=60, keep_bytes=10**9)
        t.add_column("m", pa.array([1, 2], "i4"), default=7)
        found = versions.load(store, t.version).head.properties
    named = [name for row in table("Properties") for name in words(row["key"])]
    assert sorted(named) == sorted(found)
    assert [*found["defaults"].values()] == [base64.b64encode(struct.pack("<i", 7)).decode()]


def test_mirrors_have_the_form_of_the_page():
    store = RamStore()
    data = pa.table({"n": [1, 2, 3], "s": ["a", None, "b"]})
    blz.to_blz(data, store, storage=blz.Storage(attrs={"source": "till 7"}, page_rows=8))
    documents = re.findall(r"```json\n(.*?)\n```", section("Mirrors"), re.DOTALL)
    for document, key in zip(documents, ("sizes", "storage", "attributes"), strict=True):
        shown, found = json.loads(document), json.loads(store.get(f"meta/{key}"))
        assert list(shown) == list(found)
        assert shown.get("cparams") == found.get("cparams")
        assert json.dumps(shown, separators=(",", ":")) == document


def test_the_numbers_of_the_page_are_those_of_the_code():
    usual, text = tuning.Tuning(), " ".join(TEXT.split())
    assert f"If a tail has {usual.leaf_entries} entries, or {usual.leaf_bytes >> 10} KiB" in text
    assert f"with at least {usual.leaf_few}," in text
    assert f"A page has 2<sup>{PAGE}</sup> rows" in text
    assert f"at most one of {usual.rows_per_deleted} stored rows is deleted" in text
    assert f"at most {usual.bundled_bytes >> 10} KiB each in memory" in text
    assert f"the version has at most {usual.deleted_rows:,} deleted rows" in text
    assert f"chunks of about {chunks.CHUNK_BYTES >> 10} KiB" in text
    assert f"more than {parts.MOST_ITEMS:,} items" in text
