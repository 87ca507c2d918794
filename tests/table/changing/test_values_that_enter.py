"""What enters a column: the same in each verb, exactly, or refused in words."""

import datetime
import re
from contextlib import nullcontext
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.storage.memory import RamStore
from support.options import arguments

VERBS = ["append", "stream", "upsert", "update", "one value", "replace_where", "appender"]
FORMS = ["memory", "directory", "file", "transaction"]


def enter(verb, place, old, new, *, evolve=False, in_transaction=False, **options):
    """Let a row enter a table of one row by a verb; return the column."""
    first, second = {"k": [0], "v": old}, {"k": [1], "v": new}
    blz.to_blz(first, place, **arguments(mode="w", **options))
    if verb == "stream":
        blz.to_blz(iter([first, second]), place, **arguments(mode="w", **options))
        return blz.read_table(place)["v"]
    with blz.open(place, "a") as t:
        if verb in ("update", "one value"):
            t.append({"k": [1]})

        def change(to):
            if verb == "append":
                to.append(second, evolve=evolve)
            elif verb == "upsert":
                to.upsert(second, on="k", evolve=evolve)
            elif verb == "replace_where":
                to.append(second, replace_where="k = 1", evolve=evolve)
            elif verb == "appender":
                with (
                    nullcontext(to) if in_transaction else to.transaction() as tx,
                    tx.appender(evolve=evolve) as a,
                ):
                    a["k"].append([1])
                    a["v"].append(new)
            else:
                value = new if verb == "update" else new[0]
                to.update({"v": value}, where="k = 1", evolve=evolve)

        if in_transaction:
            with t.transaction() as tx:
                change(tx)
        else:
            change(t)
        assert t.verify()
        return t["v"][:]


NOON, MIDNIGHT = datetime.datetime(2026, 1, 2, 12), datetime.datetime(2026, 1, 2)
DATE = datetime.date(2026, 1, 2)
STAMPS = pa.array([0], pa.timestamp("us", "UTC"))
TAKEN = [
    (STAMPS, pa.array([10**6], pa.timestamp("us", "Etc/UTC"))),
    (STAMPS, pa.array([1], pa.timestamp("s", "Asia/Tokyo"))),
    (STAMPS, pa.array([10**9], pa.timestamp("ns", "+00:00"))),
    (pa.array([0], pa.timestamp("s", "Asia/Tokyo")), pa.array([10**9], pa.timestamp("ns", "UTC"))),
    (pa.array([DATE]), pa.array([MIDNIGHT])),
    (pa.array([DATE], pa.date64()), pa.array([MIDNIGHT])),
    (pa.array([NOON]), pa.array([DATE])),
    (pa.array([0.5], pa.float32()), [0.1]),
    (pa.array([np.float16(0.5)], pa.float16()), [0.1]),
]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("form", ["plain", "struct", "list"])
@pytest.mark.parametrize(("old", "new"), TAKEN, ids=lambda one: str(getattr(one, "type", one)))
def test_each_verb_takes_the_same_values_of_another_type(verb, form, old, new):
    expected = pa.array([0.1], old.type) if isinstance(new, list) else new.cast(old.type)
    if form == "struct":
        old, expected = (pa.StructArray.from_arrays([one], ["f"]) for one in (old, expected))
        is_list = isinstance(new, list)
        new = [{"f": new[0]}] if is_list else pa.StructArray.from_arrays([new], ["f"])
    elif form == "list":
        ends = pa.array([0, 1], pa.int32())
        old, expected = (pa.ListArray.from_arrays(ends, one) for one in (old, expected))
        new = [new] if isinstance(new, list) else pa.ListArray.from_arrays(ends, new)
    if form == "list" and verb == "one value":
        verb = "update"
    found = enter(verb, RamStore(), old, new)
    assert found.type == old.type
    assert found[1].equals(expected[0])
    assert found[0].equals(old[0])


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (STAMPS, pa.array([0], pa.timestamp("us")), "tz_localize('UTC')"),
        (pa.array([0], pa.timestamp("us")), STAMPS, "pc.local_timestamp(array)"),
        (pa.array([DATE]), STAMPS, "times in the zone UTC"),
        (STAMPS, pa.array([DATE]), "dates"),
        (pa.array([0.5], pa.float32()), pa.array([0.1]), "row 0 is 0.1"),
        (pa.array([0.5], pa.float32()), np.array([0.1]), "row 0 is 0.1"),
        (pa.array([0.5], pa.float32()), pd.Series([0.1]), "row 0 is 0.1"),
        (pa.array([0.5], pa.float32()), [np.float64(0.1)], "row 0 is 0.1"),
        (pa.array([0.5], pa.float32()), [1e39], "row 0 is 1e+39"),
        (pa.array([[0.5]], pa.list_(pa.float32())), [np.array([0.1])], "row 0 is "),
        (pa.array([0.5], pa.float32()), [2**24 + 1], "row 0 is 16777217"),
    ],
)
def test_each_verb_refuses_what_would_change(verb, old, new, message):
    if verb == "stream" and not pa.types.is_temporal(old.type):
        # The first item decides less than a table does: the column becomes wider.
        assert enter(verb, RamStore(), old, new)[1].as_py() in (0.1, [0.1], 1e39, 2**24 + 1)
        return
    if verb == "one value" and isinstance(new[0], np.ndarray):
        verb = "update"
    with pytest.raises(blz.SchemaError, match=re.escape(message)):
        enter(verb, RamStore(), old, new)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.nulls(1), pa.array(["x"])),
        (pa.nulls(1), pa.array([1])),
        (pa.nulls(1), pa.array(["x"]).dictionary_encode()),
        (pa.array([{"a": None}]), pa.array([{"a": 1.5}])),
        (pa.array([[]], pa.list_(pa.null())), pa.array([[{"a": 1}]])),
    ],
    ids=str,
)
def test_nulls_without_a_type_take_any_values(verb, form, old, new, tmp_path):
    if verb == "one value" and pa.types.is_nested(new.type) and not pa.types.is_struct(new.type):
        new = pa.array([[[{"a": 1}]]]).flatten()
        verb = "update"
    place = RamStore() if form in ("memory", "transaction") else tmp_path / "t.blz"
    options = {"layout": "file"} if form == "file" else {}
    found = enter(verb, place, old, new, in_transaction=form == "transaction", **options)
    assert found.to_pylist() == [*old.to_pylist(), *new.to_pylist()]


@pytest.mark.parametrize("verb", [one for one in VERBS if one != "stream"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("old", "new", "type_"),
    [
        (pa.array([1], pa.int8()), pa.array([300]), pa.int64()),
        (pa.array([1]), pa.array([0.5]), pa.float64()),
        (pa.array([DATE]), pa.array([NOON]), pa.timestamp("us")),
        (pa.array([{"a": 1}]), pa.array([{"a": 1, "b": "x"}]), None),
    ],
    ids=str,
)
def test_evolve_widens_in_each_verb(verb, form, old, new, type_, tmp_path):
    place = RamStore() if form in ("memory", "transaction") else tmp_path / "t.blz"
    options = {"layout": "file"} if form == "file" else {}
    options["in_transaction"] = form == "transaction"
    with pytest.raises(blz.SchemaError, match="evolve=True"):
        enter(verb, place, old, new, **options)
    found = enter(verb, place, old, new, evolve=True, **options)
    assert found[1].as_py() == new[0].as_py()
    assert type_ is None or found.type == type_


def test_evolve_adds_columns_in_each_verb():
    blz.to_blz({"k": [1, 2]}, store := RamStore())
    with blz.open(store, "a") as t:
        t.upsert({"k": [2, 3], "a": ["x", "y"]}, on="k", evolve=True)
        t.append({"k": [3], "b": [0.5]}, replace_where="k = 3", evolve=True)
        t.update({"c": pc.field("k") * 2, "d": "z"}, where="k > 1", evolve=True)
        with t.transaction() as tx, tx.appender(evolve=True) as a:
            for name, value in {"k": 4, "a": "w", "b": 1.5, "c": 8, "d": "v", "e": True}.items():
                a[name].append([value])
        assert t.to_arrow().to_pydict() == {
            "k": [1, 2, 3, 4],
            "a": [None, "x", None, "w"],
            "b": [None, None, 0.5, 1.5],
            "c": [None, 4, 6, 8],
            "d": [None, "z", "z", "v"],
            "e": [None, None, None, True],
        }
        with pytest.raises(blz.ColumnNotFoundError):
            t.update({"f": 1})
        with pytest.raises(blz.ColumnNotFoundError), t.transaction() as tx, tx.appender() as a:
            a["f"]


def test_an_update_that_widens_computes_from_the_values_before():
    blz.to_blz({"a": [7, 8]}, store := RamStore())
    half = pc.if_else(pc.field("a") == 7, pc.divide(pc.field("a"), 2), 0.5)
    with blz.open(store, "a") as t:
        t.update({"a": half}, where=pc.divide(pc.field("a"), 2) > 2, evolve=True)
        assert t["a"][:].to_pylist() == [3.0, 0.5]


@pytest.mark.parametrize("rows", [10, 1000])
def test_an_appender_widens_the_rows_that_it_has_written(rows):
    blz.to_blz(
        {"a": [1], "n": pa.nulls(1)}, store := RamStore(), storage=blz.Storage(row_group_rows=64)
    )
    with blz.open(store, "a") as t:
        t.update({"a": 2})
        with t.transaction() as tx, tx.appender(evolve=True) as a:
            for start in range(0, rows, 5):
                a["a"].append(list(range(start, start + 5)))
                a["n"].append([str(start)] * 5)
            a["a"].append([0.5])
            a["n"].append(["x"])
        assert t["a"][:].to_pylist() == [2.0, *map(float, range(rows)), 0.5]
        assert t["n"][:].to_pylist()[-1] == "x"
        assert t.verify()
        with t.transaction() as tx, tx.appender(evolve=True) as a:
            a["a"].append([0.25])
            a["n"].append(["y"])
            a["new"].append([2**53 + 1])
            with pytest.raises(blz.SchemaError, match="give all values one type"):
                a["new"].append([0.5])
        assert t["new"][:].to_pylist()[-1] == 2**53 + 1


def test_a_filtered_frame_goes_into_a_default_index():
    frame = pd.DataFrame({"k": [1, 2, 3], "v": ["a", "b", "c"]})
    blz.to_blz(frame, store := RamStore())
    more = pd.DataFrame({"k": [2, 4, 5], "v": ["x", "y", "z"]}, index=[7, 9, 7])
    with blz.open(store, "a") as t:
        t.append(more[more.k > 4])
        t.upsert(more[more.k < 5], on="k")
        t.append(more[more.k == 5], replace_where="k = 5")
        found = t.to_pandas()
        assert found.index.equals(pd.RangeIndex(5))
        assert dict(zip(found.k, found.v, strict=True)) == {
            **{1: "a", 2: "x", 3: "c", 4: "y", 5: "z"}
        }
        for data, options in (
            (more.set_axis(["p", "q", "r"]), {}),
            (more.rename_axis("n"), {}),
            (more, {"index": True}),
        ):
            with pytest.raises(blz.SchemaError, match="index"):
                t.append(data, **options)
    blz.to_blz(iter([frame, more]), store, mode="w")
    assert blz.read_blz(store).index.equals(pd.RangeIndex(6))
    blz.to_blz(more, store, mode="w")
    assert blz.read_blz(store).index.tolist() == [7, 9, 7]


BAD = "x\ud83d"


def objects(*values):
    found = np.empty(len(values), object)
    found[:] = values
    return pd.Index(found, dtype=object)


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda bad: pd.DataFrame([[1]], columns=objects(bad)), "label"),
        (
            lambda bad: pd.DataFrame(
                [[1]], columns=pd.MultiIndex.from_arrays([objects("a"), objects(bad)])
            ),
            "label",
        ),
        (lambda bad: pd.DataFrame([[1]], columns=pd.Index(["a"], name=bad)), "label"),
        (lambda bad: pd.DataFrame({"a": [1]}, index=objects(bad)), "index level"),
        (
            lambda bad: pd.DataFrame(
                {"a": [1]}, index=pd.MultiIndex.from_arrays([objects("a"), objects(bad)])
            ),
            "index level",
        ),
        (
            lambda bad: pd.DataFrame({"a": pd.Categorical.from_codes([0], objects(bad))}),
            "column 'a', categories, row 0",
        ),
        (lambda bad: {"a": [[bad]]}, "column 'a', row 0"),
        (lambda bad: [{"a": {"b": bad}}], "column 'a', row 0"),
        (lambda bad: [{"a": {bad: 1}}], "column 'a', row 0"),
        (lambda bad: pd.DataFrame({"a": [[bad]]}), "column 'a', row 0"),
        (lambda bad: {"a": np.array([bad])}, "column 'a', row 0"),
        (lambda bad: {bad: [1]}, "column 'x"),
    ],
)
def test_text_that_is_no_utf8_is_named_with_what_helps(make, place):
    data = make(BAD)
    with pytest.raises(blz.SchemaError, match=place) as caught:
        blz.to_blz(data, RamStore())
    message = str(caught.value)
    assert "lone surrogate" in message
    if ".str.encode" in message:
        return
    call = re.search(r"replace it, with (text\..*)$", message).group(1)
    blz.to_blz(make(eval(call, {"text": BAD})), RamStore())


def test_a_name_that_is_no_utf8_is_no_column():
    blz.to_blz({"a": [1], "s": [{"f": 1}]}, store := RamStore())
    with blz.open(store, "a") as t:
        for verb in (
            lambda name: t.add_column(name, 1),
            lambda name: t.add_column(("s", name), 1),
            lambda name: t.rename_columns({"a": name}),
            lambda name: t.update({name: 1}, evolve=True),
        ):
            with pytest.raises(blz.SchemaError, match="lone surrogate"):
                verb(BAD)


@pytest.mark.parametrize(
    "condition",
    [
        f"a = '{BAD}'",
        f"a like '{BAD}%'",
        f"a ilike '{BAD}'",
        f"a in ('{BAD}')",
        f"{BAD} = 1",
        f'"{BAD}" = 1',
        f"s.{BAD} = 1",
        ("a", "==", BAD),
        ("a", "in", ["y", BAD]),
        (BAD, "==", 1),
        (("s", BAD), "in", [1]),
    ],
    ids=ascii,
)
@pytest.mark.parametrize("form", ["memory", "directory", "file"])
def test_a_condition_that_is_no_utf8_is_refused_in_words(condition, form, tmp_path):
    store = RamStore() if form == "memory" else tmp_path / "t.blz"
    more = {} if form == "memory" else {"layout": form}
    blz.to_blz({"a": ["y"], "s": [{"f": 1}]}, store, **arguments(**more))
    with blz.open(store, "a") as t:
        for verb in (
            lambda: t.to_arrow(filters=condition),
            lambda: t.count(filters=condition),
            lambda: t.delete(condition),
            lambda: t.update({"a": "z"}, where=condition),
            lambda: t.append({"a": ["z"], "s": [{"f": 1}]}, replace_where=condition),
        ):
            with pytest.raises(blz.SchemaError, match=r"lone surrogate|not UTF-8"):
                verb()
        assert t.version == 1


def test_names_that_are_no_utf8_name_no_tag_commit_or_metalayer():
    blz.to_blz({"a": [1]}, store := RamStore())
    with blz.open(store, "a") as t:
        for verb in (
            lambda: t.tags.__setitem__(BAD, 1),
            lambda: t.tags.update({BAD: 1}),
            lambda: t.append({"a": [2]}, commit_id=BAD),
            lambda: t.transaction(commit_id=BAD),
            lambda: t.vlmeta.__setitem__(BAD, b"x"),
            lambda: t.add_column("b", 1, storage=blz.Storage(meta={BAD: b"x"})),
            lambda: blz.to_blz({"a": [1]}, RamStore(), commit_id=BAD),
            lambda: blz.to_blz({"a": [1]}, RamStore(), storage=blz.Storage(meta={BAD: b"x"})),
        ):
            with pytest.raises(blz.SchemaError, match="lone surrogate"):
                verb()
        assert t.version == 1
        with pytest.raises(blz.TableNotFoundError, match="has no tag"):
            blz.open(store, version=BAD)


def test_a_type_that_is_too_deep_says_so_in_a_line():
    value, type_ = 1, pa.int64()
    for _ in range(40):
        value, type_ = [value], pa.list_(type_)
    with pytest.raises(blz.SchemaError, match="nested deeper than 32 levels") as caught:
        blz.to_blz({"deep": pa.array([value], type_)}, RamStore())
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (STAMPS, pa.array([0], pa.timestamp("s", "Etc/UTC"))),
        (pa.array([DATE]), pa.array([MIDNIGHT])),
        (pa.array([MIDNIGHT]), pa.array([DATE])),
        (pa.array(["x"]).dictionary_encode(), pa.array(["y"])),
        (pa.array(["x"]), pa.array(["y"]).dictionary_encode()),
        (pa.array([{"a": MIDNIGHT}]), pa.array([{"a": DATE, "b": 1}])),
        (pa.array([[DATE]]), pa.array([[MIDNIGHT]])),
        (pa.nulls(1), pa.array([1])),
    ],
    ids=str,
)
def test_several_tables_are_one_where_no_value_changes(one, two, tmp_path):
    blz.to_blz({"v": one}, tmp_path / "one.blz")
    blz.to_blz({"v": two}, tmp_path / "two.blz")
    data = blz.dataset([tmp_path / "one.blz", tmp_path / "two.blz"])
    assert data.count_rows() == 2
    found = data.to_table()["v"]
    assert [found[0].is_valid, found[1].is_valid] == [one[0].is_valid, two[0].is_valid]


LONG = 2**53 + 1
BESIDE_FRACTIONS = [
    [LONG, 0.5],
    [0.5, -LONG],
    [LONG, None, 0.5],
    [np.int64(LONG), 0.5],
    [2**63 + 1, 0.5],
    (LONG, 1j),
    [[LONG, 0.5], [1.0]],
    [{"f": LONG}, {"f": 0.5}],
]


@pytest.mark.parametrize("values", BESIDE_FRACTIONS, ids=str)
@pytest.mark.parametrize("form", ["columns", "rows"])
def test_a_list_of_integers_and_fractions_is_refused_where_a_float_would_round(values, form):
    keys = list(range(len(values)))
    data = {"k": keys, "v": list(values)}
    if form == "rows":
        data = [{"k": key, "v": value} for key, value in zip(keys, values, strict=True)]
    with pytest.raises(blz.SchemaError, match="cannot be stored"):
        blz.to_blz(data, RamStore())
    old = [[0.5]] if isinstance(values[0], list) else [0.5]
    old = [{"f": 0.5}] if isinstance(values[0], dict) else old
    for verb in (
        lambda t: t.append(data, evolve=True),
        lambda t: t.upsert(data, on="k", evolve=True),
        lambda t: t.append(data, replace_where="k >= 0", evolve=True),
        lambda t: t.update({"v": list(values)}, where=f"k < {len(values)}", evolve=True),
        lambda t: t.add_column("new", list(values)),
    ):
        blz.to_blz({"k": keys, "v": old * len(keys)}, store := RamStore())
        with blz.open(store, "a") as t:
            with pytest.raises(blz.SchemaError, match="cannot be stored"):
                verb(t)
            assert t.version == 1


@pytest.mark.parametrize("values", [[2**60, 0.5], [2**63, 0.5], [1, 0.5], [LONG - 1, 0.5]])
def test_integers_that_a_float_equals_go_beside_fractions(values):
    blz.to_blz({"v": values}, store := RamStore())
    assert list(map(int, blz.read_table(store)["v"].to_pylist())) == [values[0], 0]


def test_an_integer_beside_a_missing_value_keeps_its_digits():
    blz.to_blz({"v": [LONG, np.nan]}, store := RamStore())
    assert blz.read_table(store)["v"].to_pylist() == [LONG, None]


@pytest.mark.parametrize(("float_", "limit"), [(pa.float32(), 2**24), (pa.float16(), 2**11)])
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: [{"f": one} for one in v]])
def test_an_integer_among_floats_of_python_is_not_rounded_to_a_narrow_float(wrap, float_, limit):
    def column(values):
        array = pa.array(wrap(values))
        narrow = {
            pa.float64(): float_,
            pa.list_(pa.float64()): pa.list_(float_),
            pa.struct({"f": pa.float64()}): pa.struct({"f": float_}),
        }
        return array.cast(narrow[array.type])

    blz.to_blz({"v": column([0.5])}, store := RamStore())
    with blz.open(store, "a") as t:
        with pytest.raises(blz.SchemaError, match="without loss"):
            t.append({"v": wrap([limit + 1, 0.5])})
        t.append({"v": wrap([limit + 2, 0.1])})
        assert t["v"][1:].to_pylist() == column([limit + 2.0, 0.1]).to_pylist()
        if not pa.types.is_nested(t["v"].type):
            for verb in (t.append, partial(t.upsert, on="v")):
                with pytest.raises(blz.SchemaError, match=f"row 1 is {limit + 1}"):
                    verb({"v": [0.1, limit + 1]})
