"""Damage costs the rows of the damaged pages, or only their values."""

import json
import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blztable as blz
from blztable.engine.read import damage
from blztable.engine.version import versions
from blztable.format.records import VALUES
from blztable.storage.local import LocalStore
from support import places

pytestmark = pytest.mark.usefixtures("own_files")

ROWS, GROUP = 300_000, 200_000
DRAW = np.random.default_rng(0)
LENGTHS = DRAW.integers(0, 3, ROWS)
# Random values, so that a part has several chunks.
TABLE = pa.table(
    {
        "n": DRAW.integers(0, 1 << 60, ROWS),
        "x": pa.array(DRAW.random(ROWS), mask=DRAW.random(ROWS) < 0.1),
        "text": DRAW.integers(0, 1 << 60, ROWS).astype("U"),
        "list": pa.ListArray.from_arrays(
            np.append(0, LENGTHS.cumsum()).astype("i4"), DRAW.random(LENGTHS.sum())
        ),
    },
    schema=pa.schema(
        [
            pa.field("n", pa.int64(), nullable=False),
            pa.field("x", pa.float64()),
            pa.field("text", pa.string()),
            pa.field("list", pa.list_(pa.float64())),
        ]
    ),
)
# The node of a column, and the row group.
PARTS = [(line, group) for line in range(5) for group in range(2)]


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    path = tmp_path_factory.mktemp("intact") / "t.blz"
    blz.to_blz(
        TABLE,
        path,
        storage=blz.Storage(row_group_rows=GROUP, page_rows=8192, encoding="plain"),
        durability="process",
    )
    return path


@pytest.fixture(scope="module", params=["all rows", "deleted rows"])
def held(request, intact, tmp_path_factory):
    """Return the place of a table and what it holds; its files may have more rows."""
    if request.param == "all rows":
        return intact, TABLE
    path = Path(shutil.copytree(intact, tmp_path_factory.mktemp("deleted") / "t.blz"))
    # Whole units that are damaged, and some rows of others.
    gone = np.unique(np.append(np.arange(8190, 16_390), DRAW.integers(0, ROWS, 200)))
    with blz.open(path, "a", durability="process") as t:
        assert t.delete(pc.field("n").isin(TABLE["n"].take(gone))).rows_deleted == len(gone)
        assert t.versions()[-1].deleted_rows == len(gone)
    return path, TABLE.take(np.setdiff1d(np.arange(ROWS), gone))


def flip(path: Path, part: tuple[int, int], place: float) -> None:
    """Change a byte of the file of a part; `place` is its place as a share of the file."""
    key, _ = places.chunks_of(path, *part)
    places.flip_byte(path, key, int(place * ((path / key).stat().st_size - 1)))


def copy(intact: Path, folder: Path) -> Path:
    return Path(shutil.copytree(intact, folder / "t.blz"))


def lost_rows(path: Path) -> dict[str, np.ndarray]:
    """Return for each column the rows that `verify` reports as unreadable."""
    with blz.open(path) as t:
        lost = {name: np.zeros(len(t), bool) for name in TABLE.column_names}
        for problem in t.verify().problems:
            if not problem.is_readable:
                lost[problem.column.partition(".")[0]][problem.start : problem.stop] = True
    return lost


def read(path: Path, on_corrupt: str, **options) -> pa.Table:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return blz.read_table(path, on_corrupt=on_corrupt, **options)


def with_nulls(table: pa.Table, lost: dict[str, np.ndarray]) -> pa.Table:
    """Return the table with nulls in the rows that are lost."""
    return pa.table(
        {
            name: pc.if_else(pa.array(~lost[name]), column, pa.scalar(None, column.type))
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    )


# An example reads the table several times.
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.sampled_from(PARTS), st.floats(0, 1)), min_size=1, max_size=4),
    st.lists(st.sampled_from(TABLE.column_names), min_size=1, unique=True),
)
def test_what_verify_calls_intact_is_read_and_nothing_else(held, flips, columns):
    intact, whole = held
    with tempfile.TemporaryDirectory() as folder:
        path = copy(intact, Path(folder))
        for part, place in flips:
            flip(path, part, place)
        lost = lost_rows(path)
        is_gone = np.logical_or.reduce([lost[name] for name in columns])
        table = whole.select(columns)
        found = read(path, "skip", columns=columns)
        assert found.equals(table.filter(pa.array(~is_gone)))
        blank = read(path, "null", columns=columns)
        assert blank.equals(with_nulls(table, lost).cast(blank.schema))
        # Rows for which the condition cannot be told are left out in both cases.
        condition = pc.field("n") < (1 << 59)
        passes = pc.less(whole["n"], 1 << 59).to_numpy() & ~lost["n"]
        found = read(path, "skip", columns=columns, filters=condition)
        assert found.equals(table.filter(pa.array(passes & ~is_gone)))
        blank = read(path, "null", columns=columns, filters=condition)
        assert blank.equals(with_nulls(table, lost).filter(pa.array(passes)).cast(blank.schema))


@pytest.fixture
def path(intact, tmp_path):
    """Make a table with one changed byte in the column n and one in the column x."""
    path = copy(intact, tmp_path)
    places.flip(path, 0, 0, chunk=2)
    places.flip(path, 1, 1, chunk=3)
    return path


def rows_of_chunk(intact, line, group, chunk):
    """Return the rows of a row group that are lost with a chunk of its values."""
    store = LocalStore(intact)
    records = versions.load(store, 1).records([line], [group])
    rows, unit = int(records.parts["rows"][0]), damage.piece_rows(records)
    (stream,) = records.streams[records.streams["name"] == VALUES]
    each = int(stream["chunk"]) // 8
    return chunk * each // unit * unit, min(-(-(chunk + 1) * each // unit) * unit, rows)


def test_one_changed_byte_costs_the_rows_of_a_chunk(intact, path):
    start, stop = rows_of_chunk(intact, 0, 0, 2)
    assert 15_000 < stop - start < 18_000
    words = f"rows {start:,} to {stop:,} are left out: .*col0"
    with pytest.warns(UserWarning, match=words) as told:
        found = blz.read_table(path, columns=["n"], on_corrupt="skip")
    assert len(told) == 1
    assert found.num_rows == ROWS - (stop - start)
    assert json.loads(found.schema.metadata[b"blz:missing_rows"]) == [[start, stop]]


def test_lost_values_are_null_and_named(intact, path):
    start, stop = rows_of_chunk(intact, 0, 0, 2)
    other = [GROUP + row for row in rows_of_chunk(intact, 1, 1, 3)]
    with pytest.warns(UserWarning, match="are null") as told:
        found = blz.read_blz(path, on_corrupt="null")
    assert str(told[0].message).startswith(f"rows {start:,} to {stop:,} of column 'n' are null: ")
    assert len(told) == 2
    assert found.attrs["blz:missing_values"] == {"n": [[start, stop]], "x": [other]}
    assert "blz:missing_rows" not in found.attrs
    assert (len(found), found["n"].dtype) == (ROWS, "Int64")
    assert int(found["n"].isna().sum()) == stop - start
    table = read(path, "null")
    assert table.schema.field("n").nullable
    assert list(json.loads(table.schema.metadata[b"blz:missing_values"])) == ["n", "x"]


@pytest.mark.parametrize("on_corrupt", ["skip", "null"])
def test_a_stream_and_a_dataset_are_what_a_read_is(path, on_corrupt):
    table = read(path, on_corrupt).replace_schema_metadata(None)
    with blz.open(path) as t:
        with pytest.warns(UserWarning, match="are left out|are null") as told:
            streamed = pa.Table.from_batches(t.to_batches(on_corrupt=on_corrupt))
        assert len(told) == 2
        assert streamed.cast(table.schema).equals(table)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dataset = t.dataset(on_corrupt=on_corrupt)
            assert dataset.to_table().cast(table.schema).equals(table)
            assert dataset.count_rows() == table.num_rows
            condition = pc.field("x") > 0.5
            assert dataset.to_table(["n"], condition)["n"] == table.filter(condition)["n"]
            assert dataset.head(5).cast(table.schema).equals(table.slice(0, 5))


def test_a_stream_raises_by_default_at_the_damage(path):
    with blz.open(path) as t, pytest.raises(blz.CorruptError, match="crc32"):
        list(t.to_batches())


def test_a_warning_of_a_stream_is_at_the_callers_line(path):
    code = compile("\n" * 76 + "list(t.to_batches(on_corrupt='skip'))", "a_script.py", "exec")
    with blz.open(path) as t, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(code, {"t": t, "__name__": "__main__"})
    assert {(one.filename, one.lineno) for one in caught} == {("a_script.py", 77)}
