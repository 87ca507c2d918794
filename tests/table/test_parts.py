"""Parts: what a plan cuts a version into, and reading them in other processes."""

import json
import multiprocessing
import os
import pickle
import shutil
from functools import partial
from itertools import pairwise
from time import process_time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.table import parts as table_parts
from golden.old_writer import write_table
from support import remote_places
from support.spawned_tasks import read

ROWS = 1000
CUTS = blz.Storage(row_group_rows=100, page_rows=16, encoding="plain")


@pytest.fixture(autouse=True)
def nothing_open():
    """Begin and end without tables that earlier parts have opened."""
    table_parts._opened.cache_clear()
    yield
    table_parts._opened.cache_clear()


def frame():
    rows = np.arange(ROWS)
    data = {"n": rows, "day": rows // 100, "text": [f"text {row % 7}" for row in rows]}
    return pd.DataFrame(data, index=pd.Index(rows * 2, name="label"))


@pytest.fixture(params=["directory", "file"])
def path(request, tmp_path):
    storage = blz.Storage(
        row_group_rows=100, page_rows=16, layout=request.param if request.param == "file" else None
    )
    blz.to_blz(frame(), tmp_path / "t.blz", storage=storage)
    return tmp_path / "t.blz"


def spawned(calls, parts):
    with multiprocessing.get_context("spawn").Pool(2) as workers:
        return workers.map(calls, parts)


@pytest.mark.parametrize("nbytes", [1, 500, 2_000, 10_000, 1 << 30])
def test_parts_have_each_row_once_in_their_order(path, nbytes):
    parts = blz.plan(path, part_bytes=nbytes)
    ends = [(part.start, part.stop) for part in parts]
    assert ends[0][0] == 0
    assert ends[-1][1] == ROWS
    assert all(one[1] == other[0] for one, other in pairwise(ends))
    whole = pd.concat([part.to_pandas() for part in parts])
    pd.testing.assert_frame_equal(whole, frame())


def test_parts_are_read_by_spawned_processes_with_the_labels_of_their_rows(path):
    call = partial(read, columns=["n"], filters="day in (3, 7)")
    parts = blz.plan(path, columns=["n"], filters="day in (3, 7)", part_bytes=100)
    expected = frame()[frame()["day"].isin([3, 7])][["n"]]
    pd.testing.assert_frame_equal(pd.concat(spawned(call, parts)), expected)
    assert len(parts) == 2 * 7  # Pages of 16 rows.


def test_a_part_is_small_and_travels_as_json_and_pickle(path):
    for part in blz.plan(path, part_bytes=1_000, hosts=lambda key: ["a", "b"]):
        text = json.dumps(part.to_json())
        assert blz.TablePart.from_json(json.loads(text)) == part
        assert pickle.loads(pickle.dumps(part)) == part
        assert part.hosts == ("a", "b")
        assert len(text) - len(part.path) < 200
        assert os.path.isabs(part.path)


@pytest.mark.parametrize(
    "change",
    [
        {"start": -1},
        {"start": 5, "stop": 4},
        {"version": 0},
        {"version": "1"},
        {"hosts": [1]},
        {"start": True},
        {"more": 1},
        {"path": None},
    ],
)
def test_a_text_that_is_no_part_is_refused(path, change):
    whole = blz.plan(path)[0].to_json()
    with pytest.raises(blz.FormatError, match="is no part of a table"):
        blz.TablePart.from_json({**whole, **change})
    with pytest.raises(blz.FormatError, match="is no part of a table"):
        blz.TablePart.from_json({name: whole[name] for name in whole if name != "commit"})
    with pytest.raises(blz.FormatError, match="which has 1,000 rows; plan again"):
        blz.TablePart.from_json({**whole, "stop": 1001}).to_arrow()


def test_parts_are_sized_by_the_columns_that_are_asked_for(tmp_path):
    data = {"n": np.arange(ROWS), "wide": [b"x" * 992] * ROWS}
    blz.to_blz(data, tmp_path / "t.blz", storage=CUTS)
    planned = partial(blz.plan, tmp_path / "t.blz", part_bytes=2_400)
    narrow = [part.stop - part.start for part in planned(columns=["n"])]
    assert narrow == [300, 300, 300, 100]  # Three row groups of 800 bytes each.
    wide = planned(columns=["wide"])
    assert {part.start % 16 for part in wide if part.start % 100} <= {0, 4, 8, 12}
    assert all((part.start % 100) % 16 == 0 for part in wide)
    assert all(part.stop - part.start == 16 for part in wide if part.stop % 100)
    (one,) = blz.plan(tmp_path / "t.blz")
    assert (one.start, one.stop) == (0, ROWS)
    assert abs(one.nbytes - 1_000 * ROWS) < 20 * ROWS


def test_row_groups_of_different_widths_make_parts_of_about_equal_bytes(tmp_path):
    words = [b"x" * (1 if row < 500 else 1_000) for row in range(ROWS)]
    blz.to_blz({"word": words}, tmp_path / "t.blz", storage=CUTS)
    parts = blz.plan(tmp_path / "t.blz", part_bytes=102_000)
    assert [(part.start, part.stop) for part in parts] == [
        (0, 500),
        *((first, first + 100) for first in range(500, 1000, 100)),
    ]
    assert all(part.nbytes < 102_000 for part in parts)


def test_deleted_rows_are_in_no_part(path):
    with blz.open(path, "a") as table:
        table.delete("n > 330 and n <= 510 and text != 'text 3'")
        left = table.to_pandas()
        parts = table.plan(part_bytes=1_500)
        assert parts[-1].stop == len(left)
        pd.testing.assert_frame_equal(pd.concat([one.to_pandas() for one in parts]), left)


def test_a_filter_that_no_row_can_meet_and_a_table_without_rows_have_no_parts(tmp_path, path):
    assert blz.plan(path, filters="day > 10") == []
    blz.create(tmp_path / "empty.blz", {"n": "i8"}).close()
    assert blz.plan(tmp_path / "empty.blz") == []


def test_the_version_that_was_planned_is_read_whatever_is_committed_later(path):
    first = blz.plan(path)[0]
    tagged = blz.plan(path, version=1)
    assert tagged == [first]
    with blz.open(path, "a") as table:
        table.delete("n >= 0")
        assert first.to_arrow().num_rows == ROWS
        assert table.plan() == []


def test_a_part_says_by_name_that_its_version_or_its_table_is_gone(path):
    part, other = blz.plan(path, part_bytes=5_000)[:2]
    blz.to_blz(frame()[:5], path, mode="w")
    with blz.open(path, "a") as table:
        table.vacuum(keep=1)
    with pytest.raises(blz.TableNotFoundError, match="the part is of version 1: plan again"):
        part.to_arrow()
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    blz.to_blz(frame(), path)
    for read_one in (part.to_arrow, other.to_pandas):
        with pytest.raises(blz.ConflictError, match="removed or replaced after it was planned"):
            read_one()


def test_a_process_opens_a_version_once_for_all_of_its_parts(path, monkeypatch):
    opened = []
    pin = table_parts.versions.pin
    monkeypatch.setattr(
        table_parts.versions, "pin", lambda *args: opened.append(args) or pin(*args)
    )
    parts = blz.plan(path, part_bytes=1_000)
    del opened[:]
    for part in parts:
        part.to_arrow(["n"])
    assert len(opened) == 1


def test_the_facts_alone_decide_which_row_groups_are_planned(tmp_path):
    path = tmp_path / "t.blz"
    many = {"n": np.arange(100_000), "x": np.random.default_rng(0).normal(size=100_000)}
    blz.to_blz(many, path, storage=blz.Storage(row_group_rows=10), durability="process")
    with blz.open(path) as table:
        assert len(table.row_groups) == 10_000
    shutil.rmtree(path / "data")
    times = []
    for _ in range(5):
        with blz.open(path) as table:
            begun = process_time()
            parts = table.plan(["x"], filters="n >= 70000 and n < 71000")
            times.append(process_time() - begun)
        assert [(part.start, part.stop) for part in parts] == [(70_000, 71_000)]
    assert min(times) < 0.025


def test_the_hosts_of_a_part_are_those_with_most_of_its_bytes_first(tmp_path, own_files_here):
    path = tmp_path / "t.blz"
    draw = np.random.default_rng(0)
    data = {"small": draw.integers(0, 9, ROWS), "large": draw.normal(size=ROWS)}
    blz.to_blz(data, path, storage=CUTS)
    hosts = {"data": "all", "data/col1": ["one", "two"], "data/col": "none"}
    planned = partial(blz.plan, path, part_bytes=2_000)
    assert {part.hosts for part in planned(hosts=hosts)} == {("one", "two", "all")}
    assert {part.hosts for part in planned(columns=["small"], hosts=hosts)} == {("all",)}
    assert {part.hosts for part in planned(hosts={})} == {()}
    keys = set()
    parts = planned(columns=["large"], hosts=lambda key: keys.add(key))
    assert {part.hosts for part in parts} == {()}
    assert {f"{path}/{key}" for key in keys} == {str(one) for one in path.glob("data/col1/*.bin")}


def test_a_table_that_no_other_process_can_open_is_not_planned(tmp_path):
    store = blz.MemoryStore("tills")
    blz.to_blz(frame(), store)
    with pytest.raises(ValueError, match=r"tills: no other process can open the table"):
        blz.plan(store)
    write_table(tmp_path / "old", {"n": np.arange(5)}, {"n": 5}, {}, is_blz=False, default=None)
    with pytest.raises(blz.FormatError, match=r"has no versions that a part could name.*copy"):
        blz.plan(tmp_path / "old")
    with pytest.raises(ValueError, match="part_bytes must be at least 1"):
        blz.plan(store, part_bytes=0)


def test_parts_of_a_remote_table_have_no_credentials(tmp_path, s3):
    blz.to_blz(frame(), tmp_path / "t.blz", storage=CUTS)
    remote_places.put_table(s3, tmp_path / "t.blz", "t.blz")
    options = {**remote_places.options_of(s3), "secret": "word of the day"}
    parts = blz.plan("s3://bucket/t.blz", part_bytes=5_000, storage_options=options)
    assert {part.path for part in parts} == {"s3://bucket/t.blz"}
    assert b"word of the day" not in pickle.dumps(parts)
    with s3.recorded() as log:
        read_parts = [part.to_pandas(storage_options=options) for part in parts]
    pd.testing.assert_frame_equal(pd.concat(read_parts), frame())
    # The manifest is read once for all.
    assert len(log.of("GET", "meta/manifest")) <= 1


def test_fragments_of_a_dataset_are_cut_as_parts_are(path, tuned):
    tuned(part_bytes=2_000)
    with blz.open(path) as table:
        parts = table[["n", "day"]].plan(part_bytes=2_000)
        fragments = list(table[["n", "day"]].dataset().get_fragments())
        counts = [one.count_rows() for one in fragments]
    assert counts == [part.stop - part.start for part in parts]


def test_statistics_say_what_is_known_of_each_row_group(tmp_path):
    rows = pa.table(
        {
            "n": [3, None, 7, 9],
            "x": [0.5, float("nan"), float("nan"), None],
            "word": ["a", "é" * 40, None, None],
            "list": [[1], None, [], [2, 3]],
            "flag": pa.array(["b", "a", "a", None]).dictionary_encode(),
        }
    )
    blz.to_blz(rows, tmp_path / "t.blz", storage=blz.Storage(row_group_rows=2))
    with blz.open(tmp_path / "t.blz", "a") as table:
        known = table.statistics()
        assert known.select(["start", "stop", "nulls.n", "min.n", "max.n", "exact.n"]).to_pylist()[
            1
        ] == {"start": 2, "stop": 4, "nulls.n": 0, "min.n": 7, "max.n": 9, "exact.n": True}
        assert known["nulls.x"].to_pylist() == [0, 1]
        assert known["min.x"].to_pylist() == [0.5, None]
        assert known["min.word"].to_pylist() == ["a", None]
        high = known["max.word"].to_pylist()[0]
        assert high is None or high > "é" * 40
        assert known["min.flag"].to_pylist() == ["a", "a"]
        assert known["min.list"].null_count == known["nulls.list"].null_count == 2
        assert known["cbytes.n"].to_pylist() > [0, 0]
        assert table.statistics(["n"]).column_names[2:] == [
            f"{fact}.n" for fact in ("nulls", "min", "max", "exact", "nbytes", "cbytes")
        ]
        table.delete("n = 9")
        known = table.statistics(["n"])
        assert known["stop"].to_pylist() == [2, 3]
    assert pc.max(known["max.n"]).as_py() >= 7
