"""Changes of columns: add, drop, rename, reorder, without access to the other columns."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.engine.change import update
from blztable.engine.version.staged import StagedVersion
from blztable.errors import ColumnNotFoundError, ConflictError, SchemaError
from blztable.format.layout import DATA
from blztable.storage.memory import RamStore
from support import arrow_strategies as types
from support import samples
from support.bit_equality import bits
from support.counted_names import Counted, counted
from support.moved_first import moved_first
from support.options import arguments
from support.stores import Hooked, tree

KINDS = [*types.PLAIN, *samples.DICTIONARIES]


def table(data, **options) -> blz.CTable:
    """Return a table in memory, in small pages and row groups."""
    store = RamStore()
    options = {"page_rows": 8, "row_group_rows": 16, "durability": "process", **options}
    blz.to_blz(data, store, **arguments(**options))
    return blz.open(store, "a")


def watched(data) -> tuple[blz.CTable, set[str]]:
    """Return a table, and the list of column files that are read or written."""
    touched: set[str] = set()

    def hook(name, args):
        if name in ("open", "get", "put_new") and args[0].startswith(DATA):
            touched.add(args[0])

    store = RamStore()
    blz.to_blz(data, store, storage=blz.Storage(row_group_rows=2), durability="process")
    return blz.open(Hooked(store, before=hook), "a"), touched


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_column_of_every_type_is_added_as_data_and_as_a_constant(kind):
    t = table(pa.table({"row": range(40)}))
    array = samples.array(kind)
    t.add_column("data", array)
    t.add_column("same", array[1])
    found = t.to_arrow()
    assert found.schema.types[1:] == [kind, kind]
    assert bits(found.column("data")) == bits(array)
    assert bits(found.column("same")) == [bits(array)[1]] * 40
    assert t.verify().is_intact


def test_the_name_that_two_columns_would_have_is_told():
    t = table({"a": [1], "b": [2], "c": [3]})
    with pytest.raises(SchemaError, match=r"two columns of .* would be named 'c'"):
        t.rename_columns({"a": "new", "b": "c"})
    assert t.version == 1


class TestCosts:
    """The cost of a change is proportional to the number of columns, not to its square."""

    MANY = 400
    NAMES = tuple(f"c{number}" for number in range(MANY))

    @pytest.fixture(params=["arrow", "frame", "frame of numbers"])
    def wide(self, request):
        data = pa.table({key: [1] for key in self.NAMES})
        if request.param != "arrow":
            data = data.to_pandas()
        if request.param == "frame of numbers":
            data.columns = range(self.MANY)
        return data

    def test_each_name_is_looked_up_where_columns_are_renamed(self, wide):
        t = table(wide)
        names = counted(t.columns)
        new = [Counted(f"{name}x") for name in names]
        t.rename_columns(dict(zip(names, new, strict=True)))
        assert t.columns == new
        assert Counted.compared < 20 * self.MANY

    def test_each_name_is_looked_up_where_columns_are_ordered(self, wide):
        t = table(wide)
        names = counted(t.columns[::-1])
        moved_first(t, names)
        assert t.columns == names
        assert Counted.compared < 20 * self.MANY

    def test_each_name_is_looked_up_where_columns_are_dropped(self, wide):
        t = table(wide)
        names = counted(t.columns)
        t.drop_columns(names[1:])
        assert t.columns == names[:1]
        assert Counted.compared < 20 * self.MANY

    def test_each_name_is_looked_up_where_options_differ_by_column(self):
        names = counted(self.NAMES)
        data = {key: [1] for key in names}
        blz.to_blz(data, RamStore(), **arguments(clevel=dict.fromkeys(names, 1)))
        assert Counted.compared < 20 * self.MANY

    @pytest.mark.parametrize("rows", [0, 40])
    def test_an_append_makes_one_change_of_all_columns_that_are_new_or_wider(
        self, rows, monkeypatch
    ):
        made = []
        with_columns = StagedVersion.with_columns

        def counting(self, *args, **options):
            made.append(self)
            return with_columns(self, *args, **options)

        monkeypatch.setattr(StagedVersion, "with_columns", counting)
        narrow = pa.table({f"n{number}": pa.array([1] * rows, "i1") for number in range(30)})
        t = table(narrow)
        made.clear()
        wide = {f"n{number}": pa.array([1000], "i2") for number in range(30)}
        new = {f"m{number}": [str(number)] for number in range(30)}
        assert t.append({**wide, **new}, evolve=True).version == 2
        # Wider columns, and new ones.
        assert len(made) == 2
        assert t.schema.types == [pa.int16()] * 30 + [pa.string()] * 30
        expected = {name: [1] * rows + [1000] for name in wide}
        expected |= {name: [None] * rows + array for name, array in new.items()}
        assert t.to_arrow().to_pydict() == expected
        assert t.verify().is_intact


class TestTouches:
    @pytest.mark.usefixtures("own_files_here")
    def test_adding_writes_one_file_a_row_group_and_reads_what_the_expression_names(self):
        t, touched = watched({"a": [1, 2, 3], "b": [4, 5, 6], "c": ["x", "y", "z"]})
        t.add_column("d", [7, 8, 9])
        version = t._snapshot.version
        assert touched == {version.parts(3).key(group) for group in range(2)}
        touched.clear()
        t.add_column("e", 0)
        assert {key.split("/")[1] for key in touched} == {"col4"}
        touched.clear()
        t.add_column("f", pc.field("b") + 1)
        assert {key.split("/")[1] for key in touched} == {"col1", "col5"}

    def test_dropping_renaming_and_reordering_touch_no_file(self):
        t, touched = watched({"a": [1, 2, 3], "b": [4, 5, 6], "c": ["x", "y", "z"]})
        t.drop_columns(["b"])
        t.rename_columns({"a": "c", "c": "a"})
        moved_first(t, ["a"])
        assert touched == set()
        assert t.to_arrow().to_pydict() == {"a": ["x", "y", "z"], "c": [1, 2, 3]}


def test_ids_of_columns_are_never_used_again():
    t = table({"a": [1], "b": [2]})
    t.drop_columns(["b"])
    t.add_column("b", [3])
    t.drop_columns(["b"])
    t.restore(1)
    t.add_column("c", [4])
    assert t._snapshot.version.paths == ((0,), (1,), (3,))


class TestFrames:
    """Labels and dtypes become the same as with the methods of pandas."""

    def frame(self) -> pd.DataFrame:
        return samples.frame()

    def test_columns_are_dropped(self):
        t = table(self.frame())
        t.drop_columns(["period", "int"])
        expected = self.frame().drop(columns=["period", "int"])
        pd.testing.assert_frame_equal(t.to_pandas(), expected, check_freq=False)

    def test_columns_are_renamed(self):
        t = table(self.frame())
        names = {"category": "kind", "int": "period", "period": "int"}
        t.rename_columns(names)
        expected = self.frame().rename(columns=names)
        pd.testing.assert_frame_equal(t.to_pandas(), expected, check_freq=False)

    def test_columns_are_reordered(self):
        t = table(self.frame())
        moved_first(t, ["str", "date"])
        names = list(self.frame())
        order = ["str", "date", *(name for name in names if name not in ("str", "date"))]
        pd.testing.assert_frame_equal(t.to_pandas(), self.frame()[order], check_freq=False)

    def test_columns_are_added_with_their_dtypes(self):
        frame = self.frame()
        t = table(frame[["int"]])
        for name in frame.columns[1:]:
            t.add_column(name, frame[name])
        expected = frame.copy()
        # Fields of an index level stay in their places.
        pd.testing.assert_frame_equal(t.to_pandas()[list(frame)], expected, check_freq=False)

    def test_labels_that_are_no_text_stay(self):
        frame = pd.DataFrame(np.arange(6).reshape(2, 3), columns=[1, 2, 3])
        t = table(frame)
        t.add_column("new", [7, 8])
        t.rename_columns({"2": "two"})
        t.drop_columns(["1"])
        assert t.to_pandas().columns.tolist() == ["two", 3, "new"]

    def test_an_index_is_renamed_and_dropped_like_a_column(self):
        t = table(pd.DataFrame({"a": [1, 2]}, pd.Index(["x", "y"], name="k")))
        t.rename_columns({"k": "key"})
        assert t.to_pandas().index.name == "key"
        t.drop_columns(["key"])
        pd.testing.assert_frame_equal(t.to_pandas(), pd.DataFrame({"a": [1, 2]}))

    @pytest.mark.parametrize("gone", [["k"], ["l"], ["k", "l"], []])
    def test_levels_of_an_index_are_dropped_as_pandas_does(self, gone):
        index = pd.MultiIndex.from_tuples([("x", 1), ("y", 2)], names=["k", "l"])
        frame = pd.DataFrame({"a": [1, 2]}, index)
        t = table(frame)
        t.drop_columns(gone)
        pd.testing.assert_frame_equal(t.to_pandas(), frame.reset_index(gone, drop=True))

    def test_an_index_of_one_level_stays_one(self):
        frame = pd.DataFrame({"a": [1], "b": [2]}, pd.MultiIndex.from_tuples([("x",)], names=["k"]))
        t = table(frame)
        t.drop_columns(["b"])
        pd.testing.assert_frame_equal(t.to_pandas(), frame[["a"]])


def test_names_may_come_from_an_iterator():
    t = table({"a": [1], "b": [2], "c": [3]})
    moved_first(t, (name for name in "cb"))
    assert t.to_arrow().column_names == ["c", "b", "a"]
    t.drop_columns(name for name in "ab")
    assert t.to_arrow().to_pydict() == {"c": [3]}


def test_columns_that_a_twin_dropped_or_renamed_are_not_asked_for_again():
    t = table({"a": [1], "b": [2]})
    for _ in range(2):
        with t.transaction(commit_id="once") as tx:
            tx.drop_columns(["a"])
            tx.rename_columns({"b": "c"})
    assert t.to_arrow().to_pydict() == {"c": [2]}


def test_an_expression_is_computed_row_group_by_row_group():
    t = table({"net": np.arange(40.0), "s": [str(n) for n in range(40)]})
    t.add_column("gross", pc.field("net") * 1.5)
    t.add_column("is_long", pc.utf8_length(pc.field("s")) > 1)
    t.add_column("one", pc.scalar(1))
    assert t["gross"][:].to_pylist() == [n * 1.5 for n in range(40)]
    assert t["is_long"][:].to_pylist() == [n > 9 for n in range(40)]
    assert t["one"][:].to_pylist() == [1] * 40


@pytest.mark.parametrize("as_frame", [False, True])
@pytest.mark.parametrize("has_nulls", [False, True])
@pytest.mark.parametrize("type_", ["int64", "double", "bool", "string"])
def test_an_expression_is_computed_once_for_each_row_group(monkeypatch, as_frame, has_nulls, type_):
    computed = []
    evaluated = update.evaluated

    def counting(opened, expression, group, *args):
        computed.append(group)
        return evaluated(opened, expression, group, *args)

    monkeypatch.setattr(update, "evaluated", counting)
    data = pa.table({"a": [row % 2 for row in range(40)]})
    t = table(data.to_pandas() if as_frame else data, row_group_rows=8)
    value = pc.field("a").cast(type_)
    nothing = pa.scalar(None, pa.type_for_alias(type_))
    t.add_column("more", pc.if_else(pc.field("a") == 0, nothing, value) if has_nulls else value)
    assert computed == [0, 1, 2, 3, 4]
    found = pa.array([row % 2 for row in range(40)]).cast(type_).to_pylist()
    if has_nulls:
        found[::2] = [None] * 20
    assert t.to_arrow()["more"].to_pylist() == found
    frame = t.to_pandas()["more"]
    assert frame.isna().tolist() == [value is None for value in found]
    # A column of a DataFrame has missing values if its dtype can hold them.
    if as_frame and type_ in ("int64", "bool"):
        assert frame.dtype == ({"int64": "float64", "bool": "object"} if has_nulls else {}).get(
            type_, type_
        )
    t.append({"a": [3]} | ({"more": [None]} if has_nulls else {"more": found[1:2]}))


REFUSED = {
    "a name that is there": (
        lambda t: t.add_column("a", [1, 2]),
        SchemaError,
        "already has a column 'a'",
    ),
    "too few values": (lambda t: t.add_column("z", [1]), SchemaError, "1 values for a table"),
    "a type not kept": (lambda t: t.add_column("z", [object(), 2]), SchemaError, "'z'"),
    "a default of another type": (
        lambda t: t.add_column("z", [1, 2], default="x"),
        SchemaError,
        "the default of column 'z'",
    ),
    "a default that is many": (
        lambda t: t.add_column("z", [1, 2], default=[1]),
        SchemaError,
        "expected one value",
    ),
    "an expression that fails": (
        lambda t: t.add_column("z", pc.field("a") / 0),
        SchemaError,
        "divide by zero",
    ),
    "an unknown column in one": (
        lambda t: t.add_column("z", pc.field("q") + 1),
        ColumnNotFoundError,
        "q",
    ),
    "an unknown name to drop": (lambda t: t.drop_columns(["q"]), ColumnNotFoundError, "'q'"),
    "an unknown name to order": (
        lambda t: moved_first(t, ["q"]),
        ColumnNotFoundError,
        "'q'",
    ),
    "an unknown name to rename": (
        lambda t: t.rename_columns({"q": "r"}),
        ColumnNotFoundError,
        "'q'",
    ),
    "one name for two": (lambda t: t.rename_columns({"a": "b"}), SchemaError, "named 'b'"),
    "one new name for two": (
        lambda t: t.rename_columns({"a": "c", "b": "c"}),
        SchemaError,
        "named 'c'",
    ),
    "a position that no column has": (
        lambda t: t.alter_column("b", position=9),
        ValueError,
        "position must be from",
    ),
    "text for a list of names": (
        lambda t: t.drop_columns("a"),
        TypeError,
        "a list of column names",
    ),
    "text for a position": (
        lambda t: t.alter_column("b", position="a"),
        TypeError,
        "position must be an integer",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_told_and_nothing_of_it_stays(case):
    verb, error, message = REFUSED[case]
    t = table(pd.DataFrame({"a": [1, 2], "b": [3, 4]}))
    before = tree(t._snapshot.version.store)
    with pytest.raises(error, match=message):
        verb(t)
    assert tree(t._snapshot.version.store) == before


class TestBesideOthers:
    def test_names_rely_on_the_columns_and_not_on_the_rows(self):
        t = table({"a": [1], "b": [2]})
        behind = blz.open(t._snapshot.version.store, "a")
        t.append({"a": [3], "b": [4]})
        once = blz.open(t._snapshot.version.store, "a", retries=0)
        behind.rename_columns({"a": "c"})
        assert behind.to_arrow().to_pydict() == {"c": [1, 3], "b": [2, 4]}
        with pytest.raises(ConflictError, match="columns of version 2"):
            once.drop_columns(["b"])

    def test_a_column_relies_on_all_rows(self):
        t = table({"a": [1]})
        behind = blz.open(t._snapshot.version.store, "a")
        t.append({"a": [3]})
        before = tree(t._snapshot.version.store)
        with pytest.raises(ConflictError, match="rows of version 1"):
            behind.add_column("b", [1])
        assert tree(t._snapshot.version.store) == before

    def test_a_number_of_a_file_is_not_given_out_twice_by_widening(self):
        t = table(pa.table({"a": pa.array([1], pa.int8())}))
        behind = blz.open(t._snapshot.version.store, "a")
        for _ in range(3):
            t.append(pa.table({"a": pa.array([2], pa.int8())}))
        t.resize(1)
        t.vacuum(keep=1)
        given_out = t._snapshot.version.head.next_file
        behind.append({"a": [1000]}, evolve=True)
        assert behind["a"][:].to_pylist() == [1, 1000]
        assert behind._snapshot.version.head.next_file >= given_out


def test_options_by_column_follow_its_name():
    t = table({"a": range(40), "b": range(40)}, compression={"a": "zstd", "b": "lz4"})
    t.rename_columns({"a": "c"})
    t.append({"c": [1], "b": [1]})
    t.drop_columns(["b"])
    assert t._snapshot.version.head.properties["compression"] == {"c": "zstd"}


@pytest.fixture
def numbers(tmp_path):
    blz.to_blz({"a": [1, 2, 3]}, tmp_path / "t.blz")
    with blz.open(tmp_path / "t.blz", "a") as numbers:
        yield numbers


def test_a_default_is_as_wide_as_its_column_becomes(numbers):
    numbers.add_column("n", pa.array([1, 2, 3], "i2"), default=5)
    categories = pa.array(["x", "y", "x"]).dictionary_encode().cast(pa.dictionary("i1", "string"))
    numbers.add_column("word", categories, default=categories[1])
    with numbers.transaction() as transaction:
        many = pa.array([f"{number}" for number in range(200)]).dictionary_encode()
        row = {"a": range(200), "n": pa.array([70_000] * 200, "i4"), "word": many}
        transaction.append(row, evolve=True)
        transaction.append({"a": [4]})
        assert transaction["n"][-1] == 5
    numbers.append({"a": [5]})
    assert numbers.schema.field("n").type == pa.int32()
    assert numbers.schema.field("word").type.index_type == pa.int32()
    assert numbers["n"][:].to_pylist()[-2:] == [5, 5]
    assert numbers["word"][:].to_pylist()[-2:] == ["y", "y"]


def test_a_default_that_is_null_is_none(numbers):
    numbers.add_column("y", [1, 2, 3], default=pa.scalar(None, pa.int64()))
    numbers.add_column("z", pa.nulls(3), default=pa.scalar(None))
    numbers.append({"a": [4]})
    assert numbers["y"][:].to_pylist() == [1, 2, 3, None]
    assert numbers["z"][:].to_pylist() == [None] * 4
    assert "defaults" not in numbers._snapshot.version.head.properties


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(pa.array([1, None, 2**60 + 1]), id="integers"),
        pytest.param(pa.array([True, None, False]), id="booleans"),
        pytest.param(pc.if_else(pc.field("a") == 2, None, pc.field("a") + 2**60), id="expression"),
    ],
)
def test_a_column_with_nulls_that_a_frame_gets_reads_without_loss(tmp_path, data):
    pd.DataFrame({"a": [1, 2, 3]}).to_blz(tmp_path / "f")
    with blz.open(tmp_path / "f", "a") as numbers:
        numbers.add_column("b", data)
        numbers.add_column("plain", pc.field("a") + 1)
        given = numbers["b"][:].to_pylist()
        assert given.count(None) == 1
        frame = numbers.to_pandas()
        assert frame["b"].dtype in (pd.Int64Dtype(), np.dtype(object))
        assert [None if value is pd.NA else value for value in frame["b"]] == given
        assert frame["plain"].dtype == "int64"
        numbers.append(frame)
        assert numbers["b"][:].to_pylist() == given * 2
