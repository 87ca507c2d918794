"""An array is the old one or the new one, wherever power is lost while it is changed in place."""

import functools

import numpy as np
import pytest

import blztable as blz
from blztable.storage.files import MemoryFile
from support.bloscpack_reference import import_bloscpack
from support.crash.in_place import RecordedFile, crash_states

VALUES = np.arange(400).reshape(100, 4) * 1.5
NOISE = np.random.default_rng(3).normal(size=(300, 4))


@functools.cache
def finished(checksum, expected, order):
    """Return the bytes of an array before it is changed."""
    file = MemoryFile()
    # A pipe does not know how many rows to expect.
    file.is_sequential = expected is None
    options = {"checksum": checksum, "expectedlen": expected, "order": order}
    with blz.SuperChunk.create(
        file, "f8", (0, 4), chunk_shape=(30, 4), reserve=500, meta={"pet": b"cat"}, **options
    ) as array:
        array.append(VALUES)
        array.vlmeta["note"] = b"x" * 900
        array.attrs["unit"] = "mm"
    return file.read(0, file.size)


def state(data):
    """Return all that a reader sees."""
    with blz.SuperChunk.open(bytes(data)) as array:
        assert array.verify()
        facts = dict(array.meta), dict(array.vlmeta), dict(array.attrs)
        return array.to_numpy().tolist(), *facts


CHANGES = {
    "an assignment": lambda array: array.__setitem__(slice(20, 70), 7.25),
    "a chunk": lambda array: array.update_chunk(1, VALUES[:30]),
    "rows for the last chunk": lambda array: array.append(VALUES[:5]),
    "rows for many chunks": lambda array: array.append(NOISE),
    "fewer rows": lambda array: array.resize(31),
    "no rows": lambda array: array.resize(0),
    "rows of zeros": lambda array: array.resize(200),
    "a fixed metalayer": lambda array: array.meta.update("pet", b"dog"),
    "a longer metalayer": lambda array: array.vlmeta.update("note", NOISE.tobytes()),
    "a shorter metalayer": lambda array: array.vlmeta.update("note", b""),
    "a new metalayer": lambda array: array.vlmeta.add("more", b"y"),
    "a removed metalayer": lambda array: array.vlmeta.delete("note"),
    "an attribute": lambda array: array.attrs.update(unit="m"),
    "all of it": lambda array: array.rewrite(reserve=0),
}
FORMS = {
    "bloscpack": ("crc32", 400, "C"),
    "version 4": ("sha1", 120, "F"),
    "full": ("md5", 120, "C"),
    "stream": ("crc32", None, "C"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("change", CHANGES)
def test_power_lost_anywhere_leaves_the_old_array_or_the_new_one(change, form):
    before = finished(*FORMS[form])
    old = state(before)
    file = RecordedFile(before)
    array = blz.SuperChunk.open(file, "a")
    CHANGES[change](array)
    # The change is durable when the call returns, so the handle is not closed.
    after = file.read(0, file.size)
    new = state(after)
    outcomes = set()
    for data in crash_states(before, file.log, seed=7):
        found = state(data)
        assert found in (old, new)
        outcomes.add("new" if found == new else "old")
        with blz.SuperChunk.open(MemoryFile(data), "a") as again:
            again.append(VALUES[:3])
            expected = [*found[0], *VALUES[:3].tolist()]
            assert again.to_numpy().tolist() == expected
    assert outcomes == ({"old", "new"} if new != old else {"new"})
    if form == "bloscpack" and after[4] == 3:
        real = import_bloscpack().unpack_ndarray_from_bytes(after)
        assert real.tolist() == new[0]


ITEM_CHANGES = {
    "an item in its place": lambda array: array.__setitem__(3, "D" * 300),
    "a longer item": lambda array: array.__setitem__(1, NOISE.tobytes().hex()[:5000]),
    "a shorter item": lambda array: array.__setitem__(4, ""),
    "the last item": lambda array: array.update_chunk(9, ["x" * 70]),
    "several items": lambda array: array.__setitem__(slice(0, 9, 4), ["a", "b" * 900, "c"]),
}


@pytest.mark.parametrize("checksum", ["crc32", "sha1"])
@pytest.mark.parametrize("change", ITEM_CHANGES)
def test_power_lost_while_items_of_any_length_change_leaves_the_old_ones_or_the_new(
    change, checksum
):
    file = MemoryFile()
    with blz.SuperChunk.create(file, "str", checksum=checksum, clevel=0) as array:
        array.append([letter * 300 for letter in "abcdefghij"])
    before = file.read(0, file.size)
    old = state(before)
    file = RecordedFile(before)
    ITEM_CHANGES[change](blz.SuperChunk.open(file, "a"))
    new = state(file.read(0, file.size))
    assert new != old
    outcomes = set()
    for data in crash_states(before, file.log, seed=7):
        found = state(data)
        assert found in (old, new)
        outcomes.add("new" if found == new else "old")
        with blz.SuperChunk.open(MemoryFile(data), "a") as again:
            again[2] = "changed again"
            assert again[:3].tolist() == [*found[0][:2], "changed again"]
    assert outcomes == {"old", "new"}


def test_a_crash_while_a_file_is_finished_leaves_an_unfinished_one_or_the_array():
    file = RecordedFile()
    array = blz.SuperChunk.create(file, "f8", (0, 4), chunk_shape=(30, 4))
    array.append(VALUES)
    array.close()
    outcomes = set()
    for data in crash_states(b"", file.log, seed=7):
        try:
            array = blz.SuperChunk.open(data)
        except (blz.CorruptError, blz.FormatError):
            assert data[4:5] in (b"", b"\0", b"\xff")
            outcomes.add("unfinished")
        else:
            assert np.array_equal(array, VALUES)
            outcomes.add("finished")
    assert outcomes == {"finished", "unfinished"}


def test_a_failed_write_closes_the_array_and_the_next_one_finishes_it():
    before = finished(*FORMS["bloscpack"])

    class Full(MemoryFile):
        room = 3

        def write(self, at, data):
            self.room -= 1
            if not self.room:
                raise blz.StorageError(28, "no space left")
            super().write(at, data)

    file = Full(before)
    array = blz.SuperChunk.open(file, "a")
    with pytest.raises(blz.StorageError):
        array.append(NOISE)
    with pytest.raises(blz.ClosedError):
        array.append(NOISE)
    assert state(file.read(0, file.size)) == state(before)


def test_a_change_that_could_not_be_written_leaves_a_new_file_unfinished():
    class Full(MemoryFile):
        is_full = False

        def write(self, at, data):
            if self.is_full:
                raise blz.StorageError(28, "no space left")
            super().write(at, data)

    file = Full()
    array = blz.SuperChunk.create(file, "i8", chunk_shape=(10,))
    array.append(range(30))
    file.is_full = True
    with pytest.raises(blz.StorageError):
        array[:20] = 0
    file.is_full = False
    array.close()
    with pytest.raises(blz.CorruptError, match="never finished"):
        blz.SuperChunk.open(file.read(0, file.size))


def test_rows_that_could_not_be_written_leave_a_new_file_unfinished():
    class Full(MemoryFile):
        def write(self, at, data):
            if len(data) > 20_000:
                raise blz.StorageError(28, "no space left")
            super().write(at, data)

    file = Full()
    array = blz.SuperChunk.create(file, "f8")
    with pytest.raises(blz.StorageError):
        array.append(NOISE.reshape(-1).repeat(200) * np.arange(240_000))
    array.close()
    with pytest.raises(blz.CorruptError, match="never finished"):
        blz.SuperChunk.open(file.read(0, file.size))
