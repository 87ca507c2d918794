"""An index and labels of any kind come back, also for some rows or columns of the table."""

import datetime

import numpy as np
import pandas as pd
import pytest

import blztable as blz
from blztable.convert.frames.frame import index_fields, to_frame
from blztable.convert.frames.labels import decode_label, encode_label
from blztable.convert.gateway import ingest
from blztable.errors import FormatError, SchemaError
from support.bit_equality import assert_same
from support.frame_strategies import rebuilt, returned


def restored(stored, **options):
    rows = options.pop("rows", stored.rows)
    return to_frame(rebuilt(stored.table), rows, stored.frame, stored.attrs, **options)


def test_a_range_index_is_facts_and_takes_its_stop_from_the_rows():
    stored = ingest(pd.DataFrame({"x": [1, 2]}, index=pd.RangeIndex(5, 11, 3, name="n")))
    assert stored.table.column_names == ["x"]
    assert index_fields(stored.frame) == []
    assert_same(restored(stored), pd.DataFrame({"x": [1, 2]}, pd.RangeIndex(5, 11, 3, name="n")))


def test_rows_that_were_chosen_keep_their_true_labels():
    stored = ingest(pd.DataFrame({"x": [1, 2]}, index=pd.RangeIndex(10, 14, 2, name="n")))
    found = restored(stored, row_numbers=np.array([4, 9])).index
    pd.testing.assert_index_equal(found, pd.Index([18, 28], name="n"), exact=True)
    found = restored(stored, row_numbers=range(4, 6)).index
    pd.testing.assert_index_equal(found, pd.RangeIndex(18, 22, 2, name="n"), exact=True)


def test_an_index_that_is_not_wanted_is_dropped():
    frame = pd.DataFrame({"x": [1, 2]}, index=["a", "b"])
    stored = ingest(frame, index=False)
    assert stored.table.column_names == ["x"]
    assert_same(restored(stored), pd.DataFrame({"x": [1, 2]}))


def test_an_index_that_is_insisted_on_becomes_a_column():
    stored = ingest(pd.DataFrame({"x": [1, 2]}), index=True)
    assert stored.table.column_names == ["x", "__index_level_0__"]
    pd.testing.assert_index_equal(restored(stored).index, pd.Index([0, 1]), exact=True)


def test_index_columns_never_take_the_name_of_another():
    levels = [[1], [2], [3], [4]]
    index = pd.MultiIndex.from_arrays(levels, names=["x", "a", "a", 0])
    frame = pd.DataFrame({"x": [9], "__index_level_0__": [8]}, index=index)
    stored = ingest(frame)
    names = stored.table.column_names
    assert len(set(names)) == len(names) == 6
    assert names[3] == "a"
    assert index_fields(stored.frame) == names[2:]
    assert_same(restored(stored), frame)


def test_an_index_comes_along_with_chosen_columns():
    frame = pd.DataFrame({"x": [1, 2], "y": [3, 4]}, index=pd.Index(["a", "b"], name="k"))
    assert_same(restored(ingest(frame), columns=["y"]), frame[["y"]])
    assert restored(ingest(frame), columns=["k"]).shape == (2, 0)
    assert_same(restored(ingest(frame), columns=[]), frame[[]])


def test_an_index_level_whose_column_is_gone_is_gone():
    index = pd.MultiIndex.from_arrays([[1, 2], [3, 4]], names=["k", "l"])
    frame = pd.DataFrame({"x": [1, 2]}, index=index)
    stored = ingest(frame)
    found = to_frame(rebuilt(stored.table.drop_columns(["k"])), 2, stored.frame, {})
    assert found.index.names == ["l"]
    found = to_frame(rebuilt(stored.table.drop_columns(["k", "l"])), 2, stored.frame, {})
    pd.testing.assert_index_equal(found.index, pd.RangeIndex(2), exact=True)


@pytest.mark.parametrize("freq", ["D", "2h", "B", "MS", "QE-MAR", "W-TUE", "WOM-1MON", "-1D"])
def test_a_frequency_comes_back_while_it_is_true(freq):
    frame = pd.DataFrame({"x": range(6)}, index=pd.date_range("2020", periods=6, freq=freq))
    assert_same(returned(frame), frame)
    stored = ingest(frame)
    part = to_frame(rebuilt(stored.table.take([0, 1, 2, 4])), 4, stored.frame, {})
    assert part.index.freq is None
    part = to_frame(rebuilt(stored.table.take([0, 2])), 2, stored.frame, {})
    assert part.index.freq is None


def test_a_filtered_index_is_not_compared_with_a_whole_range(monkeypatch):
    frame = pd.DataFrame({"x": range(6)}, index=pd.date_range("2020", periods=6, freq="B"))
    stored = ingest(frame)
    monkeypatch.setattr(pd, "date_range", None)
    found = to_frame(rebuilt(stored.table.take([0, 3, 5])), 3, stored.frame, {})
    assert found.index.freq is None


def test_a_frequency_without_a_name_is_let_go():
    index = pd.date_range("2020", periods=3, freq=pd.DateOffset(months=1))
    found = returned(pd.DataFrame({"x": range(3)}, index=index)).index
    pd.testing.assert_index_equal(found, index, check_freq=False)
    assert found.freq is None


def test_frames_without_columns_or_rows_keep_their_shape():
    for frame in (
        pd.DataFrame(),
        pd.DataFrame(index=range(3)),
        pd.DataFrame(index=["a", "b"]),
        pd.DataFrame({"x": []}),
        pd.DataFrame(columns=["a", "b"], dtype="int8"),
    ):
        assert_same(returned(frame), frame)


def test_duplicate_labels_and_labels_of_equal_text_stay_apart():
    frame = pd.DataFrame([[1, 2, 3, 4]], columns=pd.Index([1, "1", 1, True], dtype=object))
    assert_same(returned(frame), frame)
    found = restored(ingest(frame), columns=["1"])
    assert found.columns.tolist() == [1, "1", 1]


def test_labels_follow_their_field_when_the_table_has_changed():
    frame = pd.DataFrame([[1, 2]], columns=pd.RangeIndex(2, name="n"))
    stored = ingest(frame)
    table = stored.table.append_column("new", [[5]]).rename_columns(["0", "z", "new"])
    found = to_frame(rebuilt(table), 1, stored.frame, {})
    assert found.columns.tolist() == [0, "z", "new"]
    assert found.columns.name == "n"
    stored = ingest(pd.DataFrame([[1]], columns=pd.CategoricalIndex(["a"])))
    found = to_frame(rebuilt(stored.table.append_column("new", [[5]])), 1, stored.frame, {})
    assert found.columns.tolist() == ["a", "new"]
    levels = pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["p", None])
    stored = ingest(pd.DataFrame([[1, 2]], columns=levels))
    found = to_frame(rebuilt(stored.table.append_column("new", [[5]])), 1, stored.frame, {})
    assert found.columns.tolist() == [("a", 1), ("b", 2), ("new", "")]


@pytest.mark.parametrize(
    "label",
    [
        None,
        "",
        "é",
        0,
        -(1 << 70),
        True,
        1.5,
        -0.0,
        float("inf"),
        (),
        ("a", (1, None)),
        pd.Timestamp("2020-01-01 00:00:00.000000001"),
        pd.Timestamp("0001-01-01"),
        pd.Timestamp("2020", tz="UTC"),
        pd.Timestamp("2020", tz="+05:30"),
        pd.Timedelta("1ns"),
        pd.NaT,
        pd.NA,
        pd.Period("2020", "Y"),
        datetime.date(1, 1, 1),
        datetime.datetime(2020, 1, 1, 2),
        np.int8(1),
        np.uint64(2**64 - 1),
        np.float32(0.1),
        np.bool_(True),
        np.str_("a"),
        np.datetime64("2020", "D"),
        np.timedelta64(1, "ns"),
    ],
    ids=repr,
)
def test_a_label_comes_back_as_itself(label):
    found = decode_label(encode_label(label))
    assert type(found) is type(label)
    assert repr(found) == repr(label)


@pytest.mark.parametrize(
    "label", [np.bytes_(b"a"), frozenset(), np.complex64(1), int, 1 << 2000, np.datetime64(1, "3h")]
)
def test_a_label_of_another_kind_is_refused(label):
    with pytest.raises(SchemaError, match="label"):
        ingest(pd.DataFrame([[1]], columns=pd.Index([label], dtype=object)))


@pytest.mark.parametrize(
    "facts",
    [
        {"version": 2, "index": []},
        {"version": 1},
        {"version": 1, "index": []},
        {"version": 1, "index": [{"kind": "range", "start": 0, "step": 0}]},
        {"version": 1, "index": [{"kind": "range", "start": 1 << 62, "step": 1 << 62}]},
        {"version": 1, "index": [{"kind": "field", "field": 1}]},
        {"version": 1, "index": [{"kind": "range", "start": 0, "step": 1, "name": ["exec", "x"]}]},
        {"version": 1, "index": [{"kind": "range", "start": True, "step": 1}]},
        {"version": 1, "index": [{"kind": "range", "start": 0, "step": 1}], "more": 1},
    ],
    ids=str,
)
def test_frame_facts_we_did_not_write_are_a_format_error(facts):
    stored = ingest(pd.DataFrame({"x": [1, 2]}))
    with pytest.raises(FormatError):
        to_frame(stored.table, 2, facts, {})


# Bug: a missing column label came back as text.
def test_a_missing_label_stays_missing(tmp_path):
    frame = pd.DataFrame([[1, 2]], columns=["x", None])
    frame.to_blz(tmp_path / "t.blz")
    pd.testing.assert_frame_equal(blz.read_blz(tmp_path / "t.blz"), frame)
