"""Remote stores: the promises that readers rely on, of each bucket; addresses and credentials."""

import io
import logging
import pickle
import subprocess
import sys
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import fsspec
import numpy as np
import obstore
import pandas as pd
import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore as ObjectsInMemory

import blztable as blz
from blztable.cli.command import main
from blztable.errors import AccessError
from blztable.format import layout
from blztable.format.version_file import REMOVED
from blztable.storage.resolve import store_at
from blztable.storage.store import KeyNotFound, ListedValue
from support.remote_places import FRAME, ROWS, options_of, put, put_table, upload
from support.s3_server import Fault, S3Server, nth, share
from support.stores import said_by_a_child


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Return the directory of a table with two versions."""
    path = tmp_path_factory.mktemp("remote") / "t.blz"
    storage = blz.Storage(row_group_rows=1_000, page_rows=256)
    FRAME[:2_000].to_blz(path, storage=storage)
    FRAME[2_000:].to_blz(path, mode="a")
    return path


def in_objects(table, tmp_path, request):
    objects = ObjectsInMemory()
    upload(table, objects)
    return objects, None


def in_s3(table, tmp_path, request):
    server = request.getfixturevalue("s3")
    put_table(server, table, "deep/t.blz")
    return "s3://bucket/deep/t.blz", options_of(server)


def in_memory_of_fsspec(table, tmp_path, request):
    files = fsspec.filesystem("memory")
    files.put(str(table), "/remote/t.blz", recursive=True)
    request.addfinalizer(lambda: files.rm("/remote", recursive=True))
    return "memory://remote/t.blz", None


def in_a_zip(table, tmp_path, request):
    path = tmp_path / "t.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in table.rglob("*"):
            if file.is_file():
                archive.write(file, f"t.blz/{file.relative_to(table)}")
    return f"zip://t.blz::{path}", None


PLACES = {
    "obstore": in_objects,
    "s3": in_s3,
    "fsspec memory": in_memory_of_fsspec,
    "zip": in_a_zip,
}


@pytest.fixture(params=PLACES)
def place(request, table, tmp_path):
    """Return the place of a copy of the table, and the options to reach it."""
    return PLACES[request.param](table, tmp_path, request)


def test_a_table_is_read_as_from_a_disk(place, table):
    url, options = place
    assert blz.exists(url, storage_options=options)
    pd.testing.assert_frame_equal(blz.read_blz(url, storage_options=options), FRAME)
    some = blz.read_blz(url, columns=["x"], filters=[("n", "<", 7)], storage_options=options)
    pd.testing.assert_frame_equal(some, FRAME[["x"]][:7])
    with blz.open(url, storage_options=options) as opened, blz.open(table) as local:
        assert opened.take([2_999, 0])["text"].to_pylist() == ["text 2999", "text 0"]
        assert opened.tail(3).equals(local.tail(3))
        assert [one.number for one in opened.versions()] == [1, 2]
        assert not opened.verify().problems
        assert opened.count(filters=[("word", "==", "a")]) == (FRAME.word == "a").sum()
    assert len(blz.read_table(url, version=1, storage_options=options)) == 2_000
    assert len(blz.dataset(url, storage_options=options).to_table()) == ROWS


def test_a_table_is_copied_to_a_disk(place, tmp_path):
    url, options = place
    assert blz.copy(url, tmp_path / "copy.blz", storage_options=options).rows == ROWS
    pd.testing.assert_frame_equal(blz.read_blz(tmp_path / "copy.blz"), FRAME)


def test_a_store_that_cannot_create_in_one_step_is_only_read(table, tmp_path):
    url, _ = in_a_zip(table, tmp_path, None)
    with blz.open(url, "a") as opened, pytest.raises(blz.ReadOnlyError, match="only read"):
        opened.append(FRAME[:1])
    for mode in ("a", "w"):
        with pytest.raises(blz.ReadOnlyError, match="only read"):
            FRAME.to_blz(url, mode=mode)
    assert len(blz.read_table(url)) == ROWS


def test_a_vacuum_needs_a_place_that_is_written(place):
    url, options = place
    with blz.open(url, "a", storage_options=options) as opened:
        if store_at(url, options=options).creates:
            assert opened.vacuum(keep=1).versions == (1,)
            assert not opened.verify(full=True).problems
        else:
            with pytest.raises(blz.ReadOnlyError):
                opened.vacuum(keep=1)


def test_where_nothing_is_there_is_no_table(place):
    url, options = place
    if not isinstance(url, str):
        url = ObjectsInMemory()
    else:
        url = url.replace("t.blz", "other.blz", 1)
    assert not blz.exists(url, storage_options=options)
    with pytest.raises(blz.TableNotFoundError):
        blz.open(url, storage_options=options)


def test_ranges_listings_and_missing_keys_are_as_promised(place, table):
    url, options = place
    store = store_at(url, options=options)
    key = layout.manifest(2)
    data = (table / key).read_bytes()
    for offset, length in ((0, 10), (5, len(data)), (len(data), 4), (len(data) + 9, 4), (3, 0)):
        assert store.get(key, offset, length) == data[offset : offset + length]
        with store.open(key) as reader:
            assert reader.size == len(data)
            target = bytearray(length)
            count = reader.read_into(offset, memoryview(target))
            assert target[:count] == data[offset : offset + length]
    assert store.get(key) == data
    assert sorted(store.list_names(layout.MANIFESTS)) == [f"{n:020d}" for n in (1, 2)]
    assert set(store.list_names("")) == {"data", "meta"}
    files = [path for path in table.rglob("*") if path.is_file()]
    found = list(store.entries(""))
    assert [one.key for one in found] == sorted(str(path.relative_to(table)) for path in files)
    assert {one.key: one.size for one in found}[key] == len(data)
    after = list(store.entries(layout.MANIFESTS, layout.manifest(1)))
    assert [one.key for one in after] == [key]
    assert all(isinstance(one, ListedValue) for one in after)
    assert list(store.entries("meta/nothing")) == store.list_names("meta/nothing") == []
    for call in (store.get, store.open):
        with pytest.raises(KeyNotFound):
            call(layout.manifest(3))
    with store.open(layout.manifest(3), 100) as reader, pytest.raises(KeyNotFound):
        reader.read(0, 1)


def test_what_was_fetched_is_read_once_and_forgotten_at_the_end(s3, table):
    put_table(s3, table, "t.blz")
    store = store_at("s3://bucket/t.blz", options=options_of(s3))
    key, whole = layout.manifest(1), (table / layout.manifest(1)).read_bytes()
    ranges = [(key, 0, 10), (key, 20, 30), (key, 400, 500)]
    with s3.recorded() as log, store.fetch(ranges, gap=10):
        assert store.get(key, 0, 30) == whole[:30]
        with store.open(key, 1) as reader:
            assert reader.read(400, 100) == whole[400:500]
            assert reader.read(25, 3) == whole[25:28]
    assert sorted(one.range for one in log) == ["0-29", "400-499"]
    with s3.recorded() as log:
        assert store.get(key, 0, 30) == whole[:30]
    assert len(log) == 1
    with s3.recorded() as log, store.fetch([(key, 0, 10)]), store.fetch([(key, 2, 8)]):
        assert store.get(key, 0, 20) == whole[:20]
    assert [one.range for one in log] == ["0-9", "10-19"]


def test_long_ranges_are_several_requests(s3, tuned):
    tuned(piece_bytes=1000)
    put(s3, "t/value", bytes(range(256)) * 10)
    store = store_at("s3://bucket/t", options=options_of(s3))
    with s3.recorded() as log, store.fetch([("value", 10, 2_510)]):
        assert store.get("value", 10, 2_500) == (bytes(range(256)) * 10)[10:2_510]
    assert len(log) == 3


# Errors, and what they tell.


def test_a_file_that_is_gone_is_damage_that_names_its_rows(s3, table):
    put_table(s3, table, "t.blz")
    gone = next(key for key in s3.keys if "/data/" in key)
    del s3.keys[gone]
    with pytest.raises(blz.CorruptError, match=r"missing; it has rows [\d,]+ to"):
        blz.read_blz("s3://bucket/t.blz", storage_options=options_of(s3))


def test_a_version_that_is_removed_while_it_is_read_is_no_damage(s3, table):
    put_table(s3, table, "t.blz")
    with blz.open("s3://bucket/t.blz", version=1, storage_options=options_of(s3)) as opened:
        put(s3, f"t.blz/{layout.manifest(1)}", REMOVED)
        for key in [one for one in s3.keys if "/data/" in one]:
            del s3.keys[key]
        with pytest.raises(blz.TableNotFoundError, match="removed while it was read"):
            opened.to_arrow()


def test_a_newest_version_that_is_removed_after_the_list_is_looked_for_again(s3, table):
    put_table(s3, table, "t.blz")
    two = s3.keys.pop(f"t.blz/{layout.manifest(2)}").data
    store = store_at("s3://bucket/t.blz", options=options_of(s3))
    get = store._bucket.get

    def replaced(key, *some):
        if key == layout.manifest(1):
            put(s3, f"t.blz/{layout.manifest(1)}", REMOVED)
            put(s3, f"t.blz/{layout.manifest(2)}", two)
        return get(key, *some)

    store._bucket.get = replaced
    with blz.open(store) as opened:
        assert opened.version == 2


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.DROPPED, Fault.CUT])
def test_a_request_that_fails_once_is_made_again(s3, table, fault):
    put_table(s3, table, "t.blz")
    with s3.failing(nth(fault, "GET", "t.blz"), nth(fault, "GET", "data/", 2)):
        found = blz.read_blz("s3://bucket/t.blz", storage_options=options_of(s3))
    pd.testing.assert_frame_equal(found, FRAME)


def test_a_bucket_that_is_not_there_is_told(s3):
    with pytest.raises(blz.StorageError, match="no such bucket"):
        blz.open("s3://another/t.blz", storage_options=options_of(s3))


def test_a_key_that_is_refused_is_told_without_the_key(table):
    with S3Server(access_key="right") as server:
        options = {**options_of(server), "key": "wrong-key", "secret": "wrong-secret"}
        with pytest.raises(AccessError, match="was refused") as caught:
            blz.open("s3://bucket/t.blz", storage_options=options)
    assert "wrong" not in str(caught.value)
    assert caught.value.__cause__ is None


SECRET = "hidden-4711"


def test_no_secret_leaves_the_process_or_is_told(s3, table, caplog):
    put_table(s3, table, "t.blz")
    options = {**options_of(s3), "key": SECRET, "secret": SECRET, "token": SECRET}
    told = io.StringIO()
    with (
        caplog.at_level(logging.DEBUG),
        blz.open("s3://bucket/t.blz", storage_options=options) as opened,
    ):
        store = opened._snapshot.version.store
        told.write(repr([opened, store, store._bucket, opened.path, opened.dataset()]))
        pickled = pickle.dumps([opened, opened.dataset(), store])
        with s3.failing(share(1.0, [Fault.REFUSED])), pytest.raises(blz.StorageError) as caught:
            store.get("meta/nothing/at/all")
        told.write(repr(caught.getrepr(style="long")) + str(caught.value))
    assert SECRET not in told.getvalue() + caplog.text
    assert SECRET.encode() not in pickled


def test_a_handle_is_opened_again_with_the_credentials_of_the_environment(s3, table, monkeypatch):
    put_table(s3, table, "t.blz")
    with blz.open("s3://bucket/t.blz", storage_options=options_of(s3)) as opened:
        pickled = pickle.dumps(opened)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with pickle.loads(pickled) as again:
        assert len(again.to_arrow()) == ROWS


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("s3://bucket/t.blz", {"keys": "a"}, "storage_options has no 'keys' for s3"),
        ("s3://bucket/t.blz", {"client_kwargs": {"x": 1}}, "storage_options has no 'x'"),
        ("az://container/t.blz", {"key": "a"}, "storage_options has no 'key' for az"),
        ("memory://t.blz", {"key": "a"}, "storage_options has no 'key' for memory"),
        ("nowhere://t.blz", {}, "there is no store for nowhere://"),
        ("s3://user:word@bucket/t.blz", {}, "s3://bucket/t.blz: the URL has credentials"),
        ("https://host/t.blz?sig=word", {}, "https://host/t.blz: the URL has credentials"),
        ("t.blz", {"key": "a"}, "storage_options are of remote stores"),
    ],
)
def test_what_is_not_known_is_refused_by_name(url, options, told):
    for use in (blz.open, blz.exists, blz.read_blz, blz.read_table, blz.dataset):
        with pytest.raises(ValueError, match=told.replace("?", r"\?")) as caught:
            use(url, storage_options=options)
        assert "word" not in str(caught.value)


def test_a_child_of_a_fork_is_told_instead_of_hanging(s3, table):
    put_table(s3, table, "t.blz")
    with blz.open("s3://bucket/t.blz", storage_options=options_of(s3)) as opened:
        opened.to_arrow()
        said = said_by_a_child(lambda fork: fork() or opened.to_arrow())
        assert said.startswith("StorageError")
        assert "forked" in said
        again = {"storage_options": options_of(s3)}
        said = said_by_a_child(lambda fork: fork() or blz.open("s3://bucket/t.blz", **again))
        assert said.startswith("StorageError")


def test_the_command_line_reads_a_url(table, tmp_path, capsys):
    url, _ = in_a_zip(table, tmp_path, None)
    assert main(["head", url]) == 0
    assert "text 0" in capsys.readouterr().out


# Rounds: requests that follow one another.


@pytest.fixture
def far(s3, table):
    """Return a server with a latency, and the options to reach the table in it."""
    put_table(s3, table, "t.blz")
    options = {"storage_options": options_of(s3)}
    blz.read_blz("s3://bucket/t.blz", **options)
    s3.latency = 0.2
    return s3, options


def test_everything_is_read_in_three_rounds(far):
    s3, options = far
    with s3.recorded() as log:
        blz.read_blz("s3://bucket/t.blz", **options)
    assert (len(log), log.rounds) == (15, 3)


def test_a_filter_is_answered_in_three_rounds(far):
    s3, options = far
    with s3.recorded() as log:
        found = blz.read_blz("s3://bucket/t.blz", filters=[("x", ">", 2)], **options)
    assert len(found) == (FRAME.x > 2).sum()
    assert (len(log), log.rounds) == (15, 3)


def test_rows_are_taken_in_one_round_from_an_open_table(far):
    s3, options = far
    with blz.open("s3://bucket/t.blz", **options) as opened, s3.recorded() as log:
        opened.take([0, 1_500, 2_999])
    assert (len(log), log.rounds) == (12, 1)


def test_the_leaves_of_all_row_groups_are_read_in_one_round(s3, tmp_path, tuned):
    tuned(leaf_entries=4, leaf_few=2)
    path = tmp_path / "t.blz"
    storage = blz.Storage(row_group_rows=8, page_rows=8)
    blz.to_blz({"n": range(8 * 60)}, path, storage=storage)
    put_table(s3, path, "t.blz")
    options = {"storage_options": options_of(s3)}
    with blz.open("s3://bucket/t.blz", **options) as opened:
        s3.latency = 0.3
        with s3.recorded() as log:
            assert opened.to_arrow()["n"].to_pylist() == list(range(8 * 60))
    # Those that the manifest names, and those that leaves name.
    leaves = log.of("GET", "meta/leaf")
    assert (len(leaves), leaves.rounds) == (15 + 3, 2)
    s3.latency = 0
    with blz.open("s3://bucket/t.blz", **options) as opened:
        s3.latency = 0.3
        with s3.recorded() as log:
            assert opened.to_arrow(filters=[("n", "==", 100)]).num_rows == 1
    assert log.rounds == 3
    assert len(log) <= 4


def test_no_more_bytes_are_ahead_of_the_decoders_than_said(s3, tmp_path, tuned, monkeypatch):
    draw = np.random.default_rng(0)
    path = tmp_path / "t.blz"
    frame = pd.DataFrame({f"x{n}": draw.normal(size=20_000) for n in range(8)})
    frame.to_blz(path, storage=blz.Storage(row_group_rows=2_000))
    put_table(s3, path, "t.blz")
    tuned(ahead_bytes=400_000, matrix_columns_read=1_000)
    with blz.open("s3://bucket/t.blz", storage_options=options_of(s3)) as opened:
        fetched = opened._snapshot.version.store._fetched
        most = 0

        def counted(ranges, gap, ask=fetched.ask):
            nonlocal most
            asked = ask(ranges, gap)
            pieces = [piece for some in fetched._pieces.values() for piece in some]
            most = max(most, sum(piece.stop - piece.start for piece in pieces))
            return asked

        monkeypatch.setattr(fetched, "ask", counted)
        assert opened.to_pandas().equals(frame)
        assert fetched._pieces == {}
    assert 200_000 < most <= 400_000


def test_obstore_is_not_imported_without_a_url():
    code = (
        "import sys, blztable as blz; blz.to_blz({'a': [1]}, blz.MemoryStore()); "
        "print({'obstore', 'fsspec'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# Web servers, which list nothing.


def test_a_table_on_a_web_server_is_read(s3, table):
    put_table(s3, table, "t.blz")
    url = f"{s3.url}/bucket/t.blz"
    assert blz.exists(url)
    assert not blz.exists(f"{s3.url}/bucket/other.blz")
    pd.testing.assert_frame_equal(blz.read_blz(url), FRAME)
    assert blz.read_blz(url, columns=["n"], filters=[("n", "<", 3)])["n"].tolist() == [0, 1, 2]
    assert len(blz.read_table(url, version=1)) == 2_000
    with blz.open(url) as opened:
        # Older versions are not found, and none is damaged.
        assert [(one.number, one.damage) for one in opened.versions()] == [(2, None)]
    with pytest.raises(blz.ReadOnlyError):
        FRAME.to_blz(url)


def test_a_table_of_a_bucket_is_read_over_http_by_its_latest(s3):
    options = {"storage_options": options_of(s3)}
    FRAME[:1_000].to_blz("s3://bucket/t.blz", **options)
    with blz.open("s3://bucket/t.blz", "a", **options) as opened:
        opened.append(FRAME[1_000:])
        opened._snapshot.version.store.close()
    pd.testing.assert_frame_equal(blz.read_blz(f"{s3.url}/bucket/t.blz"), FRAME)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def plain(table):
    """Return the address of a web server that sends whole files only."""
    handler = partial(_Quiet, directory=str(table.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_without_ranges_serves_small_files(plain, monkeypatch):
    pd.testing.assert_frame_equal(blz.read_blz(f"{plain}/t.blz"), FRAME)
    monkeypatch.setattr("blztable.storage.remote.object_bucket._MOST_CUT", 100)
    with pytest.raises(blz.StorageError, match="sends no ranges"):
        blz.read_blz(f"{plain}/t.blz")


def test_a_read_that_fails_at_an_address_with_416_in_it_is_no_end_of_the_value(s3, monkeypatch):
    store = store_at("s3://bucket/t.blz", options=options_of(s3))
    put(s3, "t.blz/data/col416/__416__.bin", b"abc")
    assert store.get("data/col416/__416__.bin", 7, 2) == b""

    def failing(*_, **__):
        raise GenericError("Error performing GET http://127.0.0.1:41600/416: 503 Slow Down")

    monkeypatch.setattr(obstore, "get", failing)
    with pytest.raises(blz.StorageError, match="503 Slow Down"):
        store.get("data/col416/__416__.bin", 0, 2)
