"""Copies of tables: what is copied, into which layout, and what the call tells of it."""

import io
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import blztable as blz
from golden.old_writer import write_table

FRAME = pd.DataFrame(
    {"a": [1.5, 2.5, -0.0], "c": pd.Categorical(["x", "y", "x"]), "n": [[1, 2], None, []]},
    index=pd.Index([5, 6, 7], name="k"),
)
FRAME.attrs["since"] = 1999


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "t.blz"
    storage = blz.Storage(
        compression="zstd", columns={"c": blz.Storage(clevel=3), "a": blz.Storage(digits=3)}
    )
    FRAME.to_blz(path, storage=storage)
    with blz.open(path, "a") as table:
        table.alter_column("a", default=0.5)
        table.vlmeta["note"] = b"kept"
        table.configure(keep_versions=3)
    return path


def settings(path):
    with blz.open(path) as table:
        properties = dict(table._snapshot.version.head.properties)
        return table.storage, table.vlmeta["note"], properties["keep_versions"]


def sources(path, folder):
    """Return the table as each form that a copy takes."""
    file = io.BytesIO()
    blz.copy(path, file)
    blz.copy(path, folder / "one.blz", layout="file")
    store = blz.MemoryStore()
    blz.copy(path, store)
    return [path, folder / "one.blz", file, file.getvalue(), store]


@pytest.mark.parametrize("options", [{}, {"mode": "w"}, {"columns": ["a", "c", "n", "k"]}], ids=str)
@pytest.mark.parametrize("layout", ["directory", "file", None])
def test_a_copy_has_the_rows_and_the_settings_whatever_the_source_and_the_layout(
    path, tmp_path, options, layout
):
    for number, source in enumerate(sources(path, tmp_path)):
        target = tmp_path / f"{number}.blz"
        done = blz.copy(source, target, layout=layout, **options)
        assert (done.rows, done.lost) == (3, ())
        assert target.is_file() == (layout == "file")
        pd.testing.assert_frame_equal(blz.read_blz(target), FRAME)
        assert settings(target) == settings(path)
        with blz.open(target, "a") as table:
            assert list(table.tags) == []
            table.append({"c": ["y"], "n": [[3]], "k": [8]})
            assert table["a"][3] == 0.5


def test_a_copy_of_some_columns_has_no_byte_of_the_others(path, tmp_path):
    with blz.open(path, "a") as table:
        table.add_column("secret", ["a word of its own"] * 3)
    for target in (tmp_path / "u.blz", file := io.BytesIO()):
        blz.copy(path, target, columns=["a", "c"], layout="file")
        assert blz.open(target).schema.names == ["a", "c"]
    for data in (file.getvalue(), Path(tmp_path / "u.blz").read_bytes()):
        assert b"secret" not in data


def test_a_copy_tells_the_version_and_refuses_choices_that_do_not_exist(path, tmp_path):
    assert str(blz.copy(path, tmp_path / "u.blz", version=2)) == "version 2: 3 rows"
    for option in ({"layout": "disk"}, {"mode": "a"}, {"on_corrupt": "null"}):
        with pytest.raises(ValueError, match=f"{next(iter(option))} must be one of"):
            blz.copy(path, tmp_path / "v.blz", **option)
    with pytest.raises(blz.ColumnNotFoundError):
        blz.copy(path, tmp_path / "v.blz", columns=["z"])
    assert not (tmp_path / "v.blz").exists()


def test_mode_w_replaces_the_table_at_the_target_as_a_new_version(path, tmp_path):
    target = tmp_path / "u.blz"
    blz.to_blz({"old": [1]}, target)
    with pytest.raises(blz.TableExistsError):
        blz.copy(path, target)
    assert blz.read_table(target).column_names == ["old"]
    blz.copy(path, target, mode="w")
    pd.testing.assert_frame_equal(blz.read_blz(target), FRAME)
    assert blz.open(target).version > 1


def test_an_old_table_is_copied_to_a_file_and_a_file_object(tmp_path):
    write_table(tmp_path / "old", {"a": np.arange(9), "b": np.array([b"x"] * 9)}, 4, default=None)
    for target in (tmp_path / "one.blz", io.BytesIO()):
        done = blz.copy(tmp_path / "old", target, layout="file")
        assert (done.rows, done.version, done.lost) == (9, None, ())
        assert blz.read_table(target) == blz.read_table(tmp_path / "old")
    assert (tmp_path / "one.blz").is_file()


def test_damaged_chunks_of_an_old_table_are_left_out_if_asked(tmp_path):
    old = tmp_path / "old"
    write_table(old, {"a": np.arange(9), "b": np.arange(9.0)}, 4, default=None)
    (old / "a" / "data" / "__1.blp").write_bytes(b"blpk")
    with pytest.raises(blz.CorruptError):
        blz.copy(old, tmp_path / "new")
    with pytest.warns(UserWarning, match="left out") as told:
        done = blz.copy(old, tmp_path / "new", on_corrupt="skip")
    assert len(told) == 1
    assert done.lost == ("4 rows of damaged pages are left out",)
    assert blz.read_table(tmp_path / "new")["a"].to_pylist() == [0, 1, 2, 3, 8]


def test_the_progress_of_rows_that_are_written_again_is_in_rows(path, tmp_path):
    seen = []
    blz.copy(path, tmp_path / "u.blz", columns=["a"], progress=lambda *now: seen.append(now))
    assert seen[-1] == (3, 3)


def test_a_copy_warns_of_nothing(path, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        blz.copy(path, tmp_path / "u.blz", on_corrupt="skip")
    assert blz.read_table(tmp_path / "u.blz").schema.equals(pa.schema(blz.open(path).schema))
