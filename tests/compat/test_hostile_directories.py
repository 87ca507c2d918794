"""A directory of another program may hold anything: an error or a table, never more memory.

The chunks have no checksums, so a change may give other values; a table has the rows it states.
"""

import json
import os
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from golden.old_writer import compressed, file_of, write_array, write_table
from support.bit_equality import same_table

ROWS = 300
COLUMNS = {
    "n": np.arange(ROWS),
    "text": np.array(["a", "äö", ""] * (ROWS // 3)),
    "at": np.arange(ROWS).astype("M8[ns]"),
    "pair": np.arange(2 * ROWS, dtype="f4").reshape(ROWS, 2),
}
MEMORY = 100 << 20


@pytest.fixture
def path(tmp_path):
    write_table(tmp_path / "old", COLUMNS, 130, {"till": 7})
    return tmp_path / "old"


def read(path):
    """Return the table, or None for one of our errors."""
    try:
        with blz.open(path) as table:
            table.verify()
            return table.to_arrow()
    except blz.BlzError:
        return None


def is_refused(path):
    """True if the table raises one of our errors; fail if that took much memory."""
    tracemalloc.start()
    try:
        return read(path) is None
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MEMORY


def changed(path, **values):
    """Change a document; a value of None removes its key."""
    document = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({key: one for key, one in document.items() if one is not None}))


@pytest.mark.parametrize("codec", ["lz4", "blosclz", "zstd", "zlib"])
@pytest.mark.parametrize("shuffle", [1, 2])
def test_a_changed_or_cut_chunk_is_an_error_or_a_table(codec, shuffle, tmp_path):
    write_table(tmp_path / "old", COLUMNS, 130, codec=codec, shuffle=shuffle)
    random = np.random.default_rng(0)
    whole = blz.read_table(tmp_path / "old")
    for name in ("n", "text"):
        file = tmp_path / "old" / name / "data" / "__1.blp"
        good = file.read_bytes()
        places = [0, 10, *range(16, 36, 2), *random.integers(0, len(good), 6).tolist()]
        for place in places:
            flipped = bytearray(good)
            flipped[place] ^= 1 << random.integers(0, 8)
            for data in (bytes(flipped), good[:place]):
                file.write_bytes(data)
                table = read(tmp_path / "old")
                assert table is None or table.schema == whole.schema
                assert table is None or table.num_rows == ROWS
                # No program reads these.
                assert place >= 16 or len(data) < len(good) or same_table(table, whole)
        file.write_bytes(good)


def test_a_changed_or_cut_document_is_an_error_or_a_table(path):
    whole = blz.read_table(path)
    for file in [*path.rglob("meta/*"), *path.rglob("__*__")]:
        good = file.read_bytes()
        for place in range(0, len(good), 5):
            for data in (good[:place], good[:place] + b"9" + good[place + 1 :], good + b"}"):
                file.write_bytes(data)
                table = read(path)
                assert table is None or table.num_rows <= 10 * ROWS
        file.write_bytes(good)
    assert same_table(blz.read_table(path), whole)


@pytest.mark.parametrize(
    "sizes",
    [
        {"shape": [10**12]},
        {"shape": [10**12], "nbytes": 8 * 10**12},
        {"shape": [1 << 62], "nbytes": 8 << 62},
        {"shape": [ROWS - 1]},
        {"shape": [ROWS + 1], "nbytes": 8 * ROWS + 8},
        {"shape": [130 * 9], "nbytes": 8 * 130 * 9},
        {"shape": [ROWS, 10**9]},
        {"shape": [ROWS, 0], "nbytes": 0},
        {"shape": [ROWS, *[1] * 40]},
        {"shape": []},
        {"shape": [-1]},
        {"shape": [True]},
        {"shape": [300.0]},
        {"shape": ["300"]},
        {"shape": ROWS},
        {"shape": None},
        {"nbytes": 7},
        {"nbytes": "2400"},
    ],
    ids=str,
)
def test_false_sizes_are_refused(path, sizes):
    changed(path / "n" / "meta" / "sizes", **sizes)
    assert is_refused(path)
    assert is_refused(path / "n")


@pytest.mark.parametrize(
    "storage",
    [
        {"chunklen": 0},
        {"chunklen": -130},
        {"chunklen": 10**30},
        {"chunklen": 129},
        {"chunklen": 1},
        {"chunklen": 130.0},
        {"chunklen": True},
        {"chunklen": None},
        {"dtype": "int32"},
        {"dtype": "<U999999999"},
        {"dtype": "|S0"},
        {"dtype": "|V99999999999999999999"},
        {"dtype": "O"},
        {"dtype": "__import__('os').system('true')"},
        {"dtype": [["a", "<i4"], ["b", "O"]]},
        {"dtype": "[" * 5000},
        {"dtype": None},
    ],
    ids=lambda storage: str(storage)[:40],
)
def test_false_storage_is_refused(path, storage):
    changed(path / "n" / "meta" / "storage", **storage)
    assert is_refused(path)
    assert is_refused(path / "n")


@pytest.mark.parametrize(
    "document",
    [
        {"names": ["../old/n"]},
        {"names": [".."]},
        {"names": ["."]},
        {"names": [""]},
        {"names": ["n\0"]},
        {"names": ["n", "n"]},
        {"names": [7]},
        {"names": "n"},
        {"names": ["n"], "dirs": {"n": "/etc/"}},
        {"names": ["n"], "dirs": {"n": ".."}},
        {"names": ["n"], "dirs": ["n"]},
        {"names": [f"x{n}" for n in range(100_000)]},
        ["n"],
    ],
    ids=lambda document: str(document)[:40],
)
def test_false_names_are_refused(path, document):
    (path / "__rootdirs__").write_text(json.dumps(document))
    assert is_refused(path)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "", "{", "\ud800", '{"a": 1' + "0" * 5000 + "}"]
)
def test_documents_that_are_no_json_are_refused(path, text):
    data = text.encode("utf-8", "surrogatepass")
    for file in ("n/meta/sizes", "n/meta/storage", "__attrs__", "__rootdirs__"):
        good = (path / file).read_bytes()
        (path / file).write_bytes(data)
        assert is_refused(path)
        (path / file).write_bytes(good)


def test_a_document_without_end_is_refused(path):
    (path / "__attrs__").write_bytes(b" " * (5 << 20))
    with pytest.raises(blz.LimitError, match="__attrs__"):
        blz.open(path)


@pytest.mark.parametrize("kind", ["symlink", "fifo", "directory"])
def test_what_is_no_file_is_refused(path, kind):
    file = path / "n" / "data" / "__0.blp"
    data = file.read_bytes()
    file.unlink()
    if kind == "symlink":
        (path.parent / "other").write_bytes(data)
        file.symlink_to(path.parent / "other")
    elif kind == "fifo":
        os.mkfifo(file)
    else:
        file.mkdir()
    with pytest.raises(blz.CorruptError, match=r"__0\.blp"):
        blz.read_table(path)


def test_text_that_is_none_is_refused(tmp_path):
    for number in (0xD800, 0x110000, 0xFFFFFFFF):
        write_array(tmp_path / str(number), np.array(["ab"] * 9), 9)
        raw = np.full(18, number, "<u4").tobytes()
        data = file_of(compressed(raw, np.dtype("<U2")))
        (tmp_path / str(number) / "data" / "__0.blp").write_bytes(data)
        with pytest.raises(blz.CorruptError, match="is no character"):
            blz.read_table(tmp_path / str(number))


@pytest.mark.parametrize("nbytes", [0, 1, 8 * 129, 8 * 131, 1 << 31, (1 << 32) - 1])
def test_a_chunk_of_another_size_than_its_rows_is_refused(path, nbytes):
    file = path / "n" / "data" / "__1.blp"
    data = bytearray(file.read_bytes())
    data[20:24] = nbytes.to_bytes(4, "little")
    file.write_bytes(data)
    with pytest.raises(blz.CorruptError, match=r"__1\.blp"):
        blz.read_table(path)


def test_the_rows_that_can_be_read_are_read_without_the_others(path, tuned):
    tuned(window_bytes=3000)
    whole = blz.read_table(path)
    (path / "text" / "data" / "__1.blp").unlink()
    with pytest.raises(blz.CorruptError, match="missing"):
        blz.read_table(path)
    with pytest.warns(UserWarning, match="are left out"):
        found = blz.read_table(path, on_corrupt="skip")
    expected = pa.concat_tables([whole.slice(0, 130), whole.slice(260)])
    assert same_table(found.replace_schema_metadata(), expected)
    assert blz.read_table(path, columns=["n"], on_corrupt="skip").num_rows == ROWS
    with blz.open(path) as table, pytest.warns(UserWarning, match="are left out"):
        assert pa.table(table.to_batches(on_corrupt="skip")).num_rows == expected.num_rows
    with pytest.warns(UserWarning, match="rows 130 to 260 of column 'text' are null"):
        found = blz.read_table(path, on_corrupt="null")
    assert found["n"].equals(whole["n"])
    texts = whole["text"].to_pylist()
    assert found["text"].to_pylist() == [*texts[:130], *[None] * 130, *texts[260:]]
    with blz.open(path) as table:
        (problem,) = table.verify().problems
    assert (problem.column, problem.start, problem.stop) == ("text", 130, 260)


def test_a_column_whose_documents_are_torn_leaves_the_others(path):
    (path / "at" / "meta" / "sizes").write_bytes(b"")
    with pytest.raises(blz.CorruptError, match=r"'at'.*a write was cut short"):
        blz.read_table(path)
    assert blz.read_table(path, columns=["n", "pair"]).num_rows == ROWS


def test_columns_of_different_lengths_are_named(path, tmp_path):
    write_array(tmp_path / "other", np.arange(ROWS + 5), 130)
    (path / "n").rename(tmp_path / "before")
    (tmp_path / "other").rename(path / "n")
    with pytest.raises(blz.CorruptError, match=r"'n': 305, 'text': 300.*old/n"):
        blz.open(path)
    assert blz.read_table(path / "n").num_rows == ROWS + 5
