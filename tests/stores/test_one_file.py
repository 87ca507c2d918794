"""A table in one file of a bucket: ranges of one object, and changes that replace it."""

import pickle
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor

import fsspec
import numpy as np
import obstore
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from obstore.store import MemoryStore as ObjectsInMemory

import blztable as blz
from blztable.cli.command import main
from blztable.format import layout
from blztable.storage.remote import object_bucket
from blztable.storage.resolve import store_at
from support.remote_places import FRAME, ROWS, options_of, put, put_table
from support.s3_server import Fault, nth, share
from support.stores import files_named, said_by_a_child

URL = "s3://bucket/deep/t.blz"
KEY = "deep/t.blz"
FILE = blz.Storage(layout="file")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Return a table in one file with two versions, written on a disk."""
    path = tmp_path_factory.mktemp("one") / "t.blz"
    storage = blz.Storage(row_group_rows=1_000, page_rows=256, layout="file")
    FRAME[:2_000].to_blz(path, storage=storage)
    FRAME[2_000:].to_blz(path, mode="a")
    return path


@pytest.fixture
def options(s3):
    return {"storage_options": options_of(s3)}


def in_objects(table, tmp_path, request):
    objects = ObjectsInMemory()
    obstore.put(objects, "", table.read_bytes())
    return objects, {}


def in_s3(table, tmp_path, request):
    server = request.getfixturevalue("s3")
    put(server, KEY, table.read_bytes())
    return URL, {"storage_options": options_of(server)}


def on_a_web_server(table, tmp_path, request):
    server = request.getfixturevalue("s3")
    put(server, KEY, table.read_bytes())
    return f"{server.url}/bucket/{KEY}", {}


def in_memory_of_fsspec(table, tmp_path, request):
    files = fsspec.filesystem("memory")
    files.put(str(table), "/one/t.blz")
    request.addfinalizer(lambda: files.rm("/one", recursive=True))
    return "memory://one/t.blz", {}


def in_a_zip(table, tmp_path, request):
    path = tmp_path / "t.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(table, "in/t.blz")
    return f"zip://in/t.blz::{path}", {}


PLACES = {
    "obstore": in_objects,
    "s3": in_s3,
    "http": on_a_web_server,
    "fsspec memory": in_memory_of_fsspec,
    "zip": in_a_zip,
}
WRITTEN = ["obstore", "s3", "fsspec memory"]


@pytest.fixture(params=PLACES)
def place(request, table, tmp_path):
    """Return the place of a copy of the table, and the options to reach it."""
    return PLACES[request.param](table, tmp_path, request)


@pytest.fixture(params=WRITTEN)
def written(request, table, tmp_path):
    """Return a place that is written, and the options to reach it."""
    return PLACES[request.param](table, tmp_path, request)


# Reads


def test_a_table_in_one_file_is_read_as_from_a_disk(place, table, tmp_path):
    url, options = place
    assert blz.exists(url, **options)
    pd.testing.assert_frame_equal(blz.read_blz(url, **options), FRAME)
    some = blz.read_blz(url, columns=["x"], filters=[("n", "<", 7)], **options)
    pd.testing.assert_frame_equal(some, FRAME[["x"]][:7])
    with blz.open(url, **options) as opened, blz.open(table) as local:
        assert opened.take([2_999, 0])["text"].to_pylist() == ["text 2999", "text 0"]
        assert opened.tail(3).equals(local.tail(3))
        assert [one.number for one in opened.versions()] == [1, 2]
        assert opened.verify().is_intact
        assert not opened.refresh()
    assert len(blz.read_table(url, version=1, **options)) == 2_000
    assert len(blz.dataset(url, **options).to_table()) == ROWS
    for kind in ("directory", "file"):
        blz.copy(url, tmp_path / kind, layout=kind, **options)
        pd.testing.assert_frame_equal(blz.read_blz(tmp_path / kind), FRAME)


def test_the_command_line_reads_a_url_of_a_file(table, tmp_path, capsys):
    url, _ = in_a_zip(table, tmp_path, None)
    for command in ("info", "head", "verify", "versions"):
        assert main([command, url]) == 0
    assert "text 0" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["http", "zip"], indirect=True)
def test_a_place_that_is_only_read_says_so(place):
    url, options = place
    with blz.open(url, "a", **options) as t, pytest.raises(blz.ReadOnlyError, match="only read"):
        t.delete([("n", "==", 1)])
    for data in (FRAME, FRAME[:1]):
        with pytest.raises(blz.ReadOnlyError, match="only read"):
            data.to_blz(url, **options)
    assert len(blz.read_table(url, **options)) == ROWS


def test_a_file_that_is_no_table_is_left_as_it_is(s3, options):
    put(s3, KEY, b"PAR1" + bytes(100_000))
    assert not blz.exists(URL, **options)
    with pytest.raises(blz.FormatError, match="holds no table"):
        blz.open(URL, **options)
    for mode in ("w", "x", "a"):
        for storage in (None, FILE):
            with pytest.raises((blz.TableExistsError, blz.FormatError)):
                FRAME.to_blz(URL, mode=mode, storage=storage, **options)
    assert list(s3.keys) == [KEY]
    assert s3.keys[KEY].data == b"PAR1" + bytes(100_000)


def test_a_file_whose_end_is_cut_off_is_told_and_copied_as_far_as_it_is_whole(
    s3, options, table, tmp_path
):
    put(s3, KEY, table.read_bytes()[:-2_000])
    with pytest.warns(UserWarning, match="never finished"), blz.open(URL, **options) as t:
        assert len(t) == 2_000
    with pytest.warns(UserWarning, match="never finished"):
        done = blz.copy(URL, tmp_path / "whole.blz", on_corrupt="skip", **options)
    assert done.rows == 2_000


def test_damage_in_a_file_is_found(s3, options, table):
    data = bytearray(table.read_bytes())
    with blz.open(table) as t:
        version = t._snapshot.version
        first = version.store._find(min(files_named(version)))[1]
    middle = slice(first.position + 100, first.position + first.length - 100)
    data[middle] = bytes(byte ^ 1 for byte in data[middle])
    put(s3, KEY, bytes(data))
    with blz.open(URL, **options) as t:
        assert not t.verify().is_intact
        with pytest.raises(blz.CorruptError):
            t.to_arrow()


# Rounds: requests that follow one another.

WIDE = pd.DataFrame({f"x{n}": np.random.default_rng(n).normal(size=60_000) for n in range(8)})


@pytest.fixture
def far(s3, options, tmp_path):
    """Return a server far away with one table as a directory, and as a file."""
    WIDE.to_blz(tmp_path / "d.blz", storage=blz.Storage(row_group_rows=20_000, page_rows=4_096))
    blz.copy(tmp_path / "d.blz", tmp_path / "f.blz", layout="file")
    put_table(s3, tmp_path / "d.blz", "d.blz")
    put(s3, "f.blz", (tmp_path / "f.blz").read_bytes())
    blz.read_blz("s3://bucket/f.blz", **options)
    s3.latency = 0.2
    return s3, options


READS = {
    "everything": lambda t: t.to_pandas(),
    "a filter": lambda t: t.to_pandas(filters=[("x0", ">", 3.5)], columns=["x0", "x5"]),
    "rows": lambda t: t.take([3, 30_000, 59_999]),
}


def test_a_table_in_a_file_is_opened_in_two_rounds(far):
    s3, options = far
    with s3.recorded() as log, blz.open("s3://bucket/f.blz", **options):
        pass
    # A list and `meta/latest` of a directory, then the end of the file.
    assert (len(log), log.rounds) == (3, 2)
    with s3.recorded() as log, blz.open(f"{s3.url}/bucket/f.blz"):
        pass
    assert (len(log), log.rounds) == (3, 2)
    with s3.recorded() as log, blz.open("s3://bucket/d.blz", **options):
        pass
    assert len(log.of("GET", "d.blz")) == 2


@pytest.mark.parametrize("name", READS)
def test_a_file_is_read_in_the_rounds_of_a_directory(far, name):
    s3, options = far
    logs, found = [], []
    for kind in ("d", "f"):
        with blz.open(f"s3://bucket/{kind}.blz", **options) as t, s3.recorded() as log:
            found.append(READS[name](t))
        logs.append(log)
    assert found[0].equals(found[1])
    # One; a busy machine may send some requests after the first replies.
    assert all(log.rounds <= 2 for log in logs)
    # Ranges of several columns are one.
    assert len(logs[1]) <= len(logs[0])


def test_records_of_many_values_are_compared_with_their_checksums_in_one_round(far):
    s3, options = far
    with blz.open("s3://bucket/f.blz", **options) as t, s3.recorded() as log:
        store = t._snapshot.version.store
        assert list(store.problems(sorted(files_named(t._snapshot.version)))) == []
    assert log.rounds == 1


def test_an_update_is_three_rounds_from_an_open_table(far):
    s3, options = far
    with blz.open("s3://bucket/f.blz", "a", **options) as t, s3.recorded() as log:
        t.attrs["a"] = 1
    assert len(log.of("PUT", "f.blz/meta/probe")) == 1
    assert log.rounds <= 4
    assert [one.status for one in log.of("PUT") if one.key == "f.blz"] == [200]


# A file that is replaced


def test_a_file_that_was_replaced_is_told_and_never_mixed(far, tmp_path):
    _, options = far
    with blz.open("s3://bucket/f.blz", **options) as t:
        (WIDE + 1).to_blz("s3://bucket/f.blz", **options)
        with pytest.raises(blz.ConflictError, match="open the table again"):
            t.to_pandas()
        assert t.refresh()
        assert t.to_pandas().equals(WIDE + 1)


def test_a_file_that_is_replaced_in_the_middle_of_a_read_is_told(far, tuned):
    _, options = far
    tuned(window_bytes=500_000, ahead_bytes=500_000, window_rows=1 << 12)
    done = 0

    def read(batches):
        nonlocal done
        for batch in batches:
            assert batch["x3"].equals(pa.array(WIDE.x3[done : done + len(batch)]))
            done += len(batch)
            if done == 4_096:
                (WIDE + 1).to_blz("s3://bucket/f.blz", **options)

    with blz.open("s3://bucket/f.blz", **options) as t:
        batches = t.to_batches(batch_rows=4_096)
        with pytest.raises(blz.ConflictError, match="replaced"):
            read(batches)
    assert 4_096 <= done < 60_000


@pytest.mark.parametrize("place", ["s3", "http", "fsspec memory", "obstore"], indirect=True)
def test_another_table_at_the_address_is_never_taken_for_the_first(place, tmp_path, s3, tuned):
    tuned(tail_bytes=4 << 10)
    url, options = place
    other = tmp_path / "other.blz"
    (FRAME[["n"]] + 1).to_blz(other, storage=FILE)
    with blz.open(url, **options) as t:
        if isinstance(url, str) and url.startswith("memory"):
            fsspec.filesystem("memory").put(str(other), "/one/t.blz")
        elif isinstance(url, str):
            put(s3, KEY, other.read_bytes())
        else:
            obstore.put(url, "", other.read_bytes())
        assert not t.refresh()
        with pytest.raises(blz.BlzError, match="open"):
            t.to_arrow()
    assert blz.read_blz(url, **options).n.tolist() == list(range(1, ROWS + 1))


def test_a_file_that_was_removed_is_told(s3, options):
    FRAME.to_blz(URL, storage=FILE, **options)
    with blz.open(URL, "a", **options) as t:
        del s3.keys[KEY]
        with pytest.raises(blz.ConflictError, match="open it again"):
            t.delete([("n", "<", 3)])
    assert not blz.exists(URL, **options)


# Changes


def test_a_file_is_written_and_changed(written):
    url, options = written
    FRAME.to_blz(url, **options)
    with blz.open(url, "a", **options) as t:
        assert t.version == 3
        t.delete([("n", "<", 10)])
        t.update({"word": "new"}, [("n", "<", 20)])
        t.tags["here"] = t.version
        t.attrs["k"] = 1
        t.upsert({"n": [20, ROWS], "x": [0.5, 0.5], "word": ["u", "u"], "text": ["", ""]}, "n")
        t.compact(sort_by="x")
        assert len(t) == ROWS - 9
    expected = FRAME[10:].copy()
    expected.loc[expected.n < 20, "word"] = "new"
    expected.loc[expected.n == 20, ["x", "word", "text"]] = [0.5, "u", ""]
    expected.loc[ROWS] = [ROWS, 0.5, "u", ""]
    found = blz.read_blz(url, **options).sort_values("n", ignore_index=True)
    pd.testing.assert_frame_equal(found, expected.reset_index(drop=True))
    with blz.open(url, **options) as t:
        assert t.attrs == {"k": 1}
        assert (t.tags["here"], t.verify(full=True).is_intact) == (5, True)
        assert len(blz.read_table(url, version="here", **options)) == ROWS - 10


def test_a_new_file_is_one_object_and_nothing_else(s3, options):
    FRAME.to_blz(URL, storage=FILE, **options)
    assert list(s3.keys) == [KEY]
    pd.testing.assert_frame_equal(blz.read_blz(URL, **options), FRAME)
    # It is a table in one file on a disk, too.
    data = s3.keys[KEY].data
    pd.testing.assert_frame_equal(blz.read_blz(data), FRAME)
    with pytest.raises(blz.TableExistsError):
        FRAME.to_blz(URL, mode="x", storage=FILE, **options)
    with blz.create("s3://bucket/new.blz", {"a": "int64"}, storage=FILE, **options) as t:
        assert len(t) == 0
    assert set(s3.keys) == {KEY, "new.blz"}


def test_a_downloaded_file_is_changed_on_a_disk(s3, options, tmp_path):
    FRAME.to_blz(URL, storage=FILE, **options)
    with blz.open(URL, "a", **options) as t:
        t.delete([("n", "<", 10)])
    path = tmp_path / "t.blz"
    path.write_bytes(s3.keys[KEY].data)
    FRAME[:10].to_blz(path, mode="a")
    with blz.open(path, "a") as t:
        assert t.vacuum(keep=1).versions == (1, 2)
        assert t.verify().is_intact
        assert sorted(t["n"][:].to_pylist()) == list(range(ROWS))


def test_a_table_that_is_replaced_again_and_again_does_not_grow(s3, options):
    sizes = []
    for number in range(6):
        (FRAME + FRAME).assign(n=number).to_blz(URL, storage=FILE, **options)
        sizes.append(len(s3.keys[KEY].data))
    assert sizes[-1] < 2.2 * sizes[0]
    with blz.open(URL, "a", **options) as t:
        assert [one.number for one in t.versions()] == [5, 6]
        t.vacuum(keep=1)
    assert len(s3.keys[KEY].data) < 1.1 * sizes[0]


def _in_a_transaction(t, **options):
    with t.transaction() as tx:
        tx.append(FRAME)


def _by_an_appender(t, **options):
    with t.transaction() as tx, tx.appender() as a:
        a["n"].append([1])


APPENDS = {
    "append": lambda t, **options: t.append(FRAME),
    "replace_where": lambda t, **options: t.append(FRAME[:1], replace_where="n = 0"),
    "transaction": _in_a_transaction,
    "appender": _by_an_appender,
    "to_blz": lambda t, **options: FRAME.to_blz(URL, mode="a", **options),
}


def test_a_file_is_vacuumed_held_dropped_and_made_again(written):
    url, options = written
    assert blz.vacuum(url, keep=1, **options).versions == (1,)
    with blz.open(url, "a", hold=60, **options) as t:
        t.delete([("n", "<", 10)])
    blz.drop(url, **options)
    assert not blz.exists(url, **options)
    with pytest.raises(blz.TableNotFoundError):
        blz.open(url, **options)
    with pytest.raises(blz.TableNotFoundError):
        blz.drop(url, **options)
    FRAME[:5].to_blz(url, storage=FILE, **options)
    with blz.open(url, **options) as t:
        assert (len(t), t.version, t.verify().is_intact) == (5, 5, True)


@pytest.mark.parametrize("how", APPENDS)
def test_an_append_names_the_directory_form(s3, options, how):
    FRAME.to_blz(URL, storage=FILE, **options)
    before = s3.keys[KEY].data
    with (
        blz.open(URL, "a", **options) as t,
        pytest.raises(blz.ReadOnlyError, match='layout="directory"'),
    ):
        APPENDS[how](t, **options)
    assert s3.keys[KEY].data == before
    blz.to_blz(FRAME, "s3://bucket/n.blz", mode="a", storage=FILE, **options)
    assert len(blz.read_table("s3://bucket/n.blz", **options)) == ROWS


def test_the_layout_that_is_asked_for_is_that_of_the_table_or_refused(s3, options, tmp_path):
    objects = ObjectsInMemory()
    FRAME.to_blz(objects, storage=FILE)
    assert bytes(obstore.get(objects, "").bytes())[:4] == b"blpk"
    assert list(obstore.list(objects)) == []
    pd.testing.assert_frame_equal(blz.read_blz(objects), FRAME)
    with pytest.raises(ValueError, match="a table in memory is no file"):
        FRAME.to_blz(blz.MemoryStore(), storage=FILE)
    with pytest.raises(ValueError, match="the URL of the file"):
        FRAME.to_blz("s3://bucket", storage=FILE, **options)
    FRAME.to_blz("s3://bucket/d.blz", **options)
    FRAME.to_blz("s3://bucket/f.blz", storage=FILE, **options)
    before = set(s3.keys)
    with pytest.raises(blz.TableExistsError, match="is a directory, and a file cannot"):
        FRAME.to_blz("s3://bucket/d.blz", storage=FILE, **options)
    for mode in ("w", "a"):
        storage = blz.Storage(layout="directory")
        with pytest.raises(blz.TableExistsError, match="is a file, and a directory cannot"):
            FRAME.to_blz("s3://bucket/f.blz", mode=mode, storage=storage, **options)
    assert set(s3.keys) == before


def test_an_iterator_replaces_a_file_whole(s3, options):
    FRAME.to_blz(URL, storage=FILE, **options)
    blz.to_blz((FRAME[at : at + 500] for at in range(0, ROWS, 500)), URL, **options)
    pd.testing.assert_frame_equal(blz.read_blz(URL, **options), FRAME)
    assert list(s3.keys) == [KEY]


def test_a_table_is_copied_to_a_file_in_a_bucket(s3, monkeypatch, table):
    for name, value in (("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b"), ("REGION", "r")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
    blz.copy(table, URL, layout="file")
    assert list(s3.keys) == [KEY]
    pd.testing.assert_frame_equal(blz.read_blz(URL), FRAME)
    blz.copy(URL, "s3://bucket/d.blz", columns=["n"])
    assert blz.read_blz("s3://bucket/d.blz").n.tolist() == FRAME.n.tolist()
    blz.copy("s3://bucket/d.blz", "s3://bucket/f.blz", layout="file", columns=["n"])
    assert "f.blz" in s3.keys
    with blz.open("s3://bucket/f.blz") as t:
        assert t.verify().is_intact


# Other writers


def test_of_two_writers_none_is_lost(s3, options):
    FRAME.to_blz(URL, storage=FILE, **options)
    with blz.open(URL, "a", **options) as one, blz.open(URL, "a", **options) as other:
        one.delete([("n", "<", 5)])
        other.update({"word": "x"}, [("n", "==", 7)])
        transaction = one.transaction()
        tx = transaction.__enter__()
        tx.delete([("n", "==", 8)])
        other.delete([("n", "==", 9)])
        with pytest.raises(blz.ConflictError, match="make the change again"):
            transaction.__exit__(None, None, None)
        one.delete([("n", "==", 8)])
    found = blz.read_blz(URL, **options)
    assert found.n.tolist() == [5, 6, 7, *range(10, ROWS)]
    assert found.word[2] == "x"


def test_of_racing_writers_all_changes_are_there(s3, options):
    FRAME.to_blz(URL, storage=FILE, **options)

    def change(first):
        with blz.open(URL, "a", retries=1_000, **options) as t:
            for n in range(first, first + 5):
                t.delete([("n", "==", n)])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, [0, 100, 200, 300]))
    gone = {n for first in (0, 100, 200, 300) for n in range(first, first + 5)}
    assert blz.read_blz(URL, **options).n.tolist() == [n for n in range(ROWS) if n not in gone]
    with blz.open(URL, **options) as t:
        assert t.version == 21
        assert t.verify().is_intact


def test_of_two_creations_of_a_file_one_wins(s3, options):
    gate = threading.Barrier(4)

    def create(number):
        gate.wait()
        try:
            FRAME.assign(n=number).to_blz(URL, mode="x", storage=FILE, **options)
        except blz.TableExistsError:
            return None
        return number

    with ThreadPoolExecutor(4) as pool:
        won = [one for one in pool.map(create, range(4)) if one is not None]
    assert len(won) == 1
    assert set(blz.read_blz(URL, **options).n) == {*won}
    assert list(s3.keys) == [KEY]


# Replies that do not come


@pytest.mark.parametrize(
    "fault", [Fault.LOST, Fault.REFUSED, Fault.CONFLICT, Fault.DROPPED, Fault.CUT]
)
@pytest.mark.parametrize("verb", ["PUT", "GET"])
def test_a_reply_that_is_lost_is_no_lost_and_no_doubled_change_of_a_file(s3, options, fault, verb):
    with s3.failing(nth(fault, verb, KEY, 1)):
        FRAME.to_blz(URL, storage=FILE, **options)
    for number in range(1, 6):
        with blz.open(URL, "a", **options) as t:
            with s3.failing(nth(fault, verb, KEY, number)):
                t.delete([("n", "==", number)])
            assert t.version == number + 1
    with blz.open(URL, **options) as t:
        assert [one.number for one in t.versions()] == [1, 2, 3, 4, 5, 6]
        assert t["n"][:].to_pylist() == [0, *range(6, ROWS)]


def test_a_change_whose_reply_is_lost_is_found_behind_that_of_another_writer(s3, options):
    FRAME.to_blz(URL, storage=FILE, **options)
    answer, puts = s3.objects.answer, []

    def overtaken(request):
        reply = answer(request)
        if request.verb == "PUT" and request.key == KEY:
            puts.append(reply.status)
            if len(puts) == 1:
                (kept,) = [s3.keys[KEY]]
                data = blz_with_another_row(kept.data)
                put(s3, KEY, data)
        return reply

    def blz_with_another_row(data):
        objects = ObjectsInMemory()
        obstore.put(objects, "", data)
        with blz.open(objects, "a") as other:
            other.delete([("n", "==", 2)])
        return bytes(obstore.get(objects, "").bytes())

    with blz.open(URL, "a", **options) as t:
        s3.objects.answer = overtaken
        with s3.failing(nth(Fault.LOST, "PUT", KEY, 2)):
            t.update({"x": pc.add(pc.field("x"), 1)}, "n = 1")
        assert t.version == 2
        assert t.refresh()
        assert t.version == 3
    assert puts[0] == 200
    assert 412 in puts
    found = blz.read_blz(URL, **options)
    assert found.x.tolist() == (FRAME.x + (FRAME.n == 1))[FRAME.n != 2].tolist()


def test_with_many_faults_no_change_of_a_file_is_lost(s3, options):
    FRAME.to_blz(URL, storage=FILE, **options)
    faults = [Fault.LOST, Fault.REFUSED, Fault.DROPPED, Fault.CUT]
    with s3.failing(share(0.1, faults, seed=5)), ThreadPoolExecutor(3) as pool:

        def change(first):
            for n in range(first, first + 4):
                with blz.open(URL, "a", retries=1_000, **options) as t:
                    t.update({"x": pc.add(pc.field("x"), 1)}, f"n = {n}")

        list(pool.map(change, [0, 100, 200]))
    changed = [n for first in (0, 100, 200) for n in range(first, first + 4)]
    expected = FRAME.x + FRAME.n.isin(changed)
    assert blz.read_blz(URL, **options).x.tolist() == expected.tolist()


def test_a_large_file_has_time_to_be_sent(s3, monkeypatch):
    monkeypatch.setattr(object_bucket, "_REQUEST_SECONDS", 0.5)
    bucket = store_at(URL, options=options_of(s3))._bucket
    content = bucket.replace("", bytes(60_000), None)
    s3.bandwidth = 60_000
    with monkeypatch.context() as patched:
        patched.setattr(object_bucket, "_SLOWEST", 10_000)
        content = bucket.replace("", b"y" * 60_000, content)
    assert s3.keys[KEY].data == b"y" * 60_000
    with pytest.raises(blz.StorageError):
        bucket.replace("", b"z" * 60_000, content)


def test_a_server_that_does_not_compare_what_it_replaces_is_refused(s3, options):
    FRAME.to_blz(URL, storage=FILE, **options)
    answer = s3.objects.answer

    def careless(request):
        request.headers.pop("if-match", None)
        return answer(request)

    s3.objects.answer = careless
    before = dict(s3.keys)
    with blz.open(URL, "a", **options) as t, pytest.raises(blz.ReadOnlyError, match="If-Match"):
        t.delete([("n", "==", 1)])
    assert s3.keys == before


def test_a_change_that_fails_publishes_nothing(s3, options):
    FRAME.to_blz(URL, storage=FILE, **options)
    before = dict(s3.keys)

    def rows():
        yield FRAME
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        blz.to_blz(rows(), URL, **options)
    with pytest.raises(RuntimeError):
        blz.to_blz(rows(), "s3://bucket/n.blz", storage=FILE, **options)
    with blz.open(URL, "a", **options) as t:
        transaction = t.transaction()
        transaction.__enter__().delete([("n", "==", 1)])
        transaction.__exit__(RuntimeError, RuntimeError(), None)
        assert len(t.to_arrow()) == ROWS
        t.delete([("n", "==", 2)])
    assert set(s3.keys) == set(before)
    assert blz.read_blz(URL, **options).n.tolist() == [0, 1, *range(3, ROWS)]


def test_a_pin_is_released_while_another_thread_waits_for_a_reply(s3, options):
    FRAME.to_blz(URL, storage=FILE, **options)
    opened = blz.open(URL, **options)
    store = opened._snapshot.version.store
    with store._changed, ThreadPoolExecutor(1) as pool:
        # As garbage collection in a thread that has the reply.
        pool.submit(opened._snapshot._pinned.close).result(10)
    with store.lock(layout.manifest(1), shared=False, timeout=0):
        pass


def test_a_handle_is_pickled_and_a_child_of_a_fork_is_told(s3, options, monkeypatch):
    FRAME.to_blz(URL, storage=FILE, **options)
    with blz.open(URL, **options) as t:
        pickled = pickle.dumps(t)
        said = said_by_a_child(lambda fork: fork() or blz.open(URL, **options))
        assert said.startswith("StorageError")
    assert b"secret" not in pickled
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with pickle.loads(pickled) as again:
        pd.testing.assert_frame_equal(again.to_pandas(), FRAME)
