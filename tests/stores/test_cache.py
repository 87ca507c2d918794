"""The cache of a remote table: what was read once is not asked for again, and never wrong."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

import blztable as blz
from blztable.storage.remote.blocks import BlockCache
from support.remote_places import options_of, put, put_table
from support.s3_server import S3Server
from support.stores import said_by_a_child

ROWS = 20_000
URL = "s3://bucket/t.blz"
KINDS = ("directory", "file")
FRAME = pd.DataFrame(
    {f"x{n}": np.random.default_rng(n).normal(size=ROWS) for n in range(6)}
    | {"n": np.arange(ROWS), "text": [f"text {n % 777} {'y' * (n % 30)}" for n in range(ROWS)]}
)
FRAME["list"] = [list(range(n % 4)) for n in range(ROWS)]


@pytest.fixture(params=KINDS)
def place(request, s3, tmp_path):
    """Return the options of a table in the bucket, as a directory and as one file."""
    options = {"storage_options": options_of(s3), "cache": tmp_path / "cache"}
    storage = blz.Storage(layout=request.param, row_group_rows=5_000, page_rows=1_024)
    FRAME.to_blz(URL, storage=storage, storage_options=options_of(s3))
    return options


def data_of(log):
    """Return the requests of a log for bytes of values."""
    is_value = [one for one in log if "/data/" in one.key or "/meta/leaf/" in one.key]
    # The end of an object has the index and the newest manifest.
    return is_value + [one for one in log if one.key == "t.blz" and one.range[:1] not in ("-", "")]


def files_of(cache):
    return [path for path in cache.rglob("*") if path.is_file()]


def test_a_second_read_asks_for_no_data(s3, place):
    with s3.recorded() as log:
        pd.testing.assert_frame_equal(blz.read_blz(URL, **place), FRAME)
    assert data_of(log)
    with s3.recorded() as log:
        pd.testing.assert_frame_equal(blz.read_blz(URL, **place), FRAME)
        found = blz.read_blz(URL, filters=[("x0", ">", 3)], columns=["n"], **place)
        assert found.n.tolist() == FRAME.n[FRAME.x0 > 3].tolist()
        with blz.open(URL, **place) as t:
            assert t.take([9, 12_345])["n"].to_pylist() == [9, 12_345]
        assert len(blz.read_table(URL, columns=["list"], **place)) == ROWS
        assert len(blz.dataset(URL, **place).to_table(columns=["n"])) == ROWS
    assert data_of(log) == []


def test_another_process_reads_what_this_one_has_read(s3, place):
    blz.read_blz(URL, **place)
    code = (
        "import sys, blztable as blz; o = eval(sys.argv[1]); "
        f"print(blz.read_blz({URL!r}, cache=sys.argv[2], storage_options=o).n.sum())"
    )
    with s3.recorded() as log:
        done = subprocess.run(
            [sys.executable, "-c", code, repr(options_of(s3)), str(place["cache"])],
            capture_output=True,
            text=True,
            check=True,
        )
    assert int(done.stdout) == FRAME.n.sum()
    assert len(log) >= 2
    assert data_of(log) == []


def test_processes_and_threads_may_fill_a_cache_together(place):
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: blz.read_blz(URL, **place), range(8)):
            pd.testing.assert_frame_equal(found, FRAME)


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "another"])
def test_a_damaged_block_is_asked_for_again_and_replaced(s3, place, damage):
    blz.read_blz(URL, **place)
    files = files_of(place["cache"])
    whole = {path: path.read_bytes() for path in files}
    for number, path in enumerate(files):
        data = bytearray(whole[path])
        if damage == "flipped":
            data[number * 37 % len(data)] ^= 1 << number % 8
        elif damage == "another":
            data = whole[files[number - 1]]
        path.write_bytes(data[: len(data) // 2] if damage == "cut" else data)
        if damage == "empty":
            path.write_bytes(b"")
    with s3.recorded() as log:
        pd.testing.assert_frame_equal(blz.read_blz(URL, **place), FRAME)
    assert data_of(log)
    assert {path: path.read_bytes() for path in files} == whole
    with s3.recorded() as log:
        pd.testing.assert_frame_equal(blz.read_blz(URL, **place), FRAME)
    assert data_of(log) == []


def test_blocks_of_another_table_of_the_same_names_are_no_damage(s3, tmp_path):
    options = {"storage_options": options_of(s3), "cache": tmp_path / "cache"}
    path = tmp_path / "t.blz"
    FRAME[:100].to_blz(path)
    shutil.copytree(path, tmp_path / "copy.blz")
    for number, folder in enumerate((path, tmp_path / "copy.blz")):
        # Both go on from one state, with the same numbers of files.
        with blz.open(folder, "a") as t:
            t.update({"n": number}, "n >= 0")
        s3.keys.clear()
        put_table(s3, folder, "t.blz")
        for _ in range(2):
            assert set(blz.read_blz(URL, **options).n) == {number}
            with blz.open(URL, **options) as t:
                assert t.take([5])["n"].to_pylist() == [number]
        for batch in blz.open(URL, **options).to_batches():
            assert set(batch["n"].to_pylist()) == {number}


@pytest.mark.parametrize("layout", KINDS)
def test_a_table_that_is_dropped_and_made_again_is_another_one(s3, tmp_path, layout):
    options = {"storage_options": options_of(s3)}
    for number in range(3):
        (FRAME + FRAME).assign(n=number).to_blz(URL, storage=blz.Storage(layout=layout), **options)
        assert set(blz.read_blz(URL, cache=tmp_path / "cache", **options).n) == {number}
        if number == 1:
            blz.drop(URL, **options)
        elif not number:
            s3.keys.clear()


def test_versions_share_what_they_have_in_common(s3, place):
    options = {"storage_options": options_of(s3)}
    blz.read_blz(URL, **place)
    with blz.open(URL, "a", **place) as t:
        t.update({"x0": 0.5}, "n < 10")
        assert (t.to_pandas().x0[:10] == 0.5).all()
    expected = FRAME.copy()
    expected.loc[:9, "x0"] = 0.5
    for _ in range(2):
        pd.testing.assert_frame_equal(blz.read_blz(URL, **place), expected)
        pd.testing.assert_frame_equal(blz.read_blz(URL, version=1, **place), FRAME)
    with s3.recorded() as log:
        pd.testing.assert_frame_equal(blz.read_blz(URL, **place), expected)
        pd.testing.assert_frame_equal(blz.read_blz(URL, version=1, **place), FRAME)
    assert data_of(log) == []
    pd.testing.assert_frame_equal(blz.read_blz(URL, **options), expected)


def test_a_cache_has_a_bound_and_the_oldest_go_first(s3, place, tuned):
    tuned(cached_block_bytes=4 << 10)
    most = 400_000
    for _ in range(3):
        found = blz.read_blz(URL, cache_bytes=most, **place)
        pd.testing.assert_frame_equal(found, FRAME)
        assert sum(path.stat().st_size for path in files_of(place["cache"])) <= most
    assert len(files_of(place["cache"])) > 20
    # What was used last is there.
    blz.read_blz(URL, columns=["n"], cache_bytes=most, **place)
    with s3.recorded() as log:
        blz.read_blz(URL, columns=["n"], cache_bytes=most, **place)
    assert data_of(log) == []


def test_blocks_that_were_used_least_lately_are_removed(tmp_path):
    blocks = BlockCache(str(tmp_path), 1_600_000)
    values = {f"value {n}": os.urandom(64 << 10) for n in range(40)}
    for name, data in values.items():
        blocks.read(name, 0, len(data), lambda start, stop, data=data: data[start:stop])
        blocks.read("value 0", 0, 10, lambda start, stop: values["value 0"][start:stop])
    assert sum(path.stat().st_size for path in files_of(tmp_path)) <= 1_600_000

    def missing(start, stop):
        raise AssertionError

    assert bytes(blocks.read("value 0", 5, 9, missing)) == values["value 0"][5:9]
    assert bytes(blocks.read("value 39", 0, 64 << 10, missing)) == values["value 39"]
    with pytest.raises(AssertionError):
        blocks.read("value 1", 0, 10, missing)


@pytest.mark.parametrize("length", [0, 1, 4095, 4096, 4097, 20_000])
def test_any_range_of_a_value_comes_from_the_blocks(tmp_path, tuned, length):
    tuned(cached_block_bytes=4096)
    data = os.urandom(length)
    draw = np.random.default_rng(length)
    for blocks in (BlockCache(str(tmp_path), 1 << 30), BlockCache(str(tmp_path), 1 << 30)):
        for _ in range(100):
            start, stop = sorted(draw.integers(0, length + 5_000, 2).tolist())
            found = blocks.read("v", start, stop, lambda low, high: data[low:high])
            assert bytes(found) == data[start:stop]


def test_a_cache_is_never_the_reason_for_a_failed_read(s3, place, tmp_path, monkeypatch):
    cache = place["cache"]
    with blz.open(URL, **place) as t:
        t.to_arrow(columns=["x1"])
        shutil.rmtree(cache)
        pd.testing.assert_frame_equal(t.to_pandas(), FRAME)
        assert files_of(cache)
    shutil.rmtree(cache)
    cache.write_bytes(b"a file")
    pd.testing.assert_frame_equal(blz.read_blz(URL, **place), FRAME)
    assert cache.read_bytes() == b"a file"
    cache.unlink()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    for name in ("replace", "makedirs", "utime", "scandir"):
        with monkeypatch.context() as patched:
            patched.setattr(os, name, full)
            pd.testing.assert_frame_equal(blz.read_blz(URL, **place), FRAME)
    assert not [path for path in files_of(cache) if path.name.startswith(".new-")]


def test_no_secret_and_no_address_is_in_a_cache(place):
    blz.read_blz(URL, **place)
    names = " ".join(str(path.relative_to(place["cache"])) for path in place["cache"].rglob("*"))
    assert "bucket" not in names
    assert "blz" not in names
    assert place["cache"].stat().st_mode & 0o077 == 0


def test_a_child_of_a_fork_does_not_hang(place):
    with blz.open(URL, **place) as t:
        t.to_arrow()
        said = said_by_a_child(lambda fork: fork() or len(t.to_arrow(columns=["n"])))
        assert not said or "forked" in said


def test_a_cache_is_of_remote_tables_and_has_a_size(tmp_path, s3):
    FRAME[:5].to_blz(tmp_path / "t.blz")
    for use in (blz.open, blz.read_blz, blz.read_table, blz.dataset):
        with pytest.raises(ValueError, match="cache is of remote stores"):
            use(tmp_path / "t.blz", cache=tmp_path / "cache")
        with pytest.raises(ValueError, match="cache_bytes"):
            use(URL, cache=tmp_path, cache_bytes=-1, storage_options=options_of(s3))
    assert not (tmp_path / "cache").exists()


def test_a_file_of_another_server_is_another_file(tmp_path, s3):
    with S3Server() as other:
        for number, server in enumerate((s3, other)):
            FRAME.assign(n=number).to_blz(
                tmp_path / f"{number}", storage=blz.Storage(layout="file")
            )
            put(server, "t.blz", (tmp_path / f"{number}").read_bytes())
            options = {"storage_options": options_of(server), "cache": tmp_path / "cache"}
            assert set(blz.read_blz(URL, **options).n) == {number}
