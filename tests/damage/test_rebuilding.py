"""Leaves that are lost are made again from the data files, to the byte, or the files are told."""

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz

TABLE = pa.table(
    {
        "n": pa.array(range(400)),
        "text": [str(row) * (row % 7) for row in range(400)],
        "none": pa.nulls(400),
        "float": pa.array([None if row % 5 == 0 else row / 8 for row in range(400)]),
        "list": [{"x": row, "y": [row] * (row % 3)} for row in range(400)],
    }
)


def leaves(path):
    return sorted((path / "meta" / "leaf").glob("*"))


def write(path, table=TABLE, **options):
    blz.to_blz(table, path, storage=blz.Storage(row_group_rows=10, **options))
    assert leaves(path)
    return blz.read_table(path)


def damages(path):
    """Yield each way to lose a leaf, and restore it."""
    for leaf in leaves(path):
        data = leaf.read_bytes()
        leaf.unlink()
        yield leaf, data
        for position in (70, len(data) // 2):
            broken = bytearray(data)
            broken[position] ^= 1
            leaf.write_bytes(broken)
            yield leaf, data
        leaf.write_bytes(data)


@pytest.mark.parametrize("encoding", ["auto", "plain"])
def test_a_lost_leaf_is_repaired_to_the_byte(tmp_path, encoding):
    path = tmp_path / "t.blz"
    expected = write(path, encoding=encoding)
    for leaf, data in damages(path):
        with blz.open(path, "a") as table:
            done = table.repair()
            assert table.to_arrow() == expected
            assert table.verify().is_intact
        assert (done.version, done.lost) == (1, ())
        assert "rebuilt from the data files: rows 0 to 320" in done.rebuilt[0]
        assert done.rebuilt[0] in str(done)
        assert leaf.read_bytes() == data


def test_a_table_without_its_leaves_is_copied(tmp_path):
    path = tmp_path / "t.blz"
    expected = write(path)
    for leaf in leaves(path):
        leaf.unlink()
    with pytest.raises(blz.CorruptError, match="the leaf is missing"):
        blz.copy(path, tmp_path / "strict.blz")
    done = blz.copy(path, tmp_path / "copy.blz", on_corrupt="skip")
    assert (done.rows, done.lost, len(done.rebuilt)) == (400, (), 1)
    assert blz.read_table(tmp_path / "copy.blz") == expected
    assert not leaves(path)


def test_leaves_of_many_appends_are_rebuilt(tmp_path):
    path = tmp_path / "t.blz"
    part = TABLE.slice(0, 10)
    blz.to_blz(part, path, storage=blz.Storage(row_group_rows=10))
    for _ in range(75):
        blz.to_blz(part, path, mode="a")
    expected = blz.read_table(path)
    lost = leaves(path)
    assert len(lost) > 1
    for leaf in lost:
        leaf.unlink()
    with blz.open(path, "a") as table:
        assert len(table.repair().rebuilt) == len(lost)
        assert table.to_arrow() == expected
        assert table.verify().is_intact
    assert leaves(path) == lost


def test_a_leaf_of_leaves_is_rebuilt_of_those_below(tmp_path):
    path = tmp_path / "t.blz"
    with blz.tuning.tuned(leaf_entries=3):
        expected = write(path, TABLE.slice(0, 130))
        # Four leaves of row groups, and one of three of them.
        assert len(leaves(path)) == 5
        for leaf, data in damages(path):
            with blz.open(path, "a") as table:
                assert len(table.repair().rebuilt) == 1
                assert table.to_arrow() == expected
            assert leaf.read_bytes() == data


def test_a_leaf_with_deleted_rows_is_not_made_up(tmp_path):
    path = tmp_path / "t.blz"
    with blz.tuning.tuned(leaf_entries=2):
        blz.to_blz(TABLE, path, storage=blz.Storage(row_group_rows=100))
        with blz.open(path, "a") as table:
            table.delete([("n", "in", [3, 250])])
            assert table._snapshot.version.deleted_rows == 2
    for leaf in leaves(path):
        leaf.unlink()
    with blz.open(path, "a") as table, pytest.raises(blz.CorruptError, match="cannot be rebuilt"):
        table.repair()


def test_what_other_versions_say_is_used(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz(TABLE.slice(0, 100), path, storage=blz.Storage(row_group_rows=100))
    with blz.tuning.tuned(leaf_entries=2), blz.open(path, "a") as table:
        table.delete([("n", "=", 3)])
        assert table._snapshot.version.deleted_rows == 1
        assert not leaves(path)
        table.append(TABLE.slice(100, 100))
        expected = table.to_arrow()
    for leaf in leaves(path):
        leaf.unlink()
    with blz.open(path, "a") as table:
        assert len(table.repair().rebuilt) == 1
        assert table.to_arrow() == expected


def test_what_cannot_be_rebuilt_names_the_columns_and_rows_of_the_files(tmp_path):
    path = tmp_path / "t.blz"
    write(path, encoding="plain")
    files(path)[0].unlink()
    for leaf in leaves(path):
        leaf.unlink()
    message = r"rows 0 to 320 is lost, and cannot be rebuilt.*'n' has 390 rows \(<i8\) in 39 files"
    with blz.open(path, "a") as table, pytest.raises(blz.CorruptError, match=message):
        table.repair()
    with pytest.raises(blz.CorruptError, match=message):
        blz.copy(path, tmp_path / "copy.blz", on_corrupt="skip")


def test_columns_without_a_schema_are_told(tmp_path):
    path = tmp_path / "t.blz"
    write(path, encoding="plain")
    for manifest in (path / "meta" / "manifest").iterdir():
        manifest.unlink()
    message = r"column 0 has 400 rows \(<i8\) in 40 files, data/col0/__\d+__\.bin; column 1 has 400"
    with pytest.raises(blz.CorruptError, match=message):
        blz.copy(path, tmp_path / "copy.blz", on_corrupt="skip")
    # And each can be read.
    with blz.SuperChunk.open(files(path)[0]) as part:
        assert np.array_equal(part, np.arange(10))


def test_files_of_another_order_are_no_leaf(tmp_path):
    path = tmp_path / "t.blz"
    write(path, encoding="plain")
    first, second = files(path)[:2]
    data = first.read_bytes(), second.read_bytes()
    first.write_bytes(data[1])
    second.write_bytes(data[0])
    for leaf in leaves(path):
        leaf.unlink()
    with blz.open(path, "a") as table, pytest.raises(blz.CorruptError, match="cannot be rebuilt"):
        table.repair()


def files(path):
    """Return the data files of the first column, in the order of their numbers."""
    found = (path / "data" / "col0").iterdir()
    return sorted(found, key=lambda file: int(file.name.removesuffix(".bin").strip("_")))
