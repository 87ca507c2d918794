"""`verify` reports every fault and its place, and finds every changed byte."""

import errno
import gc
import os
import re
import shutil
import subprocess
import sys

import blosc
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.check import usage
from blztable.engine.check import verify as verifying
from blztable.format.chunk import Compression
from blztable.format.line import PAGES_LAYER, Statistics
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from support import arrow_strategies as own
from support import tamper
from support.bit_equality import same, same_table
from support.stores import Hooked, write

pytestmark = pytest.mark.usefixtures("own_files")

quick = settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
small_cuts = st.builds(
    dict,
    row_group_rows=st.sampled_from([None, 1, 7, 8, 16, 20]),
    page_rows=st.sampled_from([None, 8, 16]),
    chunk_bytes=st.sampled_from([8, 64, 200, 1 << 20]),
    checksum=st.sampled_from(["crc32", "md5", "sha512"]),
)
# Row groups of 24, 24 and 16 rows, pages of 8, a chunk a page in most columns.
CUTS = {"row_group_rows": 24, "page_rows": 8, "chunk_bytes": 64}
N, TEXT, WORD, YES, REAL, AMOUNT = range(6)
DATA = pa.table(
    {
        "n": pa.array(range(100, 164), "i8"),
        "text": pa.array([None, *(f"äö {i}" for i in range(63))]),
        "word": pa.array(["ä", "b", None, "c"] * 16).dictionary_encode(),
        "yes": [True, False, None, True] * 16,
        "real": pa.array([1.5, float("nan"), None, -2.0] * 16, pa.float32()),
        "amount": pa.array([None, 5, -7, 9] * 16).cast(pa.decimal128(21, 2)),
    }
)
FIRST, SECOND, THIRD = (0, 24), (24, 48), (48, 64)
ALL = ((0, 64),)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("written") / "t.blz"
    write(LocalStore(path), DATA, **CUTS)
    return path


@pytest.fixture
def path(written, tmp_path):
    return shutil.copytree(written, tmp_path / "t.blz")


def report_on(place, **options) -> blz.Report:
    with blz.open(place) as table:
        return table.verify(**options)


def only_problem(place, **options) -> blz.Problem:
    """Return the only problem of the table; everything else must be intact."""
    report = report_on(place, **options)
    assert len(report.problems) == 1, str(report)
    assert not report
    return report.problems[0]


def rows_of(problem) -> tuple[int, int]:
    return problem.start, problem.stop


def change(file, position, mask=0xFF):
    data = bytearray(file.read_bytes())
    data[position] ^= mask
    file.write_bytes(data)


def recode(part, chunk, edit, typesize):
    """Put other values in a chunk, compressed as a writer does."""
    data = np.frombuffer(bytearray(blosc.decompress(part.chunks[chunk])), np.uint8)
    edit(data)
    part.chunks[chunk] = Compression().compress(data, typesize)


@quick
@given(table=own.tables(), cuts=small_cuts, full=st.booleans())
def test_what_was_written_is_intact(table, cuts, full):
    store = RamStore()
    write(store, table, **cuts)
    report = report_on(store, full=full)
    assert report, str(report)
    assert report.is_intact
    assert report.rows == table.num_rows
    assert report.columns == tuple(table.column_names)
    assert report.intact_rows() == (((0, table.num_rows),) if table.num_rows else ())


def test_what_was_checked_is_counted(written):
    report, shallow = report_on(written), report_on(written, full=False)
    files = sorted((written / "data").rglob("*.bin"))
    assert (report.files, report.nbytes) == (18, sum(file.stat().st_size for file in files))
    assert report.chunks > 50
    assert (shallow.files, shallow.chunks) == (18, 0)
    assert 0 < shallow.nbytes < report.nbytes


def test_no_changed_byte_escapes(path):
    with blz.open(path) as table:
        for number, file in enumerate(sorted((path / "data").rglob("*.bin"))):
            name = DATA.column_names[int(file.parent.name.removeprefix("col"))]
            data = file.read_bytes()
            for position in range(number % 19, len(data), 19):
                change(file, position)
                report = table[[name]].verify()
                assert report.problems, f"{file} at {position}"
                assert {one.file for one in report.problems} == {file.relative_to(path).as_posix()}
                for start, stop in report.intact_rows(name):
                    assert same(table[name][start:stop], DATA[name][start:stop])
                file.write_bytes(data)
        assert table.verify()


def test_a_changed_byte_of_an_open_table_s_manifest_is_told(path):
    file = path / "meta/manifest/00000000000000000001"
    data = file.read_bytes()
    with blz.open(path) as table:
        table.to_arrow()
        for position in range(0, len(data), 13):
            change(file, position, 0x01)
            problems = table.verify(full=False).problems
            assert {problem.file for problem in problems} == {
                "meta/manifest/00000000000000000001"
            }, position
            file.write_bytes(data)


@pytest.mark.parametrize("full", [True, False])
def test_a_missing_file_costs_its_rows_of_its_column(path, full):
    (path / "data/col1/__2__.bin").unlink()
    report = report_on(path, full=full)
    (problem,) = report.problems
    assert (problem.column, problem.position, problem.row_group) == ("text", TEXT, 1)
    assert (problem.file, problem.message) == ("data/col1/__2__.bin", "the file is missing")
    assert rows_of(problem) == SECOND
    assert not problem.is_readable
    assert report.intact_rows("text") == report.intact_rows() == (FIRST, THIRD)
    assert report.intact_rows("n") == ALL


def test_a_damaged_chunk_costs_its_pages(path):
    with tamper.editing(path) as table:
        offset = table.part(N, 0).offsets[1]
    change(path / "data/col0/__1__.bin", offset + 20)
    problem = only_problem(path)
    assert rows_of(problem) == (8, 16)
    assert problem.message.startswith("stream 'values', chunk 1: crc32 is")
    assert report_on(path).intact_rows() == ((0, 8), (16, 64))
    assert report_on(path, full=False)


def test_a_damaged_dictionary_costs_all_that_it_stands_for(path):
    with tamper.editing(path) as table:
        offset = table.part(WORD, 1).offsets[-1]
    change(path / "data/col2/__2__.bin", offset + 17)
    problem = only_problem(path)
    assert rows_of(problem) == SECOND
    assert "dictionary.values" in problem.message


def test_all_that_is_damaged_is_told(path):
    (path / "data/col0/__1__.bin").unlink()
    change(path / "data/col0/__3__.bin", -1)
    change(path / "data/col3/__2__.bin", 0)
    with tamper.editing(path) as table:
        table.lines[REAL]["rows"] = [24, 24, 17]
    report = report_on(path)
    found = [(problem.column, rows_of(problem)) for problem in report.problems]
    assert found == [("n", FIRST), ("n", THIRD), ("yes", SECOND), ("real", (0, 64))]
    assert report.intact_rows() == ()
    assert report.intact_rows("word") == ALL
    assert "4 problems" in str(report)
    assert len(str(report).splitlines()) == 6


def test_a_damaged_line_costs_its_column(path):
    file = path / "meta/manifest/00000000000000000001"
    change(file, file.read_bytes().index(b'{"path":1,') + 2)
    problem = only_problem(path)
    assert (problem.column, problem.row_group, rows_of(problem)) == ("text", None, (0, 64))
    assert problem.file == "meta/manifest/00000000000000000001"


def test_a_checksum_behind_a_chunk_is_compared_though_no_reader_here_looks(path):
    with tamper.editing(path) as table:
        end = table.part(N, 0).offsets[1]
    change(path / "data/col0/__1__.bin", end - 1)
    assert same_table(blz.read_table(path), DATA)
    problem = only_problem(path)
    assert problem.is_readable
    assert problem.message.startswith("stream 'values', chunk 0: crc32 behind the chunk is")
    assert report_on(path).intact_rows() == ALL


def test_bytes_behind_the_last_line_are_told(path):
    file = path / "meta/manifest/00000000000000000001"
    file.write_bytes(file.read_bytes() + b"x\n")
    problem = only_problem(path, full=False)
    assert (problem.message, problem.is_readable) == ("2 bytes after the last line", True)


def test_what_the_disk_cannot_read_is_a_problem_of_its_file():
    store = RamStore()
    error = blz.StorageError(errno.EIO, "input or\noutput error", "a file")
    write(store, DATA, **CUTS)

    def before(name, args):
        if name == "open" and args[0] == "data/col0/__2__.bin":
            raise error

    with blz.open(Hooked(store, before=before)) as table:
        (problem,) = table.verify().problems
    assert rows_of(problem) == SECOND
    assert problem.message == str(error)
    text = str(error).replace("\n", r"\n")
    assert str(problem) == f"data/col0/__2__.bin, column 'n', rows 24 to 48: {text}"


class FailingReader:
    """A reader whose calls of one name fail at these times, counted from 0."""

    def __init__(self, reader, call, times, error):
        self._reader, self._call, self._times, self._error = reader, call, times, error
        self._count = 0

    def __getattr__(self, name):
        if name == self._call:
            self._count += 1
            if self._count - 1 in self._times:
                raise self._error
        return getattr(self._reader, name)


def failing_at(store, key, call, times, error):
    """Return a store where a call of the reader of `key` fails at these times."""

    class FailingStore(Hooked):
        def open(self, opened):
            reader = store.open(opened)
            return FailingReader(reader, call, times, error) if opened == key else reader

    return FailingStore(store)


def test_an_error_that_comes_and_goes_is_told(tuned):
    tuned(small_part_bytes=0)
    store = RamStore()
    write(store, DATA, **CUTS)
    # Chunks are read with the other columns, then alone: both fail. The halves can be read.
    error = blz.StorageError(errno.EIO, "no answer", "a file")
    store = failing_at(store, "data/col0/__2__.bin", "read_into", (0, 1), error)
    problem = only_problem(store)
    assert (rows_of(problem), problem.is_readable) == (SECOND, False)


@pytest.mark.parametrize("call", ["read", "read_into"], ids=["opening", "reading"])
@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt()], ids=repr)
def test_what_is_no_damage_is_raised(error, call, tuned):
    tuned(small_part_bytes=0)
    store = RamStore()
    write(store, DATA, **CUTS)
    store = failing_at(store, "data/col0/__2__.bin", call, (0,), error)
    with blz.open(store) as table, pytest.raises(type(error)):
        table.verify()


@pytest.mark.parametrize(
    ("column", "chunk", "typesize", "position", "value", "message"),
    [
        (YES, 1, 1, 1, 2, "expected 0 or 1"),
        (TEXT, 1, 4, 0, 99, "item ends"),
        (WORD, 1, 4, 0, 7, "code is outside of 3 values"),
        (TEXT, -1, 1, 0, 0x80, "not UTF-8"),
    ],
    ids=["boolean", "end", "code", "text"],
)
def test_values_that_no_checksum_guards_are_told(
    path, column, chunk, typesize, position, value, message
):
    with tamper.editing(path) as table:
        recode(table.part(column), chunk, lambda data: data.__setitem__(position, value), typesize)
    problem = only_problem(path)
    assert message in problem.message
    assert (problem.position, problem.row_group) == (column, 0)
    assert not problem.is_readable


def test_pages_that_do_not_fit_their_items_are_told(path):
    with tamper.editing(path) as table:
        pages = table.part(TEXT).metadata["streams"][-1]["pages"]
        pages[0], pages[1] = pages[0] + 1, pages[1] - 1
    report = report_on(path)
    assert [(one.start, one.stop) for one in report.problems] == [(0, 8), (8, 16)]
    assert "item ends do not match the end of the bytes" in report.problems[0].message
    assert not any(problem.is_readable for problem in report.problems)


def test_pages_of_a_dictionary_are_compared_too(tmp_path):
    words = pa.array([f"word {at}" for at in range(20)]).dictionary_encode()
    write(LocalStore(tmp_path / "t.blz"), pa.table({"word": words}))
    with tamper.editing(tmp_path / "t.blz") as table:
        dictionary = table.part().metadata["dictionary"]
        dictionary["page_rows"] = 8
        dictionary["streams"][-1]["pages"] = [48, 54, 28]
    assert report_on(tmp_path / "t.blz")
    with tamper.editing(tmp_path / "t.blz") as table:
        dictionary = table.part().metadata["dictionary"]
        dictionary["streams"][-1]["pages"] = [49, 53, 28]
    problem = only_problem(tmp_path / "t.blz")
    assert problem.message == "stream 'dictionary.values': the page sizes do not match the items"


def test_one_file_for_two_row_groups_is_told(path):
    with tamper.editing(path) as table:
        line = table.lines[N]
        lists = [*line["streams"].values(), *(line[name] for name in line if name != "streams")]
        for values in lists:
            if isinstance(values, list) and len(values) == 3:
                values[1] = values[0]
    problems = [
        one
        for one in report_on(path).problems
        if "two row groups have the same file" in one.message
    ]
    assert [(one.column, one.is_readable) for one in problems] == [("n", False)]


def test_lines_that_contradict_the_head_are_told(path):
    with tamper.editing(path) as table:
        columns = table.head["columns"]
        columns["nbytes"] = [columns["nbytes"][N] + 1, *columns["nbytes"][1:]]
        columns["cbytes"] = [*columns["cbytes"][:TEXT], 7, *columns["cbytes"][TEXT + 1 :]]
        columns["next_k"] = [*columns["next_k"][:WORD], 3, *columns["next_k"][WORD + 1 :]]
        table.head["next_column"] = 5
    report = report_on(path, full=False)
    assert [problem.position for problem in report.problems] == [N, TEXT, WORD, AMOUNT]
    assert all(problem.is_readable for problem in report.problems)
    assert report.intact_rows() == ALL


def zone_map(part) -> Statistics:
    (layer,) = part.layers
    assert layer.name == PAGES_LAYER.encode()
    return Statistics.decode(layer.stored, 3)


def set_zone_map(part, **changes):
    now = zone_map(part)
    values = {name: list(getattr(now, name)) for name in now.__slots__}
    for name, (page, value) in changes.items():
        values[name][page] = value
    (layer,) = part.layers
    layer.stored = Statistics(*(tuple(value) for value in values.values())).encode()
    layer.nbytes = len(layer.stored)


def i8(value: int) -> bytes:
    return value.to_bytes(8, "little")


LIES = [
    (N, {"nulls": (1, 3)}, "0 nulls, the statistics say 3"),
    (REAL, {"nans": (1, 0)}, "2 NaNs, the statistics say 0"),
    (N, {"lowest": (1, i8(133))}, "lower bound 133 does not enclose"),
    (N, {"highest": (1, i8(138))}, "upper bound 138 does not enclose"),
    (N, {"highest": (1, b"abc")}, "upper bound: a bound of type int64 has 3 bytes, expected 8"),
    (TEXT, {"lowest": (1, "äö 9".encode())}, "lower bound b'.*' does not enclose"),
    (TEXT, {"highest": (1, b"zz")}, "upper bound b'zz' does not enclose"),
    (WORD, {"highest": (1, b"c")}, "upper bound b'c' does not enclose"),
    (YES, {"lowest": (1, b"\x01")}, "lower bound 1 does not enclose"),
    (
        REAL,
        {"highest": (1, np.float32("nan").tobytes())},
        "upper bound: a bound of type float is NaN",
    ),
    (AMOUNT, {"lowest": (1, (-699).to_bytes(16, "little", signed=True))}, "lower bound -699 "),
]


@pytest.mark.parametrize(("column", "changes", "message"), LIES, ids=lambda value: str(value)[:40])
def test_statistics_of_a_page_that_are_not_true_are_told(path, column, changes, message):
    with tamper.editing(path) as table:
        set_zone_map(table.part(column, 1), **changes)
    problem = only_problem(path)
    assert rows_of(problem) == (32, 40)
    assert problem.is_readable
    assert re.search(message, problem.message), problem.message


@pytest.mark.parametrize(
    ("column", "changes"),
    [
        (N, {"lowest": (1, None), "highest": (2, None)}),
        (N, {"lowest": (1, i8(0)), "highest": (1, i8(1 << 62))}),
        (TEXT, {"lowest": (1, b""), "highest": (1, "ÿ".encode())}),
        (TEXT, {"lowest": (1, "äö 10".encode()), "highest": (0, "äö 6".encode() + b"\0" * 50)}),
        (WORD, {"lowest": (1, b"a"), "highest": (1, "ä".encode())}),
        (AMOUNT, {"lowest": (1, (-(10**30)).to_bytes(16, "little", signed=True))}),
    ],
)
def test_wider_bounds_are_as_true(path, column, changes):
    with tamper.editing(path) as table:
        set_zone_map(table.part(column), **changes)
    report = report_on(path)
    assert report, str(report)


@pytest.mark.parametrize(("size", "is_true"), [(40, True), (41, False), (39, False)])
def test_bounds_of_items_may_be_closer_than_the_writer_s(tmp_path, size, is_true):
    store = LocalStore(tmp_path / "t.blz")
    write(store, pa.table({"a": ["x" * 40] * 24}), page_rows=8)
    with tamper.editing(store) as table:
        bound = b"x" * size
        part = table.part()
        set_zone_map(part, **{"lowest" if size >= 40 else "highest": (1, bound)})
    assert bool(report_on(store)) == is_true


def test_statistics_of_a_row_group_that_are_not_true_are_told(path):
    with tamper.editing(path) as table:
        table.lines[N]["nulls"] = [0, 1, 0]
        table.lines[N]["max"][2] = table.lines[N]["max"][0]
    report = report_on(path)
    found = [(problem.row_group, rows_of(problem)) for problem in report.problems]
    assert found == [(1, SECOND), (2, THIRD)]
    assert {problem.file for problem in report.problems} == {"meta/manifest/00000000000000000001"}
    assert report_on(path, full=False)


def test_statistics_that_cannot_be_read_are_told(path):
    with tamper.editing(path) as table:
        table.lines[N]["min"] = ["?", None, None]
        (layer,) = table.part(TEXT, 1).layers
        layer.stored, layer.nbytes = b"short", 5
    report = report_on(path, full=False)
    assert [rows_of(problem) for problem in report.problems] == [(0, 64), SECOND]
    assert all(problem.is_readable for problem in report.problems)


def test_rows_lost_twice_are_lost_once():
    lost = [(0, 8), (10, 60), (20, 30), (59, 61)]
    problems = [blz.Problem("", "a", 0, 0, *rows, "", False) for rows in lost]
    problems += [blz.Problem("", "a", 0, 0, 62, 63, "", True)]
    report = blz.Report(1, 64, ("a", "b"), True, 0, 0, 0, tuple(problems))
    assert report.intact_rows() == report.intact_rows("a") == ((8, 10), (61, 64))
    assert report.intact_rows("b") == ALL


def test_a_damaged_head_costs_all_columns_though_the_table_is_open(path):
    with blz.open(path) as table:
        change(path / "meta/manifest/00000000000000000001", 5)
        report = table.verify()
    assert len(report.problems) == 1
    assert report.intact_rows() == report.intact_rows("n") == ()


def test_a_narrowed_table_is_checked_in_its_columns_alone(path):
    (path / "data/col1/__2__.bin").unlink()
    with blz.open(path) as table:
        assert table[["n", "word"]].verify().columns == ("n", "word")
        assert table[["n", "word"]].verify()
        assert not table[["text"]].verify()


def test_a_closed_table_is_not_verified(path):
    with blz.open(path) as table:
        pass
    with pytest.raises(blz.ClosedError, match="closed"):
        table.verify()


def test_small_row_groups_are_read_together(monkeypatch):
    store = RamStore()
    blz.to_blz(
        {"n": range(600), "t": ["a", None, "b"] * 200}, store, storage=blz.Storage(row_group_rows=2)
    )
    reads = []
    read_nodes = verifying.read_nodes

    def counting(parts, selected):
        reads.append(len(selected[0]))
        return read_nodes(parts, selected)

    monkeypatch.setattr(verifying, "read_nodes", counting)
    with blz.open(store) as table:
        report = table.verify()
    assert report
    assert reads == [256, 44]
    assert report.files == 600


def limited(code: str, *arguments: object) -> str:
    """Return the output of a child process that may open 64 files."""
    code = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n" + code
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Bug: verify() reported damage when the process had no file descriptor left.
def test_too_few_descriptors_are_no_damage(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({f"c{i}": [i] for i in range(200)}, path, durability="process")
    code = """
import sys
import blztable as blz
try:
    print(blz.open(sys.argv[1]).verify().is_intact)
except blz.StorageError as error:
    print(error.strerror)
"""
    assert limited(code, path).strip() in ("True", "Too many open files")


# Bug: verify() kept the files of all columns open.
def test_a_verification_keeps_few_files_open(tmp_path, monkeypatch):
    path = tmp_path / "t.blz"
    blz.to_blz({f"c{i}": range(20_000) for i in range(200)}, path, durability="process")
    with blz.open(path) as table:
        most = []
        gc.collect()
        before = len(os.listdir("/dev/fd"))
        compare = usage.PartCheck.compare

        def counting(part):
            most.append(len(os.listdir("/dev/fd")) - before)
            compare(part)

        monkeypatch.setattr(usage.PartCheck, "compare", counting)
        assert table.verify()
    assert max(most) < 150
