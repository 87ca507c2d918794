"""`verify` reports every fault and its place, and finds every changed byte."""

import errno
import gc
import os
import shutil
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.check import parts as checking
from blztable.format.bounds import ANY, NONE
from blztable.format.records import ITEMS_VALUES, LENGTHS, NUMBERS, VALUES
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from support import arrow_strategies as own
from support import places, tamper
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


def file_of(path, column, group):
    return path / places.chunks_of(path, column, group)[0]


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
    assert report.chunks == 54
    assert (shallow.files, shallow.chunks) == (18, 0)
    assert 0 < shallow.nbytes < report.nbytes


def test_no_changed_byte_escapes(path):
    with blz.open(path) as table:
        for number, file in enumerate(sorted((path / "data").rglob("*.bin"))):
            name = DATA.column_names[int(file.parent.name.removeprefix("col"))]
            data = file.read_bytes()
            for position in range(number % 29, len(data), 29):
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
        for position in range(0, len(data), 29):
            change(file, position, 0x01)
            problems = table.verify(full=False).problems
            assert {problem.file for problem in problems} == {
                "meta/manifest/00000000000000000001"
            }, position
            file.write_bytes(data)


@pytest.mark.parametrize("full", [True, False])
def test_a_missing_file_costs_its_rows_of_its_column(path, full):
    file = file_of(path, TEXT, 1)
    file.unlink()
    report = report_on(path, full=full)
    (problem,) = report.problems
    assert (problem.column, problem.position, problem.row_group) == ("text", TEXT, 1)
    assert problem.file == file.relative_to(path).as_posix()
    assert problem.message == "the file is missing"
    assert rows_of(problem) == SECOND
    assert not problem.is_readable
    assert report.intact_rows("text") == report.intact_rows() == (FIRST, THIRD)
    assert report.intact_rows("n") == ALL


def test_a_damaged_chunk_costs_its_rows(path):
    places.flip(path, N, 0, chunk=1)
    problem = only_problem(path)
    assert rows_of(problem) == (8, 16)
    assert problem.message.startswith("stream 'values', chunk 1: crc32 is")
    assert report_on(path).intact_rows() == ((0, 8), (16, 64))
    assert report_on(path, full=False)


def test_damaged_items_cost_all_that_they_stand_for(path):
    places.flip(path, WORD, 1, chunk=3, byte=17)
    problem = only_problem(path)
    assert rows_of(problem) == SECOND
    assert "items.values" in problem.message


def test_all_that_is_damaged_is_told(path):
    with tamper.editing(path) as table:
        table.part(AMOUNT, 1).record["page"] = 99
    file_of(path, N, 0).unlink()
    change(file_of(path, N, 2), -1)
    change(file_of(path, YES, 1), 0)
    report = report_on(path)
    found = [(problem.column, rows_of(problem)) for problem in report.problems]
    assert found == [("n", FIRST), ("n", THIRD), ("yes", SECOND), ("amount", (0, 64))]
    assert [problem.is_readable for problem in report.problems] == [False, True, True, False]
    assert report.intact_rows() == ()
    assert report.intact_rows("yes") == report.intact_rows("word") == ALL
    assert "4 problems" in str(report)
    assert len(str(report).splitlines()) == 6


def test_damaged_records_cost_their_column(path):
    manifest = path / "meta/manifest/00000000000000000001"
    with tamper.editing(path) as table:
        page = table.part(TEXT, 1).pages[:1].tobytes()
    change(manifest, manifest.read_bytes().index(page))
    problem = only_problem(path)
    assert (problem.column, problem.row_group, rows_of(problem)) == ("text", None, (0, 64))
    assert problem.file == "meta/manifest/00000000000000000001"
    assert "the crc32 of column 1 is" in problem.message


def test_a_checksum_behind_a_chunk_is_compared_though_no_reader_here_looks(path):
    key, chunks = places.chunks_of(path, N, 0)
    change(path / key, chunks[0][1])
    assert same_table(blz.read_table(path), DATA)
    problem = only_problem(path)
    assert problem.is_readable
    assert problem.message == "the file says other records of column 'n' than the leaf: chunks"
    assert report_on(path).intact_rows() == ALL


def metadata(path, **fields):
    with tamper.editing(path) as table:
        table.file(column=REAL).metadata.update(fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"uuid": "another"}, "the file says that it is of the table another, not "),
        ({"number": 99}, "the file says that its number is 99, not "),
        ({"nodes": [[7]]}, "the file says that its columns are ((7,),), not ((4,),)"),
        ({"dtypes": ["<i4"]}, "the file says that column 'real' has values of '<i4', not '<f4'"),
    ],
)
@pytest.mark.parametrize("full", [True, False])
def test_a_file_that_says_other_things_than_the_leaf_is_told(path, fields, message, full):
    metadata(path, **fields)
    problem = report_on(path, full=full).problems[0]
    assert problem.message.startswith(message)
    assert (problem.column, rows_of(problem), problem.is_readable) == ("real", FIRST, True)
    assert same_table(blz.read_table(path), DATA)


def test_pages_that_the_file_has_not_are_told(path):
    with tamper.editing(path) as table:
        pages = dict(table.file(column=N).metadata["pages"])
        pages["max"] = [one + 1 for one in pages["max"]]
        table.file(column=N).metadata["pages"] = pages
    problem = only_problem(path, full=False)
    assert problem.message == "the file says other records of column 'n' than the leaf: pages"


def test_bytes_behind_the_manifest_are_told(path):
    file = path / "meta/manifest/00000000000000000001"
    with blz.open(path) as table:
        file.write_bytes(file.read_bytes() + b"x\n")
        problem = table.verify(full=False).problems[0]
    assert problem.file == "meta/manifest/00000000000000000001"
    assert "a version ends at" in problem.message


def test_what_the_disk_cannot_read_is_a_problem_of_its_file():
    store = RamStore()
    error = blz.StorageError(errno.EIO, "input or\noutput error", "a file")
    write(store, DATA, **CUTS)
    key, _ = places.chunks_of(store, N, 1)

    def before(name, args):
        if name == "open" and args[0] == key:
            raise error

    with blz.open(Hooked(store, before=before)) as table:
        problems = table.verify().problems
    assert {(rows_of(one), one.message) for one in problems} == {(SECOND, str(error))}
    text = str(error).replace("\n", r"\n")
    assert str(problems[-1]) == f"{key}, column 'n', rows 24 to 48: {text}"


class FailingReader:
    """A reader whose calls of one name fail at these times, counted from 0."""

    def __init__(self, reader, call, times, error):
        self._reader, self._call, self._times, self._error = reader, call, times, error
        self._count = 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._reader.close()

    def __getattr__(self, name):
        if name == self._call:
            self._count += 1
            if self._count - 1 in self._times:
                raise self._error
        return getattr(self._reader, name)


def failing_at(store, key, call, times, error):
    """Return a store where a call of the reader of `key` fails at these times."""

    class FailingStore(Hooked):
        def open(self, opened, size=None):
            reader = store.open(opened, size)
            return FailingReader(reader, call, times, error) if opened == key else reader

    return FailingStore(store)


def test_an_error_that_comes_and_goes_is_told():
    store = RamStore()
    write(store, DATA, **CUTS)
    # The part is read whole; its halves can be read.
    error = blz.StorageError(errno.EIO, "no answer", "a file")
    store = failing_at(store, places.chunks_of(store, N, 1)[0], "read_into", (0,), error)
    problem = only_problem(store)
    assert (rows_of(problem), problem.is_readable) == (SECOND, False)


@pytest.mark.parametrize("call", ["read", "read_into"], ids=["opening", "reading"])
@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt()], ids=repr)
def test_what_is_no_damage_is_raised(error, call):
    store = RamStore()
    write(store, DATA, **CUTS)
    store = failing_at(store, places.chunks_of(store, N, 1)[0], call, (0,), error)
    with blz.open(store) as table, pytest.raises(type(error)):
        table.verify()


@pytest.mark.parametrize(
    ("column", "stream", "position", "value", "message", "rows"),
    [
        (YES, VALUES, 9, 2, "a value is no boolean", (8, 16)),
        (TEXT, LENGTHS, 9, 99, "lengths", (8, 16)),
        (WORD, LENGTHS, 9, 7, "codes: one numbers no item", (8, 16)),
        (WORD, ITEMS_VALUES, 0, 0xFF, "UTF-8", FIRST),
        (TEXT, VALUES, 0, 0x80, "UTF-8", (0, 8)),
    ],
    ids=["boolean", "length", "code", "item", "text"],
)
def test_values_that_no_checksum_guards_are_told(
    path, column, stream, position, value, message, rows
):
    with tamper.editing(path) as table:
        one = table.part(column).streams[stream]
        data = one.data()
        data[position] = value
        one.set_data(data)
    report = report_on(path)
    assert report.problems
    for problem in report.problems:
        assert message in problem.message
        assert (problem.position, problem.row_group) == (column, 0)
        assert not problem.is_readable
        assert rows[0] <= problem.start < problem.stop <= rows[1]


def test_lengths_that_do_not_fit_their_pages_are_told(path):
    with tamper.editing(path) as table:
        table.file(TEXT)
        table.part(TEXT).streams[LENGTHS].words[1] += 1
    report = report_on(path)
    assert "lengths of a page" in report.problems[0].message
    assert not any(problem.is_readable for problem in report.problems)
    lost = {row for one in report.problems for row in range(one.start, one.stop)}
    assert lost <= set(range(16))


def test_records_that_the_type_cannot_have_are_told(path):
    with tamper.editing(path) as table:
        table.part(N, 1).streams[VALUES].record["kind"] = NUMBERS
    found = [(one.column, rows_of(one), one.is_readable) for one in report_on(path).problems]
    assert ("n", SECOND, False) in found
    assert {column for column, _, _ in found} == {"n"}


def test_a_part_of_other_rows_than_its_row_group_is_told(path):
    with tamper.editing(path) as table:
        table.file(YES, 1)
        table.part(YES, 1).record["rows"] = 23
    report = report_on(path, full=False)
    assert {(one.column, one.is_readable) for one in report.problems} == {("yes", False)}


def page_of(table, column, group, page, **fields):
    # The file says the same.
    table.file(column, group)
    for name, value in fields.items():
        stated = table.part(column, group).pages[name]
        stated[page] = value if isinstance(value, int) else value(int(stated[page]))


LIES = [
    (N, {"nulls": 3}, "0 nulls, the statistics say 3"),
    (REAL, {"nans": 0}, "2 NaNs, the statistics say 0"),
    (N, {"min": 133}, "the lower bound, the word 133, does not belong to the values"),
    (N, {"max": 138}, "the upper bound, the word 138, does not belong to the values"),
    (N, {"min": NONE[0], "max": NONE[1]}, "values, the bounds say that there are none"),
    (TEXT, {"min": lambda word: word + 1}, "the lower bound, the word "),
    (TEXT, {"max": lambda word: word - 1}, "the upper bound, the word "),
    (WORD, {"max": lambda word: word - 1}, "the upper bound, the word "),
    (YES, {"min": 1}, "the lower bound, the word 1,"),
    (REAL, {"max": 0}, "the upper bound, the word 0,"),
    (AMOUNT, {"min": -699}, "the lower bound, the word -699,"),
    # The part says that its bounds are values.
    (N, {"min": 131}, "the lower bound, the word 131,"),
]


def lie_id(value):
    """Return words that are the same in each process."""
    return ",".join(value) if isinstance(value, dict) else str(value)[:40]


@pytest.mark.parametrize(("column", "fields", "message"), LIES, ids=lie_id)
def test_statistics_of_a_page_that_are_not_true_are_told(path, column, fields, message):
    with tamper.editing(path) as table:
        page_of(table, column, 1, 1, **fields)
    problem = report_on(path).problems[0]
    assert rows_of(problem) == (32, 40)
    assert problem.is_readable
    assert message in problem.message
    assert report_on(path, full=False)


@pytest.mark.parametrize(
    ("column", "fields"),
    [
        (N, {"min": ANY[0], "max": ANY[1]}),
        (N, {"min": 0, "max": 1 << 62}),
        (TEXT, {"min": ANY[0], "max": ANY[1]}),
        (REAL, {"min": ANY[0], "max": ANY[1]}),
        (AMOUNT, {"min": -1, "max": 0}),
    ],
)
def test_wider_bounds_are_as_true(path, column, fields):
    with tamper.editing(path) as table:
        page_of(table, column, 0, 1, **fields)
        # The bounds are no values any more.
        table.part(column, 0).record["flags"] = 0
        if column == AMOUNT:
            for page in (0, 2):
                page_of(table, column, 0, page, min=-1, max=0)
    report = report_on(path)
    assert report, str(report)


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


def test_small_row_groups_are_checked_together(monkeypatch):
    store = RamStore()
    blz.to_blz(
        {"n": range(600), "t": ["a", None, "b"] * 200}, store, storage=blz.Storage(row_group_rows=2)
    )
    with blz.open(store) as table:
        report = table.verify()
    assert report, str(report)
    # Of 300 row groups, 288 lie in 9 leaves.
    assert report.files == 600 + 9


LEAVES = {"row_group_rows": 2, "page_rows": 8}


@pytest.fixture
def leaves(tmp_path):
    """Return a table of row groups of which most lie in leaves."""
    path = tmp_path / "leaves.blz"
    numbers = pa.table({"n": range(200), "t": [f"{row:03}" for row in range(200)]})
    write(LocalStore(path), numbers, **LEAVES)
    return path


def leaf_files(path):
    return sorted((path / "meta/leaf").iterdir())


def test_a_damaged_leaf_costs_its_rows(leaves):
    files = leaf_files(leaves)
    assert len(files) == 3
    change(files[1], 30)
    report = report_on(leaves)
    problem = report.problems[0]
    assert (problem.column, problem.file) == (None, files[1].relative_to(leaves).as_posix())
    assert rows_of(problem) == (64, 128)
    assert not problem.is_readable
    assert report.intact_rows() == ((0, 64), (128, 200))


def test_a_missing_leaf_costs_its_rows(leaves):
    leaf_files(leaves)[0].unlink()
    problem = only_problem(leaves, full=False)
    assert (problem.message, rows_of(problem)) == ("the leaf is missing", (0, 64))


def test_damaged_records_of_a_leaf_cost_their_column_there(leaves):
    file = leaf_files(leaves)[1]
    change(file, len(file.read_bytes()) - 9)
    problem = only_problem(leaves, full=False)
    assert (problem.column, rows_of(problem), problem.is_readable) == ("t", (64, 128), False)


def test_what_is_said_of_a_leaf_is_compared_with_it(leaves):
    with tamper.editing(leaves) as table:
        (above,) = [one for one in table.leaves if one.level == 1]
        above.columns[N][2].pages["max"] = 190
    problem = only_problem(leaves, full=False)
    assert problem.message == "bounds that do not belong to the leaf"
    assert (problem.column, problem.is_readable) == ("n", True)


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
        read = checking.PartCheck.read

        def counting(part, opened):
            most.append(len(os.listdir("/dev/fd")) - before)
            read(part, opened)

        monkeypatch.setattr(checking.PartCheck, "read", counting)
        assert table.verify()
    assert max(most) < 150


@pytest.mark.parametrize("layout", ["directory", "file", "memory"])
def test_what_a_transaction_has_left_so_far_is_verified(tmp_path, tuned, layout):
    tuned(leaf_entries=2)
    place = blz.MemoryStore() if layout == "memory" else tmp_path / "t.blz"
    write = {} if layout == "memory" else {"storage": blz.Storage(layout=layout)}
    blz.to_blz(DATA, place, **write)
    with blz.open(place, "a") as t, t.transaction() as tx:
        for _ in range(5):
            tx.append(DATA)
        tx.update({"text": "new"}, "n < 110")
        tx.delete("n = 110")
        report = tx.verify()
    assert report.is_intact, str(report)
    assert (report.version, report.rows, report.columns) == (1, 378, tuple(DATA.column_names))


def test_damage_below_a_transaction_and_in_it_is_told(path):
    with blz.open(path, "a") as t, t.transaction() as tx:
        old = {one for one in path.glob("data/col0/*") if one.is_file()}
        tx.append(DATA[:24])
        (new,) = {one for one in path.glob("data/col0/*") if one.is_file()} - old
        change(new, 200)
        change(path / "meta/manifest/00000000000000000001", 5)
        report = tx.verify()
        # The end of the transaction reads the manifest: make it whole again.
        change(path / "meta/manifest/00000000000000000001", 5)
    told = [(one.column, one.file.partition("/")[0]) for one in report.problems]
    assert told == [(None, "meta"), ("n", "data")], str(report)
