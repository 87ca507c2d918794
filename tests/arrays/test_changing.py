"""Arrays that are changed: appended to, assigned, resized, rewritten; beside a numpy array."""

import io
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import blztable as blz
from support.bloscpack_reference import import_bloscpack

VALUES = np.arange(1000).reshape(250, 4) * 1.5


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.blp"
    with blz.SuperChunk.create(path, "f8", (0, 4), chunk_shape=(60, 4), reserve=2000) as array:
        array.append(VALUES)
    return path


def real(path):
    return import_bloscpack().unpack_ndarray_from_bytes(path.read_bytes())


def both(path):
    """Return the array as we read it, after comparing it with what the real program reads."""
    with blz.SuperChunk.open(path) as array:
        assert array.verify()
        found = array.to_numpy()
    assert np.array_equal(found, real(path))
    return found


def test_a_finished_array_is_appended_to(path):
    with blz.SuperChunk.open(path, "a") as array:
        for count in (1, 49, 0, 200):
            array.append(VALUES[:count])
    expected = np.vstack([VALUES, VALUES[:1], VALUES[:49], VALUES[:200]])
    assert np.array_equal(both(path), expected)


# Found by the fuzzer: rows that numpy had joined were written in the byte order of the machine.
@pytest.mark.parametrize("dtype", [">i4", ">f8", ">U2", [("a", ">i2"), ("b", "<f4")]])
def test_pieces_of_any_byte_order_are_appended(dtype):
    values = np.arange(20).astype("U2").astype(dtype) if dtype == ">U2" else np.zeros(20, dtype)
    if dtype != ">U2":
        values[...] = np.arange(20)
    file = io.BytesIO()
    with blz.SuperChunk.create(file, dtype, chunk_shape=(7,)) as array:
        for row in range(15):
            array.append(values[row : row + 1])
    with blz.SuperChunk.open(file, "a") as array:
        array.append(values[15:18])
        array.append(values[18:])
    assert np.array_equal(blz.SuperChunk.open(file.getvalue()), values)


@pytest.mark.parametrize("rows", [0, 1, 59, 60, 240, 249, 250, 251, 500])
def test_an_array_is_cut_and_enlarged(path, rows):
    with blz.SuperChunk.open(path, "a") as array:
        array.resize(rows)
    expected = np.vstack([VALUES, np.zeros((250, 4))])[:rows]
    assert np.array_equal(both(path), expected)


@pytest.mark.parametrize("is_new", [True, False])
def test_an_array_that_cannot_be_kept_is_refused_before_anything_is_written(is_new, monkeypatch):
    file = io.BytesIO()
    array = blz.SuperChunk.create(file, "i8", chunk_shape=(1000,))
    array.append(range(1500))
    if not is_new:
        array.close()
        array = blz.SuperChunk.open(file, "a")
    for rows in (1 << 40, 1 << 60, 1 << 80):
        with pytest.raises(blz.LimitError, match=r"at most \d+ (fit|items)"):
            array.resize(rows)
    for wrong in (2.5, "3", None):
        with pytest.raises(TypeError):
            array.resize(wrong)
    if not is_new:
        monkeypatch.setattr("os.sysconf", lambda name: 1000)
        with pytest.raises(blz.LimitError, match="the machine has 1000000;"):
            array.resize(1_000_000_000)
        monkeypatch.undo()
    array.append(range(3))
    array.close()
    found = blz.SuperChunk.open(file.getvalue())
    assert found[1498:].tolist() == [1498, 1499, 0, 1, 2]


@pytest.mark.parametrize("is_new", [True, False])
def test_rows_without_items_are_added_at_once_however_many(is_new):
    file = io.BytesIO()
    array = blz.SuperChunk.create(file, "i8", (0, 0))
    if not is_new:
        array.close()
        array = blz.SuperChunk.open(file, "a")
    array.resize(1 << 55)
    array.append(np.empty((5, 0)))
    array.rewrite()
    array.close()
    assert blz.SuperChunk.open(file.getvalue()).shape == ((1 << 55) + 5, 0)


def test_a_rewrite_keeps_few_bytes_among_many_empty_items():
    with blz.SuperChunk.create(None, "str") as array:
        array.append(["", "", "a", ""])
        array.rewrite()
        assert array[:].tolist() == ["", "", "a", ""]
        with pytest.raises(ValueError, match="expectedlen is -1"):
            array.rewrite(expectedlen=-1)


@pytest.mark.parametrize(
    "key",
    [
        7,
        -1,
        slice(10, 200, 3),
        (slice(None), 2),
        (..., slice(1, 3)),
        [3, 100, 5],
        slice(0),
        (slice(100, 30, -7), [0, 3]),
        np.arange(250) % 9 == 0,
        (249, 3),
        slice(None),
    ],
    ids=str,
)
def test_values_are_assigned_in_place(path, key):
    size = path.stat().st_size
    expected = VALUES.copy()
    expected[key] = expected[key] * 3 + 1
    with blz.SuperChunk.open(path, "a") as array:
        array[key] = expected[key]
    assert np.array_equal(both(path), expected)
    # Only the last chunk may have become longer.
    assert abs(path.stat().st_size - size) < 4000


def test_values_are_broadcast_and_cast_without_loss(path):
    with blz.SuperChunk.open(path, "a") as array:
        array[5:8] = 1
        array[9] = [1, 2, 3, 4]
        assert array[5:8].tolist() == [[1] * 4] * 3
        with pytest.raises(ValueError, match="broadcast"):
            array[:2] = [1, 2, 3]
        with pytest.raises(blz.SchemaError):
            array[0] = "x"


def test_a_chunk_is_replaced_in_its_slot(path):
    with blz.SuperChunk.open(path, "a") as array:
        array.update_chunk(1, VALUES[:60] + 0.5)
        with pytest.raises(IndexError, match="chunk 5 of 5"):
            array.update_chunk(5, VALUES[:60])
        with pytest.raises(ValueError, match=r"chunk 4 has the shape \(10, 4\)"):
            array.update_chunk(4, VALUES[:60])
    expected = VALUES.copy()
    expected[60:120] = VALUES[:60] + 0.5
    assert np.array_equal(both(path), expected)


def test_what_does_not_fit_is_refused_and_nothing_changes(tmp_path):
    path = tmp_path / "a.blp"
    with blz.SuperChunk.create(path, "f8", chunk_shape=(100,)) as array:
        array.append(np.zeros(250))
    before = path.read_bytes()
    noise = np.random.default_rng(0).normal(size=250)
    with blz.SuperChunk.open(path, "a") as array:
        with pytest.raises(blz.LimitError, match=r"chunk 0 needs \d+ bytes, its slot has \d+"):
            array[:] = noise
        assert path.read_bytes() == before
        # The last chunk may grow, for nothing lies behind it.
        array[200:] = noise[200:]
        array.rewrite(reserve=10_000)
        array[:] = noise
    assert np.array_equal(both(path), noise)


def test_slack_lies_within_the_chunks_so_that_every_reader_takes_it(path, tmp_path):
    with blz.SuperChunk.create(tmp_path / "b.blp", "f8", (0, 4), chunk_shape=(60, 4)) as array:
        array.append(VALUES)
    slack = path.stat().st_size - (tmp_path / "b.blp").stat().st_size
    # A chunk has at most 16 bytes more than its items.
    assert 1000 < slack < 5 * 2000
    assert np.array_equal(real(path), real(tmp_path / "b.blp"))


def test_a_share_is_reserved_as_well():
    sizes = []
    for reserve in (0, 0.5):
        file = io.BytesIO()
        with blz.SuperChunk.create(file, "i4", chunk_shape=(1000,), reserve=reserve) as array:
            array.append(np.arange(5000) % 600)
        sizes.append(len(file.getvalue()))
    assert sizes[1] > sizes[0] * 1.05


def test_offsets_move_to_the_trailer_if_the_front_has_no_room_and_back(tmp_path):
    path = tmp_path / "a.blp"
    with blz.SuperChunk.create(path, "i4", chunk_shape=(3,), expectedlen=6) as array:
        array.append(range(6))
    assert np.array_equal(both(path), range(6))
    with blz.SuperChunk.open(path, "a") as array:
        array.append(range(6, 100))
        array.append([100])
    assert path.read_bytes()[4:6] == b"\x04\x02"
    with blz.SuperChunk.open(path, "a") as array:
        assert np.array_equal(array, range(101))
        assert array.verify()
        array.rewrite(expectedlen=1000)
    assert path.read_bytes()[4:6] == b"\x03\x03"
    assert np.array_equal(both(path), range(101))
    assert [name.name for name in tmp_path.iterdir()] == ["a.blp"]


def test_rewriting_keeps_the_rest(path):
    with blz.SuperChunk.open(path, "a") as array:
        array.attrs["unit"] = "mm"
        array.vlmeta["note"] = b"x" * 1000
        array.rewrite(reserve=0)
        array.append(VALUES)
    with blz.SuperChunk.open(path) as array:
        assert dict(array.attrs) == {"unit": "mm"}
        assert dict(array.vlmeta) == {"note": b"x" * 1000}
        assert np.array_equal(array, np.vstack([VALUES, VALUES]))


def test_a_reader_and_a_writer_wait_for_each_other(path, tuned):
    tuned(array_lock_seconds=0.05)
    with blz.SuperChunk.open(path), blz.SuperChunk.open(path), pytest.raises(blz.BusyError):
        blz.SuperChunk.open(path, "a")
    with blz.SuperChunk.open(path, "a") as array:
        with pytest.raises(blz.BusyError):
            blz.SuperChunk.open(path)
        array.rewrite()
        with pytest.raises(blz.BusyError):
            blz.SuperChunk.open(path)
    tuned(array_lock_seconds=10)
    writer = blz.SuperChunk.open(path, "a")
    threading.Timer(0.05, writer.close).start()
    with blz.SuperChunk.open(path) as array:
        assert len(array) == 250


def test_an_array_opened_for_reading_is_not_changed(path):
    with blz.SuperChunk.open(path) as array:
        for change in (
            lambda: array.append(VALUES),
            lambda: array.resize(3),
            lambda: array.rewrite(),
            lambda: array.update_chunk(0, VALUES[:60]),
            lambda: array.__setitem__(0, 1),
            lambda: array.attrs.update(a=1),
            lambda: array.vlmeta.add("a", b""),
        ):
            with pytest.raises(blz.ReadOnlyError, match="opened for reading"):
                change()
    with pytest.raises(ValueError, match="mode is 'w'"):
        blz.SuperChunk.open(path, "w")
    with (
        pytest.raises(ValueError, match="cannot have -1 rows"),
        blz.SuperChunk.open(path, "a") as array,
    ):
        array.resize(-1)


ITEMS = ["one", "", "a text of some length " * 50, "four", "five " * 400]


def of_items(kind="str", **options):
    file = io.BytesIO()
    with blz.SuperChunk.create(file, kind, **options) as array:
        array.append(ITEMS if kind == "str" else [item.encode() for item in ITEMS])
    return file


# Shorter, longer and as long, so some keep their place and others move what is behind them.
@pytest.mark.parametrize("new", ["", "x", "an item " * 3000, "\0\0", "three"])
@pytest.mark.parametrize("kind", ["str", "bytes"])
@pytest.mark.parametrize("number", range(len(ITEMS)))
def test_an_item_of_any_length_is_replaced_by_one_of_another_length(kind, number, new):
    file = of_items(kind, checksum="sha1", reserve=20)
    expected = list(ITEMS)
    expected[number] = new
    if kind == "bytes":
        new, expected = new.encode(), [item.encode() for item in expected]
    with blz.SuperChunk.open(file, "a") as array:
        array[number] = new
        assert array[:].tolist() == expected
    with blz.SuperChunk.open(file.getvalue()) as array:
        assert array[:].tolist() == expected
        assert array.verify()


def test_items_are_assigned_by_every_index():
    expected = np.array(ITEMS, object)
    with blz.SuperChunk.open(of_items(), "a") as array:
        for key, values in [
            (slice(1, 4), ["b" * 90, "c", "d"]),
            (slice(None, None, -2), ["x", "y" * 70, "z"]),
            ([4, 0, 4], ["lost", "first " * 30, "last"]),
            (np.array([True, False, False, True, False]), "everywhere"),
            (-1, "end"),
            (slice(2, 2), []),
        ]:
            array[key] = values
            expected[key] = values
            assert array[:].tolist() == expected.tolist(), key
        array.update_chunk(3, ["a chunk"])
        assert array[3] == "a chunk"


def test_items_that_fit_move_nothing_and_reserved_room_is_used():
    file = of_items(reserve=100)
    begun = file.getvalue()
    with blz.SuperChunk.open(file, "a") as array:
        array[2] = "a text of some length " * 49 + "and not another one"
    changed = file.getvalue()
    assert len(changed) == len(begun)
    with blz.SuperChunk.open(file, "a") as array:
        array[0] = "it takes more room " * 3
        array[3] = "it moves"
    assert len(file.getvalue()) > len(begun)


def test_items_that_cannot_be_kept_are_refused_and_nothing_changes():
    file = of_items()
    begun = file.getvalue()
    with blz.SuperChunk.open(file, "a") as array:
        for key, values in [(0, b"x"), (0, 1), (slice(0, 2), ["a", 1]), (1, "\udc80")]:
            with pytest.raises(blz.SchemaError):
                array[key] = values
        for key, values in [(slice(0, 2), ["a", "b", "c"]), (0, ["a", "b"])]:
            with pytest.raises(ValueError, match=r"broadcast|dimensions"):
                array[key] = values
        with pytest.raises(IndexError):
            array[5] = "x"
        with pytest.raises(ValueError, match="has the shape"):
            array.update_chunk(0, ["a", "b"])
    assert file.getvalue() == begun


def test_a_damaged_item_is_not_moved_under_a_new_checksum():
    file = of_items(clevel=0)
    data = bytearray(file.getvalue())
    data[data.index(b"four")] ^= 1
    with blz.SuperChunk.open(file := io.BytesIO(data), "a") as array:
        with pytest.raises(blz.CorruptError, match="chunk 3"):
            array[1] = "it moves those behind it"
        array[3] = "FOUR"
        array[1] = "it moves those behind it"
    with blz.SuperChunk.open(file.getvalue()) as array:
        assert array[1:4].tolist() == ["it moves those behind it", ITEMS[2], "FOUR"]


def test_a_new_array_that_became_shorter_has_no_bytes_behind_its_end():
    file, plain = io.BytesIO(), io.BytesIO()
    with blz.SuperChunk.create(file, "i8") as array:
        array.append(np.random.default_rng(0).integers(0, 1 << 60, 1000))
        array[:] = 0
    with blz.SuperChunk.create(plain, "i8") as array:
        array.append(np.zeros(1000, "i8"))
    assert file.getvalue() == plain.getvalue()


def test_attributes_are_json(path):
    with blz.SuperChunk.open(path, "a") as array:
        array.attrs["a"] = {"b": [1, None, "é"]}
        del array.attrs["a"]
        array.attrs["c"] = 1.5
        for wrong in (object(), b"x"):
            with pytest.raises(TypeError):
                array.attrs["d"] = wrong
        with pytest.raises(ValueError, match="JSON"):
            array.attrs["d"] = float("nan")
        with pytest.raises(KeyError):
            del array.attrs["e"]
        array.attrs["g"] = [1]
        array.attrs["g"].append(2)
        assert array.attrs.pop("g") == [1]
        array.attrs.update({"e": 1}, f=2)
        assert dict(array.attrs) == {"c": 1.5, "e": 1, "f": 2}
        array.attrs.clear()
        array.attrs["c"] = 1.5
    with blz.SuperChunk.open(path) as array:
        assert dict(array.attrs) == {"c": 1.5}


class Beside(RuleBasedStateMachine):
    """An array in a file, and the same array in memory."""

    @initialize(
        chunk=st.tuples(st.integers(1, 7), st.integers(1, 4)),
        order=st.sampled_from("CF"),
        checksum=st.sampled_from(["none", "adler32", "sha1"]),
        expected=st.sampled_from([None, 1, 20]),
    )
    def create(self, chunk, order, checksum, expected):
        self.file = io.BytesIO()
        self.values = np.empty((0, 3), "i4")
        options = {"order": order, "checksum": checksum, "expectedlen": expected}
        self.array = blz.SuperChunk.create(
            self.file, "i4", (0, 3), chunk_shape=chunk, reserve=1000, **options
        )

    @rule(rows=st.integers(0, 20), start=st.integers(0, 1 << 30))
    def append(self, rows, start):
        values = (np.arange(rows * 3, dtype="i4") * 7919 + start).reshape(rows, 3)
        self.array.append(values)
        self.values = np.vstack([self.values, values])

    @rule(cut=st.slices(40), column=st.slices(3), value=st.integers(0, 1 << 30))
    def assign(self, cut, column, value):
        values = np.arange(self.values[cut, column].size, dtype="i4") * 31 + value
        values = values.reshape(self.values[cut, column].shape)
        self.array[cut, column] = values
        self.values[cut, column] = values

    @rule(rows=st.integers(0, 40))
    def resize(self, rows):
        self.array.resize(rows)
        more = np.zeros((max(rows - len(self.values), 0), 3), "i4")
        self.values = np.vstack([self.values[:rows], more])

    @rule(rows=st.integers(0, 40))
    def rewrite(self, rows):
        self.array.rewrite(expectedlen=rows)

    @rule(mode=st.sampled_from("ra"))
    def reopen(self, mode):
        self.array.close()
        with blz.SuperChunk.open(self.file.getvalue()) as array:
            assert array.verify()
            assert np.array_equal(array, self.values)
        self.array = blz.SuperChunk.open(self.file, "a")

    @rule(cut=st.slices(40))
    def read(self, cut):
        assert np.array_equal(self.array[cut], self.values[cut])

    @invariant()
    def same_shape(self):
        assert self.array.shape == self.values.shape

    def teardown(self):
        if hasattr(self, "array"):
            assert np.array_equal(self.array, self.values)


class ItemsBeside(RuleBasedStateMachine):
    """Items of any length in a file, and the same items in a list."""

    @initialize(reserve=st.sampled_from([0, 0.5, 30]), expected=st.sampled_from([None, 2]))
    def create(self, reserve, expected):
        self.file = io.BytesIO()
        self.items = []
        self.array = blz.SuperChunk.create(
            self.file, "bytes", reserve=reserve, expectedlen=expected
        )

    @rule(items=st.lists(st.binary(max_size=40), max_size=4))
    def append(self, items):
        self.array.append(items)
        self.items += items

    @rule(cut=st.slices(12), draw=st.data(), times=st.sampled_from([1, 30]))
    def assign(self, cut, draw, times):
        count = len(self.items[cut])
        items = draw.draw(st.lists(st.binary(max_size=40), min_size=count, max_size=count))
        items = [item * times for item in items]
        self.array[cut] = items
        for number, item in zip(range(len(self.items))[cut], items, strict=True):
            self.items[number] = item

    @rule(rows=st.integers(0, 12))
    def resize(self, rows):
        self.array.resize(rows)
        self.items = (self.items + [b""] * rows)[:rows]

    @rule()
    def rewrite(self):
        self.array.rewrite()

    @rule()
    def reopen(self):
        self.array.close()
        with blz.SuperChunk.open(self.file.getvalue()) as array:
            assert array.verify()
            assert array[:].tolist() == self.items
        self.array = blz.SuperChunk.open(self.file, "a")

    @invariant()
    def same_items(self):
        assert self.array[:].tolist() == self.items


ItemsBeside.TestCase.settings = settings(max_examples=30, stateful_step_count=15, deadline=None)
TestItemsBesideAList = ItemsBeside.TestCase
Beside.TestCase.settings = settings(max_examples=30, stateful_step_count=15, deadline=None)
TestBesideANumpyArray = Beside.TestCase


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(1, 30))
def test_the_sizes_of_the_pieces_do_not_matter(sizes, rows):
    values = np.arange(sum(sizes), dtype="u2")
    file = io.BytesIO()
    with blz.SuperChunk.create(file, "u2", chunk_shape=(rows,)) as array:
        at = 0
        for size in sizes:
            array.append(values[at : at + size])
            at += size
    whole = io.BytesIO()
    with blz.SuperChunk.create(whole, "u2", chunk_shape=(rows,)) as array:
        array.append(values)
    assert file.getvalue() == whole.getvalue()
