"""What the real programs wrote is read exactly: by every reader, and once it is converted."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from golden.sets import unpacked
from support.bit_equality import same_table

LEGACY = unpacked("legacy") / "bcolz"
REFUSED = ("carray_object", "carray_snappy")
SAMPLES = sorted(
    path for path in LEGACY.glob("*/*") if path.name != "_expected" and path.name not in REFUSED
)
BY_NAME = {f"{path.parent.name}/{path.name}": path for path in SAMPLES}


def expected(path):
    """Return the arrays that the sample holds, by name of the column."""
    with np.load(path.parent / "_expected" / f"{path.name}.npz") as arrays:
        names = arrays.files
        is_table = (path / "__rootdirs__").exists()
        return {name if is_table else path.name: arrays[name] for name in names}


@pytest.fixture(params=BY_NAME)
def sample(request):
    return BY_NAME[request.param]


def test_there_are_samples_of_each_program():
    assert {path.parent.name for path in SAMPLES} == {path.name for path in LEGACY.iterdir()}


def test_each_value_of_a_sample_is_read(sample):
    arrays = expected(sample)
    with blz.open(sample) as table:
        assert sorted(table.columns) == sorted(arrays)
        for name, values in arrays.items():
            assert len(table) == len(values)
            check_same(table[name].to_numpy(), values)
            check_same(numpy_of(table.to_arrow([name])[name]), values)
            rows = np.arange(len(values))[::-7]
            check_same(numpy_of(table.take(rows, columns=[name])[name]), values[rows])
            check_same(numpy_of(table[3:-2][name]), values[3:-2])


def test_a_sample_is_a_table_for_every_reader(sample):
    whole = blz.read_table(sample)
    with blz.open(sample) as table:
        assert same_table(table.to_arrow(), whole)
        assert same_table(table.head(3), whole.slice(0, 3))
        batches = pa.Table.from_batches(table.to_batches(batch_rows=999), whole.schema)
        assert same_table(batches, whole)
        assert table.verify().is_intact
        assert table.versions() == []
        pd.testing.assert_frame_equal(table.to_pandas(), whole.to_pandas())
        assert blz.dataset(sample).to_table().num_rows == len(table) == table.count()


def test_a_converted_sample_is_the_same_table(sample, tmp_path):
    done = []
    rows = blz.copy(sample, tmp_path / "new", progress=lambda *now: done.append(now)).rows
    old, new = blz.read_table(sample), blz.read_table(tmp_path / "new")
    assert same_table(old, new)
    assert rows == old.num_rows
    assert not rows or done[-1] == (rows, rows)
    with blz.open(sample) as one, blz.open(tmp_path / "new") as other:
        assert dict(one.attrs) == dict(other.attrs)
        assert other.verify().is_intact


def test_attributes_of_a_table_are_its_own():
    with blz.open(BY_NAME["bcolz-zipline-1.13.0/ctable_mixed"]) as table:
        assert dict(table.attrs) == {"author": "bcolz", "nested": {"a": [1, 2, 3], "pi": 3.25}}


def test_a_default_value_comes_along(tmp_path):
    blz.copy(BY_NAME["bcolz-zipline-1.13.0/carray_f8_dflt"], tmp_path / "new")
    with blz.open(tmp_path / "new", "a") as table:
        table.resize(len(table) + 1)
        assert table["carray_f8_dflt"][-1] == 7.5


def test_a_filter_of_a_sample_is_that_of_pandas():
    path = BY_NAME["blz-0.6.2/btable_mixed"]
    frame = blz.read_blz(path)
    found = blz.read_blz(path, columns=["u13", "f8"], filters=pc.field("f8") > 0.5)
    pd.testing.assert_frame_equal(found, frame.loc[frame.f8 > 0.5, ["u13", "f8"]])


@pytest.mark.parametrize(
    ("name", "error"),
    [("bcolz-zipline-1.13.0/carray_object", "pickle"), ("bcolz-1.2.1/carray_snappy", "Snappy")],
)
def test_what_cannot_be_read_is_refused_by_name(name, error, tmp_path):
    with pytest.raises(blz.FormatError, match=error):
        blz.read_table(LEGACY / name)
    with pytest.raises(blz.FormatError, match=error):
        blz.copy(LEGACY / name, tmp_path / "new")
    with pytest.raises(blz.TableNotFoundError):
        blz.open(tmp_path / "new")


def numpy_of(column):
    """Return a column as an array; times without dates come back as days."""
    with_one = column.combine_chunks()
    if isinstance(with_one, pa.ChunkedArray):
        with_one = with_one.chunk(0) if with_one.num_chunks else pa.array([], with_one.type)
    if isinstance(with_one.type, pa.FixedShapeTensorType):
        return with_one.to_numpy_ndarray()
    return with_one.to_numpy(zero_copy_only=False)


def check_same(found, values):
    """Fail unless the arrays have the same values, to the bit if they are numbers."""
    if values.dtype.kind in "SU":
        assert found.tolist() == values.tolist()
    elif values.dtype.kind in "mM":
        assert found.astype(values.dtype).tobytes() == values.tobytes()
    else:
        native = values.astype(values.dtype.newbyteorder("="))
        assert found.shape == native.shape
        assert found.astype(native.dtype).tobytes() == native.tobytes()
