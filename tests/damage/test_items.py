"""Damage of an item that is a chunk costs its row alone, or its value."""

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
from blztable.engine.version import versions
from blztable.format.data_file import DataFile
from blztable.format.records import DIGEST_BYTES, VALID
from blztable.storage.local import LocalStore

pytestmark = pytest.mark.usefixtures("own_files")

ROWS, GROUP = 3000, 2000
DRAW = np.random.default_rng(0)
TEXTS = [None if row % 9 == 4 else str(row) * (row % 5) for row in range(ROWS)]
TABLE = pa.table(
    {
        "n": DRAW.integers(0, 1 << 60, ROWS),
        "text": TEXTS,
        "doc": [{"n": row, "body": b"%d" % row} for row in range(ROWS)],
    }
)
# The lines of the columns whose items are chunks, by the name of the column.
LINES = {"text": 1, "doc": 4}


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    path = tmp_path_factory.mktemp("intact") / "t.blz"
    blz.to_blz(
        TABLE,
        path,
        storage=blz.Storage(
            row_group_rows=GROUP, page_rows=512, encoding="plain", packing="per_item"
        ),
        durability="process",
    )
    return path


@pytest.fixture(scope="module")
def chunks(intact):
    """Return the file of each item, and where its chunk begins and ends, by column and row."""
    found = {}
    store = LocalStore(intact)
    version = versions.load(store, 1)
    for name, line in LINES.items():
        parts = version.parts(line)
        for group, rows in enumerate((GROUP, ROWS - GROUP)):
            key, one = parts.key(group), parts.records.of([0], [group])
            with store.open(key) as reader:
                _, offsets = DataFile.read(reader.read, reader.size)
                # Validity has chunks before the items.
                ends = [*offsets.tolist(), reader.size]
            bounds = ends[int(one.stream_chunks[one.streams["name"] == VALID].sum()) :]
            for row in range(rows):
                found[name, group * GROUP + row] = key, bounds[row], bounds[row + 1] - DIGEST_BYTES
    return found


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(
        st.tuples(st.sampled_from(list(LINES)), st.integers(0, ROWS - 1)),
        st.floats(0, 1),
        min_size=1,
        max_size=5,
    )
)
def test_damage_costs_the_rows_of_its_items(intact, chunks, flips):
    lost = {name: np.zeros(ROWS, bool) for name in TABLE.column_names}
    is_empty = {"text": [not one for one in TEXTS], "doc": [False] * ROWS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(shutil.copytree(intact, Path(folder) / "t.blz"))
        for (name, row), place in flips.items():
            file, start, stop = chunks[name, row]
            data = bytearray((path / file).read_bytes())
            data[start + int(place * (stop - start - 1))] ^= 1
            (path / file).write_bytes(data)
            lost[name][row] = not is_empty[name][row]
        is_gone = lost["text"] | lost["doc"]
        with blz.open(path) as t:
            told = [one for one in t.verify().problems if not one.is_readable]
        assert {(one.column.partition(".")[0], one.start, one.stop) for one in told} == {
            (name, row, row + 1) for name, rows in lost.items() for row in np.flatnonzero(rows)
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert read(path, "skip").equals(TABLE.filter(pa.array(~is_gone)))
            assert read(path, "skip", columns=["n"]).equals(TABLE.select(["n"]))
            condition = pc.field("n") < (1 << 59)
            passes = pa.array(pc.less(TABLE["n"], 1 << 59).to_numpy() & ~is_gone)
            assert read(path, "skip", filters=condition).equals(TABLE.filter(passes))
            # Rows for which the condition cannot be told are left out.
            known = TABLE.filter(pa.array(~lost["text"]))
            found = read(path, "null", filters=pc.field("text").is_valid(), columns=["text"])
            assert found.equals(known.filter(known["text"].is_valid()).select(["text"]))
            blank = read(path, "null")
        for name in TABLE.column_names:
            kept = pc.if_else(pa.array(~lost[name]), TABLE[name], pa.scalar(None, TABLE[name].type))
            assert blank[name].equals(kept)


def read(path: Path, on_corrupt: str, **options) -> pa.Table:
    return blz.read_table(path, on_corrupt=on_corrupt, **options).replace_schema_metadata(None)


def test_much_damage_costs_pieces_of_a_row_group(intact, chunks, tmp_path, tuned):
    tuned(damage_reads=40)
    path = Path(shutil.copytree(intact, tmp_path / "t.blz"))
    rows = [*range(100, 200), 1500]
    for row in rows:
        file, start, _ = chunks["doc", row]
        data = bytearray((path / file).read_bytes())
        data[start + 16] ^= 1
        (path / file).write_bytes(data)
    with pytest.warns(UserWarning, match="are left out"):
        found = blz.read_table(path, columns=["doc"], on_corrupt="skip")
    assert ROWS - 2 * len(rows) < found.num_rows <= ROWS - len(rows)
    with blz.open(path) as t:
        lost = [row for one in t.verify().problems for row in range(one.start, one.stop)]
    assert set(rows) <= set(lost)
    assert len(lost) < GROUP // 4
