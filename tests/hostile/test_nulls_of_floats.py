"""False claims that rows are null where the value is NaN: refused, or found by verify.

As in `test_superchunks.py`, each table lies behind valid checksums and another process reads it.
"""

import pyarrow as pa
import pytest

import blztable as blz
from support import tamper
from support.hostile_reader import assert_read, assert_refused, make

pytestmark = pytest.mark.usefixtures("own_files")

FLOATS = pa.table({"x": [1.5, None, 2.5] * 8})
FEATURES = ["nan_is_null"]


def claim(path, values, features=FEATURES) -> None:
    """Say in the line of the first column which parts have nulls that are NaN."""
    with tamper.editing(path) as table:
        table.lines[0]["nan_is_null"] = values
        table.head["requires"] = features


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, 2, 3]),
        pa.array(["a", "b", "c"]),
        pa.array([True, None, False]),
        pa.array([b"", b"", b""], pa.binary(0)),
        pa.nulls(3),
        pa.array([1, 2, 3], pa.decimal128(9, 2)),
        pa.array([1.5, 2.5, 1.5]).dictionary_encode(),
    ],
    ids=lambda array: str(array.type),
)
def test_only_floats_have_nan(tmp_path, array):
    path = make(tmp_path / "t.blz", pa.table({"x": array}))
    claim(path, [1])
    assert_refused(path, blz.CorruptError, "which has no NaN")


def test_null_is_said_once(tmp_path):
    both = pa.table({"x": [1.5, None, float("nan")]})
    path = make(tmp_path / "t.blz", both)
    claim(path, [1])
    assert_refused(path, blz.CorruptError, "'nan_is_null' and a stream 'valid'")


@pytest.mark.parametrize("values", [[2], [-1], [False], ["1"], [], [1, 1], None, {}, 1.0, [None]])
def test_a_claim_is_0_or_1_for_each_part(tmp_path, values):
    path = make(tmp_path / "t.blz", FLOATS)
    claim(path, values)
    assert_refused(path, blz.CorruptError, "")


def test_a_program_that_does_not_know_nulls_of_floats_must_refuse_them(tmp_path):
    path = make(tmp_path / "t.blz", FLOATS)
    claim(path, [1], features=[])
    assert_refused(path, blz.CorruptError, "'requires' lacks 'nan_is_null'")


def test_a_field_that_is_not_null_may_have_such_nulls(tmp_path):
    field = pa.field("x", pa.float64(), nullable=False)
    table = pa.table({"x": [1.5, float("nan"), 2.5]}, schema=pa.schema([field]))
    path = make(tmp_path / "t.blz", table)
    claim(path, [1])
    found = blz.read_table(path)
    assert found.schema == table.schema
    assert found["x"].to_pylist() == [1.5, None, 2.5]


def test_counts_that_say_otherwise_are_found(tmp_path):
    path = make(tmp_path / "t.blz", FLOATS)
    claim(path, [0])
    with blz.open(path) as table:
        messages = [problem.message for problem in table.verify().problems]
    assert any("0 nulls, the statistics say 8" in message for message in messages)
    assert any("8 NaNs, the statistics say 0" in message for message in messages)
    assert_read(path)
