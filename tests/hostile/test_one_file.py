"""Tables in one file, damaged or made by an attacker: our error or the same values, no other.

A damaged newest commit is an error; it never shows the version before it as the newest.
"""

import contextlib
import io
import json
import random
import struct
import warnings
import zlib

import numpy as np
import pyarrow as pa
import pytest

import blztable as blz
from blztable import tuning
from blztable.storage.one_file import commits, listing, records
from blztable.storage.one_file.listing import MOST_LINE
from blztable.storage.one_file.store import at
from support.fuzzed.changes import pieces_of

# Whoever opens a file that ends with no commit is warned.
pytestmark = pytest.mark.filterwarnings("ignore:.*never finished, or damaged")

TABLE = pa.table({"n": [1, 2, 3, None], "text": ["a", None, "", "é"]})
NEWEST = pa.concat_tables([TABLE, TABLE])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a file of two versions, of which the newest is sealed."""
    path = tmp_path_factory.mktemp("one") / "t.blz"
    blz.to_blz(TABLE, path, storage=blz.Storage(layout="file"))
    blz.to_blz(NEWEST, path)
    return path.read_bytes()


def test_the_file_ends_with_a_seal(data):
    assert data[-24:-16] == records.SEAL_MAGIC
    assert blz.read_table(data) == NEWEST


# No field of the file has fewer than four bytes, but for the text of its indexes.
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.storm)])
def test_a_flip_of_any_byte_is_an_error_or_leaves_the_newest_version(data, step):
    for place in range(0, len(data), step):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        try:
            found = blz.read_table(bytes(changed))
        except blz.BlzError:
            continue
        assert found == NEWEST, place


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.storm)])
def test_a_file_that_is_cut_anywhere_is_an_error_or_one_of_its_versions(data, step):
    for length in range(0, len(data), step):
        try:
            found = blz.read_table(data[:length])
        except blz.BlzError:
            continue
        assert found in (TABLE, NEWEST), length


def test_a_damaged_newest_commit_is_told_and_the_one_before_is_recovered(data, tmp_path):
    end = len(data) - records.SEAL_BYTES
    for place in (end - 1, end - 20, end - 60, end - 500):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(blz.CorruptError, match="the newest commit of the file is damaged"):
            blz.read_table(bytes(changed))
        assert blz.open(bytes(changed), version=1).to_arrow() == TABLE
        blz.copy(bytes(changed), tmp_path / f"{place}.blz", on_corrupt="skip")
        assert blz.read_table(tmp_path / f"{place}.blz") == TABLE


def test_a_damaged_newest_commit_is_not_cut_off_by_a_writer(data, tmp_path):
    path = tmp_path / "t.blz"
    changed = bytearray(data)
    changed[-100] ^= 1
    path.write_bytes(changed)
    for mode in ("a", "x"):
        with pytest.raises(blz.BlzError):
            blz.to_blz(TABLE, path, mode=mode)
    with blz.open(path, "a", version=1) as table:
        for change in (lambda: table.append(TABLE), lambda: table.delete([("n", ">", 0)])):
            with pytest.raises(blz.CorruptError, match="the newest commit of the file is damaged"):
                change()
        assert table.vacuum(keep=1).damaged == (2,)
    assert path.read_bytes() == changed


# Behind valid checksums


def resealed(data, change):
    """Return the file with another index in its newest commit, behind right checksums."""
    end = len(data) - records.SEAL_BYTES
    foot = records.decode_foot(data[end - records.FOOT_BYTES : end], end)
    first, *lines = data[foot.index : end - records.FOOT_BYTES].split(b"\n")
    index = [json.loads(first), *map(json.loads, lines)]
    changed = change(index)
    lines = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in changed[1:]]
    top = changed[0]
    if isinstance(top, dict) and top.get("line") == index[0]["line"]:
        top["line"] = list(map(len, lines))
    value = b"\n".join([top if isinstance(top, bytes) else json.dumps(top).encode(), *lines])
    at = foot.index - records.HEAD_BYTES
    block = [data[foot.block : at], *records.record(at, "", [value], records.INDEX)]
    foot = records.Foot(foot.block, foot.index, foot.previous, foot.front_crc)
    whole = data[: foot.block] + b"".join([*block, records.encode_foot(foot, block)])
    return whole + records.encode_seal(len(whole))


def of_line(number, key, change):
    def make(index):
        index[1 + number][key] = change(index[1 + number][key])
        return index

    return make


def of_first(key, change):
    def make(index):
        index[0][key] = change(index[0][key])
        return index

    return make


LIES = {
    "a place behind the end": of_line(2, "position", lambda old: [1 << 40] * len(old)),
    "a negative place": of_line(2, "position", lambda old: [-1] * len(old)),
    "a place of text": of_line(2, "position", lambda old: ["1"] * len(old)),
    "lengths that do not add up": of_line(2, "length", lambda old: [n + 1 for n in old]),
    "lists of other lengths": of_line(2, "length", lambda old: [*old, 0]),
    "a name twice": of_line(2, "name", lambda old: [old[0]] * max(len(old), 2)),
    "names that are numbers": of_line(2, "name", lambda old: list(range(len(old)))),
    "a prefix twice": of_first("prefix", lambda old: [old[0]] * len(old)),
    "more bytes than the file": of_first("bytes", lambda old: [1 << 40] * len(old)),
    "true for a number": of_first("bytes", lambda old: [True] * len(old)),
    "no prefixes": lambda index: [{"prefix": [], "line": [], "bytes": []}],
    "no JSON": lambda index: [b"{", *index[1:]],
    "another key": lambda index: [{**index[0], "more": []}, *index[1:]],
    "deep JSON": lambda index: [b"[" * 100_000, *index[1:]],
    "many brackets": lambda index: [{**index[0], "prefix": [[]] * 1000}, *index[1:]],
    "a line that is missing": lambda index: index[:-1],
}


def test_an_index_that_is_not_changed_is_read(data):
    assert blz.read_table(resealed(data, lambda index: index)) == NEWEST


@pytest.mark.parametrize("name", LIES)
def test_a_lie_in_the_index_is_an_error_of_ours(data, name):
    lied = resealed(data, LIES[name])
    with pytest.raises(blz.BlzError):
        blz.read_table(lied)
    # The version before may be whole.
    with contextlib.suppress(blz.BlzError, ValueError):
        blz.copy(io.BytesIO(lied), io.BytesIO(), on_corrupt="skip")


def test_values_that_lie_about_their_place_are_found_by_the_checksums_of_parts(data):
    def swapped(index):
        for line in index[1:]:
            line["position"] = [max(place - 1, 0) for place in line["position"]]
        return index

    with pytest.raises(blz.BlzError):
        blz.read_table(resealed(data, swapped))


@pytest.mark.parametrize("block", [0, 31, 1 << 40])
def test_a_foot_that_points_elsewhere_is_no_foot(data, block):
    end = len(data) - records.SEAL_BYTES
    foot = bytearray(data[end - records.FOOT_BYTES : end])
    struct.pack_into("<Q", foot, 8, block)
    with pytest.raises(blz.BlzError):
        blz.read_table(data[: end - records.FOOT_BYTES] + bytes(foot) + data[end:])


def test_false_feet_cost_no_more_than_a_few_reads(data, monkeypatch):
    reads = []
    read = commits._commit
    monkeypatch.setattr(commits, "_commit", lambda *args: reads.append(1) or read(*args))
    false = records.FOOT_MAGIC * 100_000
    with pytest.raises(blz.BlzError):
        blz.read_table(data[:600] + false)
    assert len(reads) < 2000


def test_a_record_that_claims_more_than_the_file_ends_the_walk(data):
    front = len(records.new_front("0" * 32))
    head = b"".join(records.record_head(front, "data/col0/__1__.bin", 1 << 60, 0))
    with pytest.raises(blz.TableNotFoundError):
        blz.read_table(data[:front] + head)


# Found by the fuzzer: a UnicodeDecodeError.
def test_a_key_that_is_no_text_ends_the_walk(data):
    front = len(records.new_front("0" * 32))
    key = b"data/col0/\xff.bin"
    head = records.HEAD.pack(b"blzr", records.VALUE, 0, len(key), front, 0, 0)
    crc = zlib.crc32(key, zlib.crc32(head))
    with pytest.raises(blz.TableNotFoundError):
        blz.read_table(data[:front] + head + struct.pack("<I", crc) + key)


def test_a_front_that_claims_too_much_metadata_is_none(data):
    lied = bytearray(data[: records.HEADER_BYTES])
    struct.pack_into("<I", lied, 24, records.MOST_METADATA + 1)
    with pytest.raises(blz.BlzError):
        blz.read_table(bytes(lied))


def test_a_long_line_is_refused_before_it_is_parsed(data):
    line = b'{"name":[' + b'"a",' * (MOST_LINE // 4) + b'"b"],"position":[],"length":[]}'
    with pytest.raises(blz.BlzError):
        blz.read_table(resealed(data, lambda index: [index[0], line, *index[2:]]))


def test_the_checksum_of_a_seal_is_checked():
    seal = bytearray(records.encode_seal(100))
    assert records.decode_seal(bytes(seal), 100) == 100
    assert records.decode_seal(bytes(seal), 101) is None
    assert records.decode_seal(bytes(seal), 99) is None
    seal[16] ^= 1
    assert records.decode_seal(bytes(seal), 100) is None
    seal[16] ^= 1
    seal[20] ^= 1
    assert records.decode_seal(bytes(seal), 100) is None
    seal[16] ^= 1
    assert zlib.crc32(bytes(seal[:20])) != struct.unpack_from("<I", seal, 20)[0]


@pytest.mark.parametrize(
    "cases",
    [60, pytest.param(50_000, marks=[pytest.mark.storm, pytest.mark.timeout(4 * 3600)])],
)
def test_any_random_change_is_an_error_or_leaves_one_of_the_versions(data, cases):
    draw = random.Random(cases)
    for case in range(cases):
        changed = pieces_of(draw, data)
        for read in (blz.read_table, lambda file: blz.read_table(file, on_corrupt="skip")):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    found = read(changed).replace_schema_metadata()
                except blz.BlzError:
                    continue
            # A damaged row group may be left out.
            assert found in (TABLE, NEWEST, TABLE[:0]), case


# Bug: the seal of a table within the bytes of a killed writer was taken for one of the file itself,
# so the file was called damaged.
def test_a_table_within_the_bytes_of_a_killed_writer_is_no_damage(data):
    head = b"".join(records.record_head(len(data), "data/col9/__1__.bin", 1 << 30, 0))
    inner = io.BytesIO()
    blz.to_blz({"x": np.random.default_rng(0).bytes(2 * len(data)).hex().split("0")}, inner)
    assert len(inner.getvalue()) > len(data)
    assert blz.read_table(data + head + inner.getvalue()) == NEWEST


def false_commits(count):
    """Return a file of many indexes, each with a foot whose block is the whole file before it."""
    data = bytearray(records.new_front("0" * records.ID_DIGITS))
    for _ in range(count):
        data += b"".join(records.record(len(data), "", [], records.INDEX))
        foot = records.Foot(records.HEADER_BYTES, len(data), 0, 0)
        data += records.encode_foot(foot, [bytes(data[records.HEADER_BYTES :])])
    return bytes(data) + bytes(10)


# Bug: each foot cost a read of all bytes before it, so 1.3 MB took 20 seconds.
def test_many_feet_that_claim_the_whole_file_cost_one_walk(monkeypatch):
    summed = []
    crc = commits._crc
    monkeypatch.setattr(
        commits, "_crc", lambda *place: summed.append(place[2] - place[1]) or crc(*place)
    )
    file = false_commits(300)
    with pytest.raises(blz.BlzError):
        blz.read_table(file)
    assert sum(summed) < 10 * len(file)


# Bug: the block of a foot was read as a whole, whatever it claimed.
def test_a_foot_that_claims_a_huge_file_takes_little_memory(tmp_path):
    path, size = tmp_path / "t.blz", 1 << 30
    with path.open("wb") as file:
        file.write(records.new_front("0" * records.ID_DIGITS))
        file.truncate(size)
        file.seek(size)
        foot = records.Foot(records.HEADER_BYTES, size - 100, 0, 0)
        file.write(records.encode_foot(foot, []))
    with path.open("rb") as file:
        reads = []

        class Counted:
            size = path.stat().st_size

            def read(self, offset, length):
                reads.append(length)
                file.seek(offset)
                return file.read(length)

        assert commits._commit(Counted(), Counted.size, "t") is None
    assert sum(reads) < 20 << 20


def test_an_index_of_more_bytes_than_the_limit_is_refused(data, monkeypatch, tmp_path):
    monkeypatch.setattr(listing, "MOST_INDEX", 100)
    with pytest.raises(blz.CorruptError, match="the index of the file has"):
        blz.read_table(data)
    with pytest.raises(blz.LimitError, match="use a directory"):
        blz.to_blz(TABLE, tmp_path / "t.blz", storage=blz.Storage(layout="file"))


# Bug: UnicodeDecodeError on reads and appends.
def test_a_key_that_is_not_utf_8_ends_the_walk(data, tmp_path):
    name = b"\xff\xfe"
    head = records.HEAD.pack(b"blzr", records.VALUE, 0, len(name), len(data), 3, 0)
    crc = struct.pack("<I", records.crc32(name, records.crc32(head)))
    path = tmp_path / "t.blz"
    path.write_bytes(data + head + crc + name + b"abc")
    assert blz.read_table(path) == NEWEST
    blz.to_blz(TABLE, path, mode="a")
    assert blz.read_table(path) == pa.concat_tables([NEWEST, TABLE])


def named(name, position):
    def make(index):
        index[1]["name"].append(name)
        index[1]["position"].append(position)
        index[1]["length"].append(100)
        index[0]["bytes"][0] += 100
        return index

    return make


def vacuumed(path):
    with blz.open(path, "a") as table:
        assert table.to_arrow() == NEWEST
        table.vacuum(keep=1)


# Bug: UnicodeEncodeError and AssertionError in a rewrite of the file.
@pytest.mark.parametrize(
    ("name", "position"), [("\ud800", 100), ("junk", 5), ("x" * 70_000, 100), ("junk", 100)]
)
def test_a_name_that_no_record_has_is_an_error_of_a_rewrite(data, tmp_path, name, position):
    path = tmp_path / "t.blz"
    path.write_bytes(resealed(data, named(name, position)))
    with pytest.raises(blz.CorruptError, match=r"not valid UTF-8|head of the record"):
        vacuumed(path)


def exchanged(index):
    """Let two values of a prefix have each other's places."""
    line = next(one for one in index[1:] if len(one["name"]) > 1)
    for key in ("position", "length"):
        line[key][:2] = line[key][1::-1]
    return index


def shorter(index):
    """Let a value of a prefix have one byte less, and another one more."""
    line = next(one for one in index[1:] if len(one["name"]) > 1)
    line["length"][:2] = [line["length"][0] - 1, line["length"][1] + 1]
    return index


@pytest.mark.parametrize("lie", [exchanged, shorter])
def test_a_rewrite_copies_no_value_under_the_head_of_another(data, tmp_path, lie):
    path = tmp_path / "t.blz"
    path.write_bytes(resealed(data, lie))
    before = path.read_bytes()
    with pytest.raises(blz.CorruptError, match="the head of the record is damaged"):
        at(path).reclaim()
    assert path.read_bytes() == before


# Bug: the file was taken for one of Bloscpack, because both begin with the same bytes.
@pytest.mark.parametrize("name", ["no JSON", "a prefix twice"])
def test_a_damaged_index_is_not_taken_for_a_file_of_another_program(data, tmp_path, name):
    path = tmp_path / "t.blz"
    path.write_bytes(resealed(data, LIES[name]))
    for mode in ("r", "a"):
        with pytest.raises(blz.CorruptError, match="the index of the file"):
            blz.open(path, mode)


# Bug: the checksum of the front was written and never compared.
@pytest.mark.parametrize("place", [0, 6, 8, 20, 40, len(records.new_front("0" * 32)) - 1])
@pytest.mark.parametrize("rows", [10, 100_000])
def test_a_flip_in_the_front_is_found_and_the_table_recovered(tmp_path, place, rows):
    path, table = tmp_path / "t.blz", pa.table({"n": np.random.default_rng(0).random(rows)})
    blz.to_blz(table, path, storage=blz.Storage(layout="file"))
    changed = bytearray(path.read_bytes())
    changed[place] ^= 1
    path.write_bytes(changed)
    if len(changed) <= tuning.current.tail_bytes:
        with pytest.raises(blz.CorruptError, match="the first bytes of the file are damaged"):
            blz.open(path)
        blz.copy(path, tmp_path / "r.blz", on_corrupt="skip")
        assert blz.read_table(tmp_path / "r.blz") == table
        return
    with blz.open(path, "a") as opened:
        (problem,) = opened.verify().problems
        assert "the first bytes of the file are damaged" in problem.message
        assert problem.is_readable
        opened.delete([("n", ">", 0)])
        with pytest.raises(blz.CorruptError, match="the first bytes"):
            opened.vacuum(keep=1)
