"""`on_corrupt="skip"` returns all intact rows, and a warning names every skipped row."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.read import flat
from blztable.engine.version import versions
from blztable.format import layout
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from blztable.storage.store import KeyNotFound
from support import places
from support.bit_equality import same_table
from support.stores import Hooked

pytestmark = pytest.mark.usefixtures("own_files")

ROWS, GROUP = 40, 12
STARTS = list(range(0, ROWS, GROUP))
FRAME = pd.DataFrame(
    {
        "n": np.arange(ROWS) * 3,
        "x": pd.array([None, 1.5, 2.5, None] * 10, "Float64"),
        "text": [f"äö {row}" if row % 5 else None for row in range(ROWS)],
        "kind": pd.Categorical(["a", "b", None, "c"] * 10, ["c", "b", "a"], ordered=True),
        "when": pd.date_range("2026", periods=ROWS, unit="us"),
    }
)
INDICES = {
    "counted": pd.RangeIndex(ROWS),
    "stepping": pd.RangeIndex(100, 100 - 3 * ROWS, -3, name="i"),
    "text": pd.Index([f"row {row}" for row in range(ROWS)], name="key"),
    "days": pd.date_range("2026-01-01", periods=ROWS, name="day", tz="Europe/Berlin"),
    "two": pd.MultiIndex.from_product([range(4), list("abcdefghij")], names=["a", "b"]),
}


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """Make an undamaged table for each kind of index; tests damage copies of them."""
    root = tmp_path_factory.mktemp("intact")
    for name, index in INDICES.items():
        frame = FRAME.set_axis(index)
        frame.attrs = {"source": "till 7"}
        frame.to_blz(
            root / name,
            storage=blz.Storage(row_group_rows=GROUP, page_rows=8),
            durability="process",
        )
    return root


@pytest.fixture
def path(intact, tmp_path):
    return Path(shutil.copytree(intact / "counted", tmp_path / "t.blz"))


def flip(file, data, chunk):
    first, last = chunk
    at = (first + last) // 2
    file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def cut(file, data, chunk):
    file.write_bytes(data[:-5])


def empty(file, data, chunk):
    file.write_bytes(b"")


def remove(file, data, chunk):
    file.unlink()


def replace_by_a_directory(file, data, chunk):
    file.unlink()
    file.mkdir()


def replace_by_a_link(file, data, chunk):
    file.unlink()
    file.symlink_to("nowhere")


HOW = [flip, cut, empty, remove, replace_by_a_directory, replace_by_a_link]


def damage(path, column: int, group: int, how=flip) -> str:
    """Damage a part; return its name."""
    key, chunks = places.chunks_of(path, column, group)
    how(path / key, (path / key).read_bytes(), chunks[-1])
    return key


def caught_by(read):
    """Read, and return the data and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return read(), caught


def missing_rows(groups) -> list[list[int]]:
    return [[start, min(start + GROUP, ROWS)] for start in STARTS if start // GROUP in groups]


def kept_rows(groups) -> list[int]:
    return [row for row in range(ROWS) if row // GROUP not in groups]


def assert_warned(caught, path, reasons: dict[int, set[str]]) -> None:
    """Check for one warning a group, which has the rows and one of the damaged files."""
    assert len(caught) == len(reasons)
    for warning, (group, keys) in zip(caught, sorted(reasons.items()), strict=True):
        assert warning.category is UserWarning
        start, stop = group * GROUP, min((group + 1) * GROUP, ROWS)
        text = str(warning.message)
        assert text.startswith(f"rows {start} to {stop} are left out: {path}/")
        assert any(f"{path}/{key}, column " in text or f"{path}/{key} " in text for key in keys), (
            text
        )
        assert warning.filename == __file__


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_exactly_the_row_groups_that_are_damaged_in_a_column_asked_for_are_missing(intact, data):
    name = data.draw(st.sampled_from(list(INDICES)))
    frame = FRAME.set_axis(INDICES[name])
    with tempfile.TemporaryDirectory() as directory:
        path = Path(shutil.copytree(intact / name, f"{directory}/t.blz"))
        table = blz.read_table(path)
        columns = range(table.num_columns)
        places = st.tuples(st.sampled_from(columns), st.integers(0, 3))
        damaged = data.draw(st.sets(places, max_size=6) | st.just({(1, at) for at in range(4)}))
        keys = {place: damage(path, *place, data.draw(st.sampled_from(HOW))) for place in damaged}
        asked = data.draw(st.none() | st.lists(st.sampled_from(list(FRAME)), max_size=4))
        # Frames.
        names = list(FRAME) if asked is None else asked
        levels = [name for name in table.column_names if name not in FRAME]
        reasons = blamed(table, keys, [*names, *levels])
        with blz.open(path) as opened:
            for read in (
                lambda: blz.read_blz(path, columns=asked, on_corrupt="skip"),
                lambda: opened.to_pandas(asked, on_corrupt="skip"),
            ):
                found, caught = caught_by(read)
                assert_warned(caught, path, reasons)
                expected = frame[names].iloc[kept_rows(reasons)]
                pd.testing.assert_frame_equal(
                    found,
                    expected,
                    check_freq=False,
                    check_index_type="equiv",
                    # The labels are in the parts, and are lost with the last part.
                    check_categorical=len(expected) > 0,
                )
                rows = {"blz:missing_rows": missing_rows(reasons)} if reasons else {}
                assert found.attrs == {"source": "till 7", **rows}
            # Tables, whose columns include those of the index.
            names = table.column_names if asked is None else asked
            reasons = blamed(table, keys, names)
            for read in (
                lambda: blz.read_table(path, columns=asked, on_corrupt="skip"),
                lambda: opened.to_arrow(asked, on_corrupt="skip"),
            ):
                found, caught = caught_by(read)
                assert_warned(caught, path, reasons)
                expected = opened[names].schema if names else opened.to_arrow([]).schema
                metadata = dict(expected.metadata or {})
                if reasons:
                    metadata[b"blz:missing_rows"] = json.dumps(missing_rows(reasons)).encode()
                assert found.num_rows == len(kept_rows(reasons))
                if names:
                    whole = table.select(names).take(pa.array(kept_rows(reasons), "i8"))
                    whole = whole.replace_schema_metadata(metadata)
                    assert same_table(found, whole.cast(expected.with_metadata(metadata)))


def blamed(table, keys, names) -> dict[int, set[str]]:
    """Return the files that make each row group unreadable for a reader of these columns."""
    found: dict[int, set[str]] = {}
    for (column, group), key in keys.items():
        if table.column_names[column] in names:
            found.setdefault(group, set()).add(key)
    return found


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
def test_the_rows_of_a_shard_that_is_away_are_named_and_all_others_are_read(path, on_corrupt):
    key = damage(path, 1, 1, remove)
    words = f"{key}, column 'x': the file is missing; it has rows 12 to 24"
    if on_corrupt == "skip":
        with pytest.warns(UserWarning, match="rows 12 to 24 are left out: .*" + words):
            left = blz.read_table(path, on_corrupt="skip")
        assert left["n"].to_pylist() == [3 * row for row in range(ROWS) if not 12 <= row < 24]
        return
    with pytest.raises(blz.CorruptError, match=words) as raised:
        blz.read_table(path)
    assert raised.type is blz.CorruptError
    with blz.open(path) as t:
        assert t[:12].num_rows == 12
        assert t.take([30])["n"].to_pylist() == [90]
        assert t["n"].to_numpy().tolist() == FRAME["n"].tolist()
        with pytest.raises(blz.CorruptError, match=words):
            t.take([13])


def test_of_an_intact_table_nothing_is_said(path):
    with blz.open(path) as opened:
        for found in (blz.read_blz(path, on_corrupt="skip"), opened.to_pandas(on_corrupt="skip")):
            pd.testing.assert_frame_equal(found, FRAME, check_column_type=False)
            assert found.attrs == {"source": "till 7"}
            assert isinstance(found.index, pd.RangeIndex)
        for found in (blz.read_table(path, on_corrupt="skip"), opened.to_arrow(on_corrupt="skip")):
            assert same_table(found, blz.read_table(path))


def test_damage_in_columns_not_asked_for_costs_nothing(path):
    damage(path, 0, 1)
    damage(path, 2, 3, remove)
    found = blz.read_blz(path, columns=["x", "when"], on_corrupt="skip")
    pd.testing.assert_frame_equal(found, FRAME[["x", "when"]])
    assert "blz:missing_rows" not in found.attrs
    assert len(blz.read_blz(path, columns=[], on_corrupt="skip")) == ROWS


def test_a_damaged_index_costs_its_rows_in_a_frame_only(intact, tmp_path):
    path = Path(shutil.copytree(intact / "text", tmp_path / "t.blz"))
    key = damage(path, 5, 1)
    with pytest.warns(UserWarning, match=f"rows 12 to 24 are left out: .*{key}, column 'key'"):
        found = blz.read_blz(path, columns=["n"], on_corrupt="skip")
    assert found.index.to_list() == INDICES["text"][[*range(12), *range(24, 40)]].to_list()
    assert blz.read_table(path, columns=["n"], on_corrupt="skip").num_rows == ROWS


@pytest.mark.parametrize("name", INDICES)
def test_where_all_rows_are_lost_the_result_is_empty_and_of_the_right_type(intact, tmp_path, name):
    path = Path(shutil.copytree(intact / name, tmp_path / "t.blz"))
    for group in range(4):
        damage(path, group % 3, group, HOW[group])
    found, caught = caught_by(lambda: blz.read_blz(path, on_corrupt="skip"))
    assert len(caught) == 4
    assert found.attrs["blz:missing_rows"] == [[0, 12], [12, 24], [24, 36], [36, 40]]
    assert (len(found), list(found.columns)) == (0, list(FRAME))
    expected = FRAME.set_axis(INDICES[name])
    # Categories are in the parts, and are lost with them.
    assert list(map(str, found.dtypes)) == list(map(str, expected.dtypes))
    assert found.index.names == expected.index.names
    assert found.index.dtype == expected.index.dtype
    found, caught = caught_by(lambda: blz.read_table(path, on_corrupt="skip"))
    assert len(caught) == 4
    with blz.open(path) as opened:
        assert found.schema.equals(opened.schema)
    assert found.num_rows == 0
    assert json.loads(found.schema.metadata[b"blz:missing_rows"]) == missing_rows(range(4))


@pytest.mark.parametrize("name", INDICES)
def test_a_result_that_lacks_rows_can_be_written_and_read_again(intact, tmp_path, name):
    path = Path(shutil.copytree(intact / name, tmp_path / "t.blz"))
    damage(path, 1, 1)
    found, _ = caught_by(lambda: blz.read_blz(path, on_corrupt="skip"))
    found.to_blz(tmp_path / "frame.blz")
    again = blz.read_blz(tmp_path / "frame.blz", on_corrupt="skip")
    pd.testing.assert_frame_equal(again, found)
    assert again.attrs["blz:missing_rows"] == [[12, 24]]
    found, _ = caught_by(lambda: blz.read_table(path, on_corrupt="skip"))
    blz.to_blz(found, tmp_path / "table.blz")
    assert same_table(blz.read_table(tmp_path / "table.blz"), found)
    assert found.to_pandas().shape == (28, 5)


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_a_backend_of_dtypes_goes_with_it(path, backend):
    whole = blz.read_blz(path, dtype_backend=backend)
    damage(path, 0, 2, cut)
    found, caught = caught_by(lambda: blz.read_blz(path, dtype_backend=backend, on_corrupt="skip"))
    assert len(caught) == 1
    pd.testing.assert_frame_equal(found, whole.iloc[[*range(24), *range(36, 40)]])
    assert found.index.to_list() == [*range(24), *range(36, 40)]


def test_progress_ends_with_all_rows(path):
    damage(path, 0, 0)
    told = []
    with pytest.warns(UserWarning, match="rows 0 to 12"):
        blz.read_blz(path, on_corrupt="skip", progress=lambda done, rows: told.append((done, rows)))
    assert told[-1] == (ROWS, ROWS)
    assert all(done <= ROWS for done, _ in told)
    assert told == sorted(told)


# The place that the warning names


CALLERS = {
    "read_blz": "blz.read_blz(path, on_corrupt='skip')",
    "read_table": "blz.read_table(path, on_corrupt='skip')",
    "to_pandas": "blz.open(path).to_pandas(on_corrupt='skip')",
    "to_arrow": "blz.open(path).to_arrow(on_corrupt='skip')",
    "with progress": "blz.open(path).to_arrow(on_corrupt='skip', progress=print)",
}


@pytest.mark.parametrize("call", CALLERS.values(), ids=CALLERS)
def test_the_warning_is_at_the_callers_line(path, call):
    damage(path, 0, 0)
    code = compile("\n" * 76 + call, "a_users_script.py", "exec")
    _, caught = caught_by(lambda: exec(code, {"blz": blz, "path": path, "__name__": "__main__"}))
    assert [(one.filename, one.lineno) for one in caught] == [("a_users_script.py", 77)]


def test_every_warning_is_shown_by_default(path):
    for group in (0, 2):
        damage(path, 0, group)
    text = f"import blztable as blz\nblz.read_blz({str(path)!r}, on_corrupt='skip')\n"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True
    )
    assert [line for line in done.stderr.splitlines() if line.startswith("<string>:2: ")] == [
        line for line in done.stderr.splitlines() if "are left out" in line
    ]
    assert done.stderr.count("are left out") == 2


def test_a_warning_that_is_an_error_is_raised(path):
    damage(path, 0, 0)
    with pytest.raises(UserWarning, match="rows 0 to 12 are left out"):
        blz.read_blz(path, on_corrupt="skip")


# Errors that are not skipped


READS = {
    "read_blz": lambda path, **options: blz.read_blz(path, **options),
    "read_table": lambda path, **options: blz.read_table(path, **options),
    "to_pandas": lambda path, **options: blz.open(path).to_pandas(**options),
    "to_arrow": lambda path, **options: blz.open(path).to_arrow(**options),
}
every_read = pytest.mark.parametrize("read", READS.values(), ids=READS)


@every_read
def test_damage_is_raised_where_nobody_asked_to_skip_it(path, read):
    key = damage(path, 0, 1)
    for options in ({}, {"on_corrupt": "raise"}):
        with pytest.raises(blz.CorruptError, match=f"{key}, column 'n'"):
            read(path, **options)


@every_read
@pytest.mark.parametrize("word", ["ignore", "", None, True, "SKIP", b"skip", ["skip"]])
def test_another_word_is_told_before_anything_is_read(path, read, word):
    damage(path, 0, 0)
    with pytest.raises(
        ValueError, match="on_corrupt must be one of 'raise', 'skip', 'null', not "
    ) as caught:
        read(path, on_corrupt=word)
    assert not isinstance(caught.value, blz.BlzError)


@pytest.mark.parametrize("read", [blz.read_blz, blz.read_table])
def test_another_word_is_told_before_a_table_is_looked_for(tmp_path, read):
    with pytest.raises(ValueError, match="on_corrupt must be one of 'raise', 'skip', 'null'"):
        read(tmp_path / "none.blz", on_corrupt="ignore")


@every_read
def test_damaged_records_of_the_manifest_are_raised(path, read):
    manifest = path / layout.manifest(1)
    data = manifest.read_bytes()
    version, pinned = versions.pin(LocalStore(path))
    pinned.close()
    place = data.index(version.records([2]).parts.tobytes())
    manifest.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    with pytest.raises(blz.CorruptError, match=layout.manifest(1)):
        read(path, on_corrupt="skip")
    # A column with intact records is still read.
    assert len(read(path, columns=["n"], on_corrupt="skip")) == ROWS


class Failing:
    """A reader whose medium fails."""

    def __init__(self, reader, error):
        self._reader, self._error = reader, error
        self.size = reader.size

    def read(self, offset, length):
        raise self._error

    def read_into(self, offset, buffer):
        raise self._error

    def close(self):
        self._reader.close()


class FailingStore(LocalStore):
    """A directory in which reading one value fails."""

    key = ""
    error: Exception

    def open(self, key, size=None):
        reader = super().open(key)
        return Failing(reader, self.error) if key == self.key else reader


def test_what_the_medium_cannot_read_any_more_is_skipped(path):
    store = FailingStore(path)
    store.key = places.chunks_of(path, 0, 1)[0]
    store.error = blz.StorageError(errno.EIO, "Input/output error", f"{path}/{store.key}")
    with pytest.warns(UserWarning, match=r"rows 12 to 24 are left out: .*Input/output error"):
        found = blz.read_blz(store, on_corrupt="skip")
    assert found["n"].to_list() == [row * 3 for row in kept_rows([1])]
    with pytest.raises(blz.StorageError):
        blz.read_blz(store)


@pytest.mark.parametrize(
    "error",
    [
        blz.StorageError(errno.EACCES, "Permission denied"),
        blz.StorageError(errno.EMFILE, "Too many open files"),
        MemoryError("no more"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_says_nothing_of_the_file_is_raised(path, error):
    store = FailingStore(path)
    store.key, store.error = places.chunks_of(path, 0, 1)[0], error
    damage(path, 0, 0)
    with pytest.raises(type(error)) as caught:
        blz.read_blz(store, on_corrupt="skip")
    assert caught.value is error


def test_a_row_group_that_does_not_fit_into_memory_is_not_taken_for_damaged(path, monkeypatch):
    damage(path, 0, 0)
    monkeypatch.setattr("os.sysconf", lambda name: 8)
    monkeypatch.setattr(flat, "UNCHECKED_BYTES", 0)
    with pytest.raises(blz.LimitError, match="bytes of memory, and the machine has"):
        blz.read_blz(path, on_corrupt="skip")


def test_a_table_closed_meanwhile_is_closed_not_damaged(path):
    class ClosingStore(LocalStore):
        def open(self, key, size=None):
            if key.endswith("__2__.bin"):
                opened.close()
                raise KeyNotFound(key)  # As if a commit had removed the file now.
            return super().open(key)

    opened = blz.open(ClosingStore(path))
    with pytest.raises(blz.ClosedError, match=f"{path} was closed"):
        opened.to_arrow(on_corrupt="skip")


def test_any_store_will_do():
    store = RamStore("shelf")
    FRAME.to_blz(store, storage=blz.Storage(row_group_rows=GROUP))
    store.delete([places.chunks_of(store, 0)[0]])
    with pytest.warns(UserWarning, match=r"rows 0 to 12 are left out: shelf/.*the file is missing"):
        assert len(blz.read_blz(Hooked(store), on_corrupt="skip")) == ROWS - GROUP


def test_where_no_row_can_be_read_there_is_a_frame_without_rows(path):
    for group in range(4):
        damage(path, 3, group)
    with pytest.warns(UserWarning, match="are left out"):
        found = blz.read_blz(path, columns=["kind", "n"], on_corrupt="skip")
    assert (len(found), found["kind"].dtype.name) == (0, "category")
    assert found.attrs["blz:missing_rows"] == [
        [start, min(start + GROUP, ROWS)] for start in STARTS
    ]


# Found by the fuzzer: each of thousands of pieces opened the bundle again.
def test_a_part_that_cannot_be_opened_is_not_tried_page_by_page():
    store = RamStore()
    rows = pa.table({"n": range(4096), "x": pa.array([0.5] * 4096)})
    blz.to_blz(rows, store, storage=blz.Storage(page_rows=8, encoding="plain"))
    key, _ = places.chunks_of(store, 0)
    store.delete([key])
    opened = []
    watched = Hooked(store, before=lambda _, args: opened.extend(args if args == (key,) else ()))
    with pytest.warns(UserWarning, match="rows 0 to 4,096 are left out"):
        assert blz.read_table(watched, on_corrupt="skip").num_rows == 0
    assert len(opened) < 20
