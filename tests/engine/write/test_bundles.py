"""Bundles: small row groups share a file, and no verb and no other writer takes harm from it."""

import shutil
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.engine.change.changes import Join
from blztable.engine.change.reliance import ReadSet
from blztable.engine.version import versions
from blztable.engine.version.staged import NewGroups, StagedVersion
from blztable.format import layout
from blztable.format.data_file import DataFile
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from golden import reader
from support.options import storage_of
from support.stores import Hooked, files_named, once, raising, tree

pytestmark = pytest.mark.usefixtures("bundled")

WORDS = pa.array(["x", None, "größer", "", "x"])
FIRST = pa.table(
    {
        "n": pa.array([1, None, 3, 4, 5]),
        "s": WORDS,
        "d": WORDS.dictionary_encode(),
        "z": pa.nulls(5),
        "f": pa.array([0.5, float("nan"), -0.0, None, 1e300]),
    }
)
# So few rows that an append does not merge them with the others.
MORE = FIRST.slice(1, 2)


@pytest.fixture
def store():
    store = RamStore()
    blz.to_blz(FIRST, store, durability="process")
    return store


def changing(store, **options):
    return blz.open(store, "a", durability="process", **options)


def files(store, prefix=layout.DATA):
    return {key for key in tree(store) if key.startswith(prefix) and key.endswith(".bin")}


def newest(store):
    number = versions.newest_number(store)
    return versions.load(store, number)


def numbers_of(store):
    """Return the number of the bundle of each row group, 0 for none."""
    return list(newest(store).bundles)


def bundle(k):
    return layout.part(layout.SHARED, k)


def assert_holds(store, expected):
    """Check the rows, that all is intact, and that the versions name all files there are."""
    with blz.open(store) as table:
        assert table.to_arrow().to_pydict().keys() == expected.to_pydict().keys()
        assert str(table.to_arrow().to_pylist()) == str(expected.to_pylist())
        report = table.verify()
    assert report.is_intact, report.problems
    named = set()
    for number in versions.numbers(store):
        named |= files_named(versions.read(store, number))
    assert files(store) == named


# Writing


def test_a_small_row_group_is_one_file(store):
    assert files(store) == {bundle(1)}
    assert store.get(bundle(1))[:5] == b"blpk\x03"
    assert_holds(store, FIRST)


def test_each_row_group_has_its_own_bundle(store):
    blz.to_blz(FIRST, store, mode="w", storage=blz.Storage(row_group_rows=2), durability="process")
    assert numbers_of(store) == [2, 3, 4]
    assert_holds(store, FIRST)


@pytest.mark.parametrize(("columns", "rows"), [(1, 5), (2, 100_000), (17, 8_193)])
def test_one_column_and_larger_row_groups_have_files_of_their_own(columns, rows):
    store = RamStore()
    table = pa.table({f"c{number}": np.arange(rows) for number in range(columns)})
    blz.to_blz(table, store)
    assert len(files(store)) == columns
    assert files(store, layout.BUNDLES) == set()
    assert numbers_of(store) == [0]


def test_very_many_narrow_columns_are_one_file_however_large():
    store = RamStore()
    values = np.random.default_rng(0).integers(0, 1 << 62, (300, 2000))
    table = pa.table({f"c{number}": row for number, row in enumerate(values)})
    blz.to_blz(table, store)
    assert files(store) == {bundle(1)}
    assert len(store.get(bundle(1))) > 4 << 20
    assert blz.read_table(store) == table
    assert blz.read_table(store, columns=["c7"]) == table.select(["c7"])


def test_columns_asked_to_be_plain_have_files_of_their_own():
    store = RamStore()
    blz.to_blz(
        FIRST,
        store,
        storage=blz.Storage(columns={"n": blz.Storage(encoding="plain")}),
        durability="process",
    )
    assert files(store) == {bundle(1), layout.part((0,), 2)}
    with changing(store) as table:
        table.append(MORE)
    assert files(store) == {bundle(1), layout.part((0,), 2), bundle(3), layout.part((0,), 4)}
    assert_holds(store, pa.concat_tables([FIRST, MORE]))
    blz.to_blz(FIRST, store, mode="w", storage=blz.Storage(encoding="plain"), durability="process")
    assert numbers_of(store) == [0]


def test_a_row_group_without_any_bytes_has_no_file():
    store = RamStore()
    blz.to_blz(pa.table({"a": pa.nulls(3), "b": pa.nulls(3)}), store)
    assert files(store) == set()
    assert numbers_of(store) == [0]
    with blz.open(store) as table:
        assert table.verify().is_intact


def test_a_number_that_another_writer_uses_is_passed_over(store):
    store.put(bundle(2), b"theirs")
    with changing(store) as table:
        table.append(MORE)
    assert numbers_of(store) == [1, 3]
    assert store.get(bundle(2)) == b"theirs"


def test_an_append_creates_one_file_and_flushes_it_once(tmp_path):
    blz.to_blz(FIRST, tmp_path / "t.blz")
    calls = []
    local = LocalStore(tmp_path / "t.blz")
    store = Hooked(local, before=lambda name, args: calls.append((name, args)))
    with blz.open(store, "a") as table:
        table.append(MORE)
    assert [args[0] for name, args in calls if name == "put_new"] == [bundle(2)]
    flushed = [list(args[0]) for name, args in calls if name == "flush"]
    assert flushed.count([bundle(2)]) == 1


@pytest.mark.parametrize("sort_by", [["n"], ["s", "n"]])
def test_a_sorted_table_and_a_sorted_stream_are_bundled(sort_by):
    for data in (FIRST, iter([FIRST.slice(0, 2), FIRST.slice(2)])):
        store = RamStore()
        blz.to_blz(data, store, sort_by=sort_by, durability="process")
        assert len(files(store)) == 1
        keys = [(name, "ascending") for name in sort_by]
        assert_holds(store, FIRST.take(pc.sort_indices(FIRST, sort_keys=keys)))


# Changing


def test_a_merge_makes_ordinary_parts_when_they_are_large_enough():
    store = RamStore()
    table = pa.table({"a": np.arange(6_000), "b": np.arange(6_000) % 7})
    blz.to_blz(table.slice(0, 0), store, durability="process")
    with changing(store) as opened:
        for start in range(0, 6_000, 1_000):
            opened.append(table.slice(start, 1_000))
        assert len([k for k in numbers_of(store) if k]) > 1
        opened.append(table)
        opened.compact()
    assert list(newest(store).row_groups) == [12_000]
    assert numbers_of(store) == [0]
    assert_holds(store, pa.concat_tables([table, table]))


def test_an_updated_column_gets_files_and_the_bundle_stays(store):
    with changing(store) as table:
        table.update({"s": "new"}, where=pc.field("n") == 3)
    assert files(store) == {bundle(1), layout.part((1,), 2)}
    expected = FIRST.set_column(1, "s", pa.array(["x", None, "new", "", "x"]))
    assert_holds(store, expected)
    with changing(store) as table:
        table.drop_columns(["s"])
    assert_holds(store, expected.drop_columns(["s"]))


def test_a_bundle_is_named_until_no_column_is_left_in_it(store):
    with changing(store) as table:
        table.configure(keep_versions=1)
        table.drop_columns(["s", "d"])
        assert bundle(1) in files(store)
        table.update({"n": 7})
        assert numbers_of(store) == [1]
        table.update({"f": 2.5})
    assert numbers_of(store) == [0]
    with changing(store) as table:
        table.attrs["a"] = 1
    assert bundle(1) not in files(store)
    expected = pa.table({"n": [7] * 5, "z": pa.nulls(5), "f": [2.5] * 5})
    assert_holds(store, expected)
    with changing(store) as table:
        table.append(MORE.select(["n", "z", "f"]))
    assert numbers_of(store) == [0, 4]


def test_an_older_version_keeps_its_bundle_and_is_restored(store):
    with changing(store) as table:
        table.delete(pc.field("n") == 1)
        assert files(store) == {bundle(1), bundle(2)}
        assert table.vacuum().files == 0
    with blz.open(store, version=1) as table:
        assert table.verify().is_intact
    with changing(store) as table:
        table.restore(1)
        assert numbers_of(store) == [1]
        table.append(MORE)
    assert numbers_of(store) == [1, 3]
    assert_holds(store, pa.concat_tables([FIRST, MORE]))


def test_retention_removes_a_bundle_with_the_last_version_that_names_it(store):
    with changing(store) as table:
        table.configure(keep_versions=1)
        table.append(MORE)
        table.delete(pc.field("n") == 1)
        table.attrs["a"] = 1
    assert files(store) == {bundle(2), bundle(3)}
    assert_holds(store, pa.concat_tables([FIRST.slice(1), MORE]))


def test_a_vacuum_removes_bundles_that_nobody_names_and_no_others(store):
    store.put(bundle(9), b"left by a killed writer")
    with changing(store) as table:
        table.append(MORE)
        found = table.vacuum(keep=1)
    assert found.files == 1
    assert_holds(store, pa.concat_tables([FIRST, MORE]))


def test_a_bundle_that_a_transaction_replaced_itself_is_removed(store):
    with changing(store) as table, table.transaction() as tx:
        tx.append(MORE)
        tx.delete(pc.field("n") == 1)
        tx.add_column("new", range(len(FIRST) + len(MORE) - 1))
    expected = pa.concat_tables([FIRST.slice(1), MORE])
    assert_holds(store, expected.append_column("new", [list(range(6))]))


def test_a_failed_verb_takes_its_bundles_back(store):
    before = files(store)

    def rows():
        yield MORE
        raise ZeroDivisionError

    with changing(store) as table, pytest.raises(ZeroDivisionError):
        table.append(rows())
    assert files(store) == before
    failing = Hooked(store, before=once("publish", raising(MemoryError())))
    with changing(failing) as table, pytest.raises(MemoryError):
        table.append(MORE)
    assert files(store) == before


def test_rows_appended_with_more_columns_and_wider_types_come_back(store):
    wider = pa.table({"n": [1 << 40], "s": ["y"], "extra": [True]})
    with changing(store) as table:
        table.append(wider, evolve=True)
    expected = pa.concat_tables([FIRST, wider], promote_options="default")
    assert_holds(store, expected.select([*FIRST.column_names, "extra"]))


def test_two_writers_append_bundles_at_the_same_time(store):
    def other():
        with changing(store) as table:
            table.append(FIRST)

    with changing(Hooked(store, before=once("lock", other, layout.LOCK))) as table:
        table.append(MORE)
    assert_holds(store, pa.concat_tables([FIRST, FIRST, MORE]))
    bundles = numbers_of(store)
    assert len(set(bundles)) == len(bundles)


def test_a_delete_conflicts_with_a_delete_that_rewrote_the_same_bundle(store):
    def other():
        with changing(store) as table:
            table.delete(pc.field("n") == 1)

    hooked = Hooked(store, before=once("lock", other, layout.LOCK))
    with pytest.raises(blz.ConflictError), changing(hooked, retries=0) as table:
        table.delete(pc.field("n") == 3)
    assert_holds(store, FIRST.slice(1))


def test_row_groups_of_equal_rows_are_told_apart_by_their_bundles(store):
    blz.to_blz(FIRST, store, mode="w", storage=blz.Storage(row_group_rows=2), durability="process")
    before = StagedVersion.of(versions.read(store, 2))
    change = Join.of(before, 0, 2, NewGroups(), [])
    relied = ReadSet.rows_of(before)
    with changing(store) as table:
        table.compact(sort_by=[("n", "descending")])
    after = StagedVersion.of(versions.read(store, 3))
    assert after.row_groups == before.row_groups
    with pytest.raises(blz.ConflictError, match="row groups to join were changed"):
        change.find(after)
    with pytest.raises(blz.ConflictError, match="relies on the rows"):
        relied.check(after, "a delete")


def test_a_durable_commit_flushes_the_bundles_of_the_hasty_ones_before_it(tmp_path):
    local, flushed = LocalStore(tmp_path / "t.blz"), []
    blz.to_blz(FIRST, local, durability="process")

    def note(name, args):
        if name == "flush":
            flushed.extend(args[0])

    with blz.open(Hooked(local, before=note), "a") as table:
        table.attrs["a"] = 1
    assert bundle(1) in flushed


def test_an_unfinished_creation_is_taken_over_with_its_bundles(store):
    unfinished = RamStore()
    unfinished.prepare(*layout.PREPARED)
    unfinished.put(bundle(1), b"never finished")
    blz.to_blz(FIRST, unfinished, durability="process")
    assert files(unfinished) == {bundle(1)}
    assert_holds(unfinished, FIRST)


def test_a_replacement_uses_no_number_again(store):
    blz.to_blz(MORE, store, mode="w", durability="process")
    assert numbers_of(store) == [2]
    with changing(store) as table:
        table.vacuum(keep=1)
    assert files(store) == {bundle(2)}
    blz.to_blz(FIRST.select(["n"]), store, mode="w", durability="process")
    assert len(files(store, layout.BUNDLES)) == 1
    assert layout.part((10,), 3) in files(store)


# Reading


def test_a_copied_directory_is_the_same_table(tmp_path):
    blz.to_blz(FIRST, tmp_path / "a.blz", storage=blz.Storage(row_group_rows=2))
    shutil.copytree(tmp_path / "a.blz", tmp_path / "b.blz")
    shutil.rmtree(tmp_path / "a.blz")
    assert_holds(LocalStore(tmp_path / "b.blz"), FIRST)


def test_the_reader_written_from_the_page_reads_bundles(tmp_path):
    blz.to_blz(FIRST, tmp_path / "t.blz", storage=blz.Storage(row_group_rows=2))
    with blz.open(tmp_path / "t.blz", "a") as table:
        table.update({"n": 9}, where=pc.field("n") == 3)
    found = reader.read(tmp_path / "t.blz")
    numbers = [
        None if row is None else int.from_bytes(row, "little") for row in found.columns[0].rows
    ]
    assert numbers == [1, None, 9, 4, 5]
    assert found.columns[1].rows == [b"x", None, "größer".encode(), b"", b"x"]


def test_a_damaged_bundle_loses_its_row_group_alone(tmp_path):
    blz.to_blz(FIRST, tmp_path / "t.blz", storage=blz.Storage(row_group_rows=2))
    place = tmp_path / "t.blz" / bundle(2)
    place.write_bytes(place.read_bytes()[:40])
    with blz.open(tmp_path / "t.blz") as table:
        with pytest.raises(blz.CorruptError, match=r"group/__2__\.bin"):
            table.to_arrow()
        problems = table.verify().problems
        assert {(one.row_group, one.start, one.stop) for one in problems} == {(1, 2, 4)}
        with pytest.warns(match="rows 2 to 4"):
            kept = table.to_arrow(on_corrupt="skip")
    assert str(kept.to_pylist()) == str([*FIRST.to_pylist()[:2], *FIRST.to_pylist()[4:]])


def test_sizes_of_columns_count_their_parts(store):
    with blz.open(store) as table:
        assert 0 < table.cbytes < len(store.get(bundle(1)))
        assert table["n"].cbytes < table.cbytes
        assert sum(table[name].cbytes for name in table.columns) == table.cbytes


def test_filters_and_single_rows_of_bundles(store):
    rows = pa.table({"a": range(4000), "b": [f"word {n}" for n in range(4000)]})
    blz.to_blz(
        rows, store, mode="w", storage=blz.Storage(row_group_rows=1000), durability="process"
    )
    assert len(files(store, layout.BUNDLES)) == 5
    with blz.open(store) as table:
        assert table.to_arrow(filters=pc.field("a") == 2345) == rows.slice(2345, 1)
        assert table.to_arrow(filters=pc.field("b") == "word 77") == rows.slice(77, 1)
        chosen = [0, 3999, 17, 1000]
        assert table.take(chosen) == rows.take(chosen)
        assert table.count(filters=pc.field("a") < 1500) == 1500


def test_columns_with_pages_of_the_callers_size_have_files_of_their_own(store):
    blz.to_blz(
        FIRST,
        store,
        mode="w",
        storage=blz.Storage(columns={"s": blz.Storage(page_rows=8), "d": blz.Storage(page_rows=8)}),
        durability="process",
    )
    assert files(store, layout.BUNDLES) == {bundle(1), bundle(2)}
    assert len(files(store)) == 4
    assert_holds(store, FIRST)


def test_large_columns_of_a_small_row_group_have_files_of_their_own(store):
    """A bundle is compressed for columns that are read by themselves."""
    rows = 20_000
    table = pa.table({f"c{n}": np.arange(rows, dtype="u1") for n in range(40)})
    table = table.append_column("large", pa.array([f"{n:060}" for n in range(rows)]))
    blz.to_blz(table, store, mode="w", durability="process")
    assert files(store, layout.BUNDLES) == {bundle(1), bundle(2)}
    assert len(files(store)) == 3
    assert blz.read_table(store) == table


def test_a_dictionary_of_many_bytes_has_a_file_of_its_own(store):
    words = pa.array([f"{n:0200}" for n in range(8000)])
    table = pa.table({"d": pa.DictionaryArray.from_arrays([0, 1, 7999], words), "n": [1, 2, 3]})
    blz.to_blz(table, store, mode="w", durability="process")
    assert len(files(store)) == 3
    assert_holds(store, table)


def test_streams_with_other_options_are_compressed_by_themselves(store):
    table = pa.table({name: np.arange(3000) % 1000 // 8 for name in "abcd"})
    blz.to_blz(
        table,
        store,
        mode="w",
        storage=blz.Storage(
            columns={
                "a": blz.Storage(compression="zstd"),
                "b": blz.Storage(compression="lz4hc"),
                "c": blz.Storage(shuffle="none"),
            }
        ),
        durability="process",
    )
    with blz.open(store) as opened:
        codecs = [opened[name].streams()[0].codecs for name in "abcd"]
        assert opened.to_arrow() == table
    assert codecs == [("zstd, bit",), ("lz4, bit",), ("lz4",), ("lz4, bit",)]


def test_columns_alike_with_other_options_are_compressed_by_themselves(store):
    """Columns of one type are encoded together, but only those with the same options."""
    table = pa.table({f"c{n}": np.arange(3000) % 1000 // 8 for n in range(60)})
    codecs = {f"c{n}": "zstd" for n in range(0, 60, 3)}
    blz.to_blz(table, store, mode="w", durability="process", storage=storage_of(compression=codecs))
    with blz.open(store) as opened:
        found = {name: opened[name].streams()[0].codecs[0] for name in table.column_names}
        assert opened.to_arrow() == table
    assert {name: one.split(",")[0] for name, one in found.items()} == {
        name: codecs.get(name, "lz4") for name in table.column_names
    }


@pytest.mark.parametrize("has_nulls", [False, True])
def test_a_write_of_large_bundles_holds_about_two_row_groups(tmp_path, tuned, has_nulls):
    tuned(large_bundle_bytes=1 << 20)
    rng, group = np.random.default_rng(0), 200 * 4000 * 8
    mask = np.arange(4000) == 7 if has_nulls else None

    def groups():
        for _ in range(6):
            columns = (pa.array(rng.random(4000), mask=mask) for _ in range(200))
            yield pa.table({f"c{number}": column for number, column in enumerate(columns)})

    # What is imported at the first write is no memory of a row group.
    blz.to_blz(
        groups(),
        tmp_path / "first.blz",
        storage=blz.Storage(row_group_rows=4000),
        durability="process",
    )
    tracemalloc.start()
    try:
        blz.to_blz(
            groups(),
            tmp_path / "t.blz",
            storage=blz.Storage(row_group_rows=4000),
            durability="process",
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The generator makes one more.
    assert peak < 3.6 * group


def test_all_chunks_of_codes_have_their_bits_shuffled(store):
    """Blosc shuffles whole units of bits alone, so each chunk is filled up."""
    rows = np.arange(3001) % 1000 // 8
    table = pa.table({f"c{n}": rows * 300 + n for n in range(200)})
    storage = blz.Storage(compression="lz4", shuffle="bit")
    blz.to_blz(table, store, mode="w", storage=storage, durability="process")
    with blz.open(store) as opened:
        found = {codec for name in table.column_names for codec in opened[name].streams()[0].codecs}
    assert found == {"lz4, bit"}
    assert blz.read_table(store) == table


@pytest.mark.parametrize("columns", [2, 3, 40])
def test_a_bundle_says_the_parts_in_the_order_of_the_columns(columns, tuned):
    tuned(write_task_bytes=1 << 12)
    rng = np.random.default_rng(5)
    table = pa.table(
        {
            **{f"f{n}": np.round(rng.normal(size=60), 2) for n in range(columns)},
            **{f"i{n}": [None if row % 9 < n else row for row in range(60)] for n in range(9)},
            **{f"s{n}": [f"{n}"] * 60 for n in range(3)},
            "n": pa.nulls(60),
            "l": [[1] * n for n in range(60)],
        }
    )
    store = RamStore()
    blz.to_blz(table, store)
    assert files(store) == {bundle(1)}
    file = DataFile.decode(store.get(bundle(1)))
    version = newest(store)
    assert file.nodes == tuple(path for path in version.paths if path != (columns + 12,))
    lines = [line for line, path in enumerate(version.paths) if path in file.nodes]
    for said, known in zip(file.records.arrays, version.records(lines).arrays, strict=True):
        assert np.array_equal(said, known)
    assert_holds(store, table)
