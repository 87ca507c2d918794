"""Damage in each file of a table: the same data, or our error that names the file.

The tests change bytes all over every file of a tiny table, and cut, remove, swap and replace files.
Another process reads the table, and that process must live.
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

import blztable as blz
from blztable.format.records import DIGEST_BYTES
from support import places

pytestmark = pytest.mark.usefixtures("own_files")

DATA = pa.table(
    {
        "n": pa.array([1, None, 3, 4] * 10, "i8"),
        "m": pa.array(range(40), "i8"),
        "m2": pa.array(range(100, 140), "i8"),
        "text": [f"äö {i}" for i in range(40)],
        "word": pa.array(["a", "b", None, "c"] * 10).dictionary_encode(),
        "yes": [True, False, None, True] * 10,
    }
)
# Mirrors are for people; the engine never reads them, nor the content of its lock files.
UNREAD = {"meta/sizes", "meta/storage", "meta/attributes", "meta/lock", "meta/flight"}

# Changes one file after the other on request, reads, restores the file, and reports the result.
READER = textwrap.dedent(
    """
    import json, os, sys
    import blztable as blz
    path, expected = sys.argv[1], blz.read_table(sys.argv[2])
    for line in sys.stdin:
        key, position, mask = json.loads(line)
        file = os.path.join(path, key)
        with open(file, "rb") as opened:
            data = opened.read()
        damaged = bytearray(data)
        damaged[position] ^= mask
        with open(file, "wb") as opened:
            opened.write(damaged)
        try:
            found = blz.read_table(path)
            assert found.equals(expected), "other data"
            result = None
        except blz.BlzError as error:
            result = str(error)
            if key not in result:
                result = "!" + result
        except BaseException as error:
            result = f"!{type(error).__name__}: {error}"
        with open(file, "wb") as opened:
            opened.write(data)
        print(json.dumps([key, position, mask, result]), flush=True)
    """
)


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """Make the undamaged table; tests damage copies of it."""
    path = tmp_path_factory.mktemp("intact") / "t.blz"
    blz.to_blz(DATA, path, storage=blz.Storage(row_group_rows=24, page_rows=8, attrs={"a": 1}))
    return path


@pytest.fixture
def path(intact, tmp_path):
    return Path(shutil.copytree(intact, tmp_path / "t.blz"))


def files(path) -> list[str]:
    found = [file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()]
    return sorted(set(found) - UNREAD)


def found_by_reader(path, intact, changes) -> list[list]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "error", "-c", READER, path, intact]
    lines = "".join(json.dumps(change) + "\n" for change in changes)
    done = subprocess.run(
        command, env=environment, input=lines, capture_output=True, text=True, timeout=120
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(changes), f"died at {changes[len(results)]}: {done.stderr}"
    return results


def chunk_bytes(path) -> set[tuple[str, int]]:
    """Return the place of every byte of the chunks of the table."""
    found = set()
    for column in range(DATA.num_columns):
        for group in range(2):
            key, chunks = places.chunks_of(path, column, group)
            found |= {(key, at) for start, stop in chunks for at in range(start, stop)}
    return found


@pytest.mark.parametrize("mask", [0x01, 0xFF])
def test_a_changed_byte_is_told_with_its_file_or_does_no_harm(path, intact, mask):
    step = 19
    changes = [
        (key, position, mask)
        for number, key in enumerate(files(path))
        for position in range(number % step, (path / key).stat().st_size, step)
    ]
    results = found_by_reader(path, intact, changes)
    assert [one for one in results if one[3] is not None and one[3].startswith("!")] == []
    # What a data file says of itself is for others: the records of the version say it, too.
    needed = chunk_bytes(path)
    for key, position, _, told in results:
        is_needed = not key.startswith("data/") or (key, position) in needed
        assert (told is not None) == is_needed, (key, position)
    assert any(told is None for _, _, _, told in results)


def assert_told(path, key):
    """Check that reading ends in our error, which names the file."""
    with pytest.raises(blz.BlzError) as caught:
        blz.read_table(path)
    assert key in str(caught.value)


def test_a_file_cut_anywhere_is_told(path):
    for key in files(path):
        data = (path / key).read_bytes()
        # The digest behind the last chunk is not read.
        last = len(data) - 1 - DIGEST_BYTES * key.startswith("data/")
        for length in {0, 1, 15, 16, 31, 32, len(data) // 2, len(data) - 16, last}:
            (path / key).write_bytes(data[:length])
            assert_told(path, key)
        (path / key).write_bytes(data)
    assert blz.read_table(path) == DATA


def test_a_file_with_more_at_its_end_is_told(path):
    for key in files(path):
        data = (path / key).read_bytes()
        (path / key).write_bytes(data + b"\0")
        if key.startswith("data/"):
            # No read takes what lies behind the chunks.
            assert blz.read_table(path) == DATA
            with blz.open(path) as table:
                assert [one.file for one in table.verify().problems] == [key]
        else:
            assert_told(path, key)
        (path / key).write_bytes(data)


def test_a_file_that_is_gone_is_told(path):
    for key in files(path):
        data = (path / key).read_bytes()
        (path / key).unlink()
        if key.startswith("data/"):
            with pytest.raises(blz.CorruptError, match=f"{key}.*missing"):
                blz.read_table(path)
        else:
            with pytest.raises(blz.CorruptError, match=f"{key}: the manifest is gone"):
                blz.read_table(path)
        (path / key).write_bytes(data)


@pytest.mark.parametrize(("one", "other"), [((1, 0), (2, 0)), ((1, 0), (1, 1)), ((3, 0), (4, 0))])
def test_files_that_changed_places_are_told(path, one, other):
    one, other = (places.chunks_of(path, *part)[0] for part in (one, other))
    first, second = (path / one).read_bytes(), (path / other).read_bytes()
    (path / one).write_bytes(second)
    (path / other).write_bytes(first)
    with pytest.raises(blz.CorruptError, match=f"{one}|{other}"):
        blz.read_table(path)


def directory(file):
    file.mkdir()


def fifo(file):
    os.mkfifo(file)


def link(file):
    file.symlink_to(file.parent / "kept")


def broken_link(file):
    file.symlink_to("nowhere")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("what", [directory, fifo, link, broken_link], ids=lambda f: f.__name__)
def test_what_is_no_regular_file_is_told_and_never_waited_for(path, what):
    for key in files(path):
        file = path / key
        file.rename(file.parent / "kept")
        what(file)
        assert_told(path, key)
        (file.rmdir if file.is_dir() and not file.is_symlink() else file.unlink)()
        (file.parent / "kept").rename(file)
    assert blz.read_table(path) == DATA


@pytest.mark.parametrize("key", ["data", "data/col0", "meta", "meta/manifest"])
def test_a_directory_that_is_a_link_is_not_followed(path, tmp_path, key):
    (path / key).rename(tmp_path / "elsewhere")
    (path / key).symlink_to(tmp_path / "elsewhere")
    assert_told(path, key)


def test_damaged_mirrors_disturb_nobody(path):
    for key in UNREAD:
        (path / key).write_bytes(b"\xff{")
    assert blz.read_table(path) == DATA
    blz.to_blz(DATA, path)
    assert json.loads((path / "meta/attributes").read_bytes()) == {}


@pytest.mark.parametrize("place", range(32))
def test_a_flipped_byte_of_a_header_is_told_by_verify_alone(path, place):
    key = places.chunks_of(path, 1)[0]
    places.flip_byte(path, key, place)
    assert blz.read_table(path) == DATA
    with blz.open(path) as table:
        for full in (True, False):
            (problem,) = table.verify(full=full).problems
            assert (problem.file, problem.is_readable) == (key, True)
