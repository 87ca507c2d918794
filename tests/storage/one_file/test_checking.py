"""`verify` of a table in one file finds damage that no reader looks at."""

import pyarrow as pa
import pytest

import blztable as blz
from blztable.storage.one_file import records
from support.bit_equality import same_table

TABLE = pa.table({"n": range(300), "text": [str(n) * 9 for n in range(300)]})


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz(
        TABLE, path, storage=blz.Storage(layout="file", row_group_rows=150, encoding="plain")
    )
    return path


def heads(path) -> dict[str, tuple[int, int]]:
    """Return where the head and the key of each value begin and end."""
    with blz.open(path) as table:
        listing = table._snapshot.version.store._current().listing
        return {
            key: (place.position - records.record_bytes(key, 0), place.position)
            for key, place in listing.values()
        }


def problems(path):
    with blz.open(path) as table:
        report = table.verify()
        assert same_table(table.to_arrow(), TABLE)
        # Nothing of it is lost.
        assert report.intact_rows() == ((0, 300),)
        return [(one.file, one.is_readable) for one in report.problems]


def test_each_byte_of_the_heads_of_records_is_compared(path):
    data = path.read_bytes()
    assert problems(path) == []
    places = []
    for key, (start, stop) in heads(path).items():
        # The foot covers the record of the manifest.
        if key.startswith("data"):
            places += [(position, key) for position in range(start, stop, 3)]
    assert len(places) > 40
    for position, key in places:
        changed = bytearray(data)
        changed[position] ^= 0x10
        path.write_bytes(changed)
        assert problems(path) == [(key, True)], position
    path.write_bytes(data)
    assert problems(path) == []


def test_the_head_of_another_value_is_told(path):
    key, (start, stop) = next(one for one in heads(path).items() if "col0" in one[0])
    data = bytearray(path.read_bytes())
    crc = int.from_bytes(data[start + 24 : start + 28], "little")
    length = int.from_bytes(data[start + 16 : start + 24], "little")
    other = records.record_head(start, key.replace("col0", "col9"), length, crc)
    data[start:stop] = b"".join(other)
    path.write_bytes(data)
    assert problems(path) == [(key, True)]


def test_only_a_full_check_looks(path):
    with blz.open(path) as table:
        key = table._snapshot.version.parts(0).key(1)
    start, _ = heads(path)[key]
    data = bytearray(path.read_bytes())
    data[start + 24] ^= 1
    path.write_bytes(data)
    with blz.open(path) as table:
        assert table.verify(full=False)
        (problem,) = table.verify().problems
        assert problem.file == key
        assert (problem.row_group, problem.start, problem.stop) == (1, 150, 300)


@pytest.mark.parametrize("is_bundled", [False, True])
def test_repair_writes_a_row_group_with_a_damaged_head_of_a_record_again(path, is_bundled):
    if is_bundled:
        blz.to_blz(TABLE, path, storage=blz.Storage(row_group_rows=150))
    key, (start, _) = [one for one in heads(path).items() if one[0].startswith("data")][-1]
    data = bytearray(path.read_bytes())
    data[start + 24] ^= 1
    path.write_bytes(data)
    with blz.open(path, "a") as table:
        assert [one.file for one in table.verify().problems] == [key]
        assert table.repair().lost == ()
        assert table.verify().is_intact
        assert same_table(table.to_arrow(), TABLE)


def test_a_damaged_value_is_told_by_its_record_too(path):
    with blz.open(path) as table:
        key = table._snapshot.version.parts(0).key(0)
    _, start = heads(path)[key]
    data = bytearray(path.read_bytes())
    data[start + 200] ^= 1
    path.write_bytes(data)
    with blz.open(path) as table:
        messages = [one.message for one in table.verify().problems]
    assert any("the record says" in one for one in messages)


def test_tables_that_changed_and_older_versions_are_intact(path):
    old = blz.open(path)
    with blz.open(path, "a") as table:
        table.append(TABLE)
        table.delete(where=[("n", "==", 3)])
        table.vacuum(keep=1)
        assert table.verify()
        assert old.verify()
    old.close()
    with blz.open(path) as table:
        assert table.verify()


def test_a_key_that_is_no_text_ends_the_records():
    data = b"".join(records.record_head(0, "key", 0, 0))
    assert records.decode_head(data, 0).key == "key"
    name = b"\xff\xff\xff"
    crc = records.crc32(name, records.crc32(data[:28])).to_bytes(4, "little")
    assert records.decode_head(data[:28] + crc + name, 0) is None
