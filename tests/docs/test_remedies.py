"""Every remedy works: what a message tells to call, or to pass, is done here, and succeeds.

The messages of the package that name a call or a parameter are collected from its source. Each is
in the table below, with what provokes it; a new message fails until it is there.
"""

# Messages stand as they are.
# ruff: noqa: E501

import ast
import contextlib
import copy
import errno
import io
import os
import pickle
import re
import sys
import threading
import warnings
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from obstore.store import MemoryStore

import blztable as blz
from blztable import tuning
from blztable.cli.command import main
from blztable.engine.change import fragments
from blztable.engine.run import limits
from blztable.engine.version import facts
from blztable.engine.version import versions as versions_of
from blztable.format import layout
from blztable.storage.local import LocalStore
from blztable.storage.memory import RamStore
from blztable.storage.one_file import writing
from golden.old_writer import write_table
from support.options import arguments
from support.stores import put_head

PACKAGE = Path(blz.__file__).parent
# A call, a parameter with a value, or an option of the command line.
NAMED = re.compile(
    r"\b[a-z_.]+\((?!s\))|\b[a-z_]+=(?:True|False|\"|'|\{|\d|\.\.\.)|(?<![\w-])--[a-z][a-z-]+"
)


def templates():
    """Return the texts of the package with spaces, without docstrings; values are {}."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        nodes = list(ast.walk(tree))
        skipped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                skipped |= {id(part) for part in node.values}
        for node in nodes:
            if id(node) in skipped or not isinstance(node, ast.JoinedStr | ast.Constant):
                continue
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts
            )
            if " " in text and NAMED.search(text):
                found.add(text)
    return found


REMEDIES = {}


def remedy(*texts):
    """Name the texts of messages that a test provokes and heeds."""

    def decorated(function):
        REMEDIES.update(dict.fromkeys(texts, function))
        return function

    return decorated


def refusal(call, text):
    """Return the message of an error, which has a text in it."""
    with pytest.raises(Exception, match=re.escape(text)) as caught:
        call()
    return str(caught.value)


def named_call(message, name):
    """Return the call of this name that a message tells, with all of its arguments."""
    start = message.index(f"{name}(")
    depth = 0
    for place in range(start, len(message)):
        depth += {"(": 1, ")": -1}.get(message[place], 0)
        if depth == 0 and message[place] == ")":
            return message[start : place + 1]
    raise AssertionError(message)


def opened(data, **options):
    blz.to_blz(data, store := RamStore(), **arguments(**options))
    return blz.open(store, "a")


def told(message, name, **names):
    """Do the call that a message tells."""
    return eval(named_call(message, name), {"pa": pa, "pc": pc, "np": np, "pd": pd, **names})


@remedy("pass evolve=True", ", or pass evolve=True", "; pass evolve=True")
def evolve(tmp_path):
    for data in ({"k": [1], "v": [0.5]}, {"k": [1], "w": ["x"]}):
        for verb in (
            lambda t, **more: t.append(data, **more),  # noqa: B023
            lambda t, **more: t.upsert(data, on="k", **more),  # noqa: B023
            lambda t, **more: t.append(data, replace_where="k = 1", **more),  # noqa: B023
        ):
            t = opened({"k": [0], "v": [7]})
            refusal(lambda: verb(t), "pass evolve=True")  # noqa: B023
            verb(t, evolve=True)
            assert t[:1].select(["k", "v"]).to_pydict() == {"k": [0], "v": [7]}
    t = opened({"k": [0], "v": [7]})
    refusal(lambda: t.update({"v": 0.5}, where="k = 1"), "pass evolve=True")
    t.update({"v": 0.5}, where="k = 1", evolve=True)
    t = opened(pd.DataFrame({"v": [{"a": 1}]}))
    refusal(lambda: t.append(pd.DataFrame({"v": [{"b": (1,)}]})), "pass evolve=True")
    t.append(pd.DataFrame({"v": [{"b": (1,)}]}), evolve=True)


@remedy("alter_column({}, dtype={}{})", ", safe=False")
def alter_column_type(tmp_path):
    for old, new in (([1], ["x"]), ([True], ["x"]), ([pd.Timestamp("2026").date()], ["x"])):
        t = opened({"v": old})
        before = t["v"][:].cast(pa.string()).to_pylist()
        message = refusal(lambda: t.append({"v": new}), "safe=False")  # noqa: B023
        told(message, "alter_column", alter_column=t.alter_column)
        t.append({"v": new})
        assert t["v"][:].to_pylist() == [*before, *new]
    t = opened({"v": [1]})
    message = refusal(lambda: t.alter_column("v", default=0.5), "alter_column('v', dtype=")
    told(message, "alter_column", alter_column=t.alter_column)
    t.alter_column("v", default=0.5)


@remedy("{}; call alter_column({}, default=...) with one of these")
def default_of_categories(tmp_path):
    grades = pd.DataFrame({"v": pd.Categorical(["lo", "hi"], ["lo", "hi"], ordered=True)})
    t = opened(grades[:0])
    t.alter_column("v", default="none")
    t.append(grades)
    refusal(lambda: t.resize(3), "call alter_column('v', default=...) with one of these")
    t.alter_column("v", default="lo")
    t.resize(3)
    assert t["v"][:].to_pylist() == ["lo", "hi", "lo"]


@remedy(
    "{} must be one value, not a mapping; what differs by column goes into "
    "columns={name: Storage({}=...)}",
)
def one_option_once(tmp_path):
    data, path = {"a": [1], "b": [2]}, tmp_path / "t.blz"
    refusal(lambda: blz.Storage(clevel={"a": 9}), "columns={name: Storage(clevel=...)}")
    storage = blz.Storage(compression="zstd", columns={"a": blz.Storage(clevel=9)})
    refusal(lambda: blz.to_blz(data, path, compression="lz4", storage=storage), "pass compression=")
    blz.to_blz(data, path, storage=storage)
    with blz.open(path) as t:
        assert t.storage.of("a").given() == {"compression": "zstd", "clevel": 9}


@remedy("call alter_column with safe=False")
def alter_column_to_text(tmp_path):
    t = opened({"v": [12]})
    refusal(lambda: t.alter_column("v", dtype="string"), "call alter_column with safe=False")
    t.alter_column("v", dtype="string", safe=False)
    assert t["v"][:].to_pylist() == ["12"]


@remedy("pa.timestamp({}, {})")
def spelled_zones(tmp_path):
    t = opened({"v": pa.array([0], pa.timestamp("s", "Asia/Tokyo"))})
    value = pa.scalar(1, pa.timestamp("ns", "Asia/Tokyo"))
    message = refusal(lambda: t.alter_column("v", default=value), "pa.timestamp(")
    told(message, "alter_column", alter_column=t.alter_column)
    t.alter_column("v", default=value)
    assert t["v"][:].cast(pa.int64()).to_pylist() == [0]


@remedy(
    "say in which zone they are, with Series.dt.tz_localize({}), or pc.assume_timezone(array, {}) "
    "for Arrow",
    "take the times without the zone, with Series.dt.tz_localize(None), or "
    "pc.local_timestamp(array) for Arrow",
)
def zones(tmp_path):
    naive, zoned = (
        pd.Series(pd.to_datetime(["2026"])),
        pd.Series(pd.to_datetime(["2026-01-01T00:00Z"])),
    )
    for old, new in ((naive, zoned), (zoned, naive)):
        t = opened({"v": old})
        message = refusal(lambda: t.append({"v": new}), "tz_localize")  # noqa: B023
        t.append({"v": told(message, "Series.dt.tz_localize", Series=new)})
        name = "pc.local_timestamp" if "local_timestamp" in message else "pc.assume_timezone"
        t.append({"v": told(message, name, array=pa.array(new))})
        assert len(set(t["v"][:].to_pylist())) == 1


@remedy(
    'add the times as another column, with t.add_column("new", pc.{})',
    "assume_timezone({}, {})",
)
def zones_of_a_column(tmp_path):
    for zone, other in ((None, "UTC"), ("Asia/Tokyo", None)):
        t = opened({"v": pa.array([0], pa.timestamp("us", zone))})
        type_ = pa.timestamp("us", other)
        message = refusal(lambda: t.alter_column("v", dtype=type_), "add_column")  # noqa: B023
        told(message, "t.add_column", t=t)
        assert t["new"][:].type == type_


@remedy(
    "{}: missing, not nullable and without a default; add it to the data, or call "
    "alter_column({}, default=...)",
    "column {}: the data lack it, and {} of the keys are new; it is not nullable and without a "
    "default; add it to the data, or call alter_column({}, default=...)",
)
def defaults(tmp_path):
    schema = pa.schema([("k", pa.int64()), pa.field("v", pa.int64(), nullable=False)])
    for verb in (lambda t: t.append({"k": [1]}), lambda t: t.upsert({"k": [1]}, on="k")):
        t = opened(pa.table([[0], [7]], schema=schema))
        message = refusal(lambda: verb(t), "default=...")  # noqa: B023
        told(message.replace("=...", "=5"), "alter_column", alter_column=t.alter_column)
        verb(t)
        assert t["v"][:].to_pylist() == [7, 5]


@remedy(
    ", or pass nan_as_null=False to keep NaN",
    "{}: missing values cannot be {} {}, which is not nullable; the first is in row {}; fill or "
    "drop them{}, or allow them with alter_column({}, nullable=True)",
)
def missing(tmp_path):
    schema = pa.schema([pa.field("v", pa.float64(), nullable=False)])
    t = opened(pa.table([[0.5]], schema=schema))
    data = pd.DataFrame({"v": [np.nan]})
    message = refusal(lambda: t.append(data), "nullable=True")
    t.append(data, storage=blz.Storage(nan_as_null=False))
    told(message, "alter_column", alter_column=t.alter_column)
    t.append(data)
    assert len(t) == 3


@remedy("Call df.reset_index(drop=True), or pass index=False")
def reset_index(tmp_path):
    t = opened(pd.DataFrame({"a": [1]}))
    df = pd.DataFrame({"a": [2]}, index=["x"])
    message = refusal(lambda: t.append(df), "index=False")
    t.append(told(message, "df.reset_index", df=df))
    t.append(df, index=False)
    assert t["a"][:].to_pylist() == [1, 2, 2]


@remedy("Give it an index of the same names, with df.set_index() or df.index.set_names()")
def set_names(tmp_path):
    t = opened(pd.DataFrame({"a": [1]}, index=pd.Index(["x"], name="n")))
    df = pd.DataFrame({"a": [2]}, index=["y"])
    refusal(lambda: t.append(df), "set_names")
    df.index = df.index.set_names("n")
    t.append(df)
    t.append(df.reset_index().set_index("n"))


@remedy(
    'column {}: a column of categories has those of its values; pass dtype="category", or add a '
    'column: t.add_column("new", t[{}].to_pandas().astype(dtype))'
)
def categories(tmp_path):
    t, dtype = opened({"v": ["a"]}), pd.CategoricalDtype(["a", "b"])
    message = refusal(lambda: t.alter_column("v", dtype=dtype), 'dtype="category"')
    told(message, "t.add_column", t=t, dtype=dtype)
    t.alter_column("v", dtype="category")
    assert t["v"][:].to_pylist() == t["new"][:].to_pylist() == ["a"]


@remedy(
    '; replace it, with text.encode("utf-8", "replace").decode()',
    "{} {} has a lone surrogate, which UTF-8 cannot encode; replace it, with "
    'text.encode("utf-8", "replace").decode()',
)
def surrogates(tmp_path):
    bad = "x\ud83d"
    message = refusal(lambda: opened({"a": [[bad]]}), "replace it")
    text = re.search(r"with (text\..*)$", message).group(1)
    assert len(opened({"a": [[eval(text, {"text": bad})]]})) == 1
    t = opened({"a": [1]})
    message = refusal(lambda: t.add_column(bad, 1), "replace it")
    t.add_column(eval(re.search(r"with (text\..*)$", message).group(1), {"text": bad}), 1)
    t.add_column("text", "x")
    for verb in (
        lambda text: t.count(filters=f"text like '{text}'"),
        lambda text: t.tags.update({text: 1}),
        lambda text: t.append({"a": [2], "text": ["y"]}, commit_id=text),
    ):
        message = refusal(lambda: verb(bad), "replace it")  # noqa: B023
        verb(eval(re.search(r"with (text\..*)$", message).group(1), {"text": bad}))


@remedy(
    'make the column bytes with .str.encode("utf-8", "surrogatepass")',
    '; make the column bytes with .str.encode("utf-8", "surrogatepass")',
    'make it bytes with encode("utf-8", "surrogatepass")',
)
def surrogates_of_columns(tmp_path):
    bad = "x\ud83d"
    column = pd.Series([bad], dtype=object)
    message = refusal(lambda: opened(pd.DataFrame({"a": column})), ".str.encode")
    opened({"a": eval("column" + named_call(message, ".str.encode"))})
    message = refusal(lambda: opened({"a": [bad]}), "make it bytes")
    opened({"a": [eval("bad." + named_call(message, "encode"))]})


@remedy(
    "convert it with astype(str)",
    "; convert it with astype(str)",
    '; pass storage=blz.Storage(objects="json"), or convert it with astype(str)',
    '; convert it with astype(str), or pass storage=blz.Storage(objects="infer")',
    'it is no text, and only text is taken with objects="error"',
)
def mixed_objects(tmp_path):
    frame = pd.DataFrame({"a": pd.Series([1, "x"], dtype=object)})
    refusal(lambda: opened(frame), 'pass storage=blz.Storage(objects="json"), or convert it')
    opened(frame, storage=blz.Storage(objects="json"))
    opened(frame.astype(str))
    frame = pd.DataFrame({"a": pd.Series([b"x"], dtype=object)})
    refusal(
        lambda: opened(frame, storage=blz.Storage(objects="error")),
        'pass storage=blz.Storage(objects="infer")',
    )
    opened(frame, storage=blz.Storage(objects="infer"))
    opened(frame.astype(str), storage=blz.Storage(objects="error"))
    odd = pd.DataFrame({"a": pd.Series([object], dtype=object)})
    refusal(lambda: opened(odd), "convert it with astype(str)")
    opened(odd.astype(str))


@remedy("; remove it, or convert it with astype(str)")
def odd_json(tmp_path):
    odd = pd.DataFrame({"a": pd.Series([1, object], dtype=object)})
    refusal(
        lambda: opened(odd, storage=blz.Storage(objects="json")),
        "remove it, or convert it with astype(str)",
    )
    opened(odd.astype(str), storage=blz.Storage(objects="json"))


@remedy("the data: an Index has no columns; pass index.to_frame(index=False)")
def index_data(tmp_path):
    index = pd.Index([1], name="a")
    opened(told(refusal(lambda: opened(index), "to_frame"), "index.to_frame", index=index))


@remedy(
    "the data: expected a structured array of one dimension, found the shape {}; pass "
    "array.reshape(-1)"
)
def structured(tmp_path):
    array = np.zeros((2, 1), [("a", "i8")])
    opened(told(refusal(lambda: opened(array), "reshape"), "array.reshape", array=array))


@remedy('{}: {} has no unit; choose one, array.astype("{}8[ns]")')
def no_unit(tmp_path):
    array = np.array(["NaT"], "M8")
    told(refusal(lambda: opened({"a": array}), "no unit"), "array.astype", array=array)


@remedy(
    "{}: {} has no fixed length; for the average length of a year or a month use "
    'array.astype("m8[D]")'
)
def no_length(tmp_path):
    array = np.array([1], "m8[Y]")
    message = refusal(lambda: opened({"a": array}), "no fixed length")
    opened({"a": told(message, "array.astype", array=array)})


@remedy(
    "column {}: row {} is null, so the column cannot be not null; fill it first, with "
    "update({{}: ...}, where=pc.field({}).is_null())"
)
def fill_nulls(tmp_path):
    t = opened({"v": pa.array([1, None])})
    message = refusal(lambda: t.alter_column("v", nullable=False), "fill it first")
    told(message.replace("...", "0"), "update", update=t.update)
    t.alter_column("v", nullable=False)
    assert t["v"][:].to_pylist() == [1, 0]


@remedy(
    "{} cannot be changed; open the table with mode='a'",
    "{} was opened for reading; open it with mode='a'",
)
def mode_a(tmp_path):
    blz.to_blz({"v": [1]}, store := RamStore())
    refusal(lambda: blz.open(store).append({"v": [2]}), "mode='a'")
    blz.open(store, mode="a").append({"v": [2]})
    blz.SuperChunk.create(tmp_path / "a.blp", "i8", (2,)).close()
    with blz.SuperChunk.open(tmp_path / "a.blp") as array:
        refusal(lambda: array.__setitem__(0, 1), "mode='a'")


@remedy(
    'a table already exists at {} (version {}); write with mode="w" to replace it, or choose '
    "another path",
    'sort_by is not supported with mode="a"; append, then sort all rows with '
    "CTable.compact(sort_by=...)",
    "no table at {}{}; write one with to_blz() or create()",
)
def existing(tmp_path):
    blz.to_blz({"v": [1]}, tmp_path / "t.blz")
    refusal(lambda: blz.to_blz({"v": [1]}, tmp_path / "t.blz", mode="x"), 'mode="w"')
    blz.to_blz({"v": [3, 1]}, tmp_path / "t.blz", mode="w")
    message = refusal(
        lambda: blz.to_blz({"v": [2]}, tmp_path / "t.blz", mode="a", sort_by="v"), "compact"
    )
    with blz.open(tmp_path / "t.blz", "a") as t:
        t.append({"v": [2]})
        told(message.replace("...", "'v'"), "CTable.compact", CTable=t)
        assert t["v"][:].to_pylist() == [1, 2, 3]
    refusal(lambda: blz.open(tmp_path / "none.blz"), "to_blz() or create()")
    blz.create(tmp_path / "none.blz", {"v": "int64"}).close()


@remedy(
    "{} columns are named {}; read them with to_arrow([{}])",
    "{}: several columns share a name, so a row is no dict; use take()",
    "a table is indexed by a column name, a list of column names, a slice of rows or the number of "
    "a row, not by {}; read several rows with take()",
    "row numbers must be a 1-d array of integers, not {}; for a condition pass filters= to "
    "to_arrow()",
)
def reading(tmp_path):
    t = opened(pa.table([[1], [2]], ["a", "a"]))
    message = refusal(lambda: t["a"], "to_arrow(['a'])")
    assert told(message, "to_arrow", to_arrow=t.to_arrow).num_columns == 2
    refusal(lambda: t[0], "use take()")
    t.take([0])
    refusal(lambda: t[1.5], "read several rows with take()")
    refusal(lambda: t.take([[1]]), "pass filters= to to_arrow()")
    opened({"a": [1]}).to_arrow(filters="a = 1")


@remedy(
    "{} is a table for file systems without locks, which is only read here; copy() it to a "
    "directory and change the copy",
)
def only_read(tmp_path):
    store = RamStore()
    blz.to_blz({"v": [1]}, store)
    put_head(store, 1, requires=("unlocked",))
    with blz.open(store, "a") as t:
        refusal(lambda: t.append({"v": [2]}), "copy() it to a directory")
    blz.copy(store, tmp_path / "copy.blz")
    blz.to_blz({"v": [2]}, tmp_path / "copy.blz", mode="a")
    assert blz.read_table(tmp_path / "copy.blz")["v"].to_pylist() == [1, 2]


@remedy("; dataset() takes several tables")
def several(tmp_path):
    for name in ("a.blz", "b.blz"):
        blz.to_blz({"v": [1]}, tmp_path / name)
    paths = [tmp_path / "a.blz", tmp_path / "b.blz"]
    refusal(lambda: blz.read_blz(paths), "dataset() takes several tables")
    assert blz.dataset(paths).count_rows() == 2


@remedy(
    "{} has several columns named {}; rename one with rename_columns(), or leave the table out",
    "{} columns are named {}; rename one with rename_columns(), or choose other columns",
)
def one_name(tmp_path):
    blz.to_blz(pa.table([[1], [2]], ["a", "a"]), tmp_path / "a.blz")
    refusal(lambda: blz.dataset([tmp_path / "a.blz"] * 2), "rename one with rename_columns()")
    with blz.open(tmp_path / "a.blz", "a") as t:
        message = "rename one with rename_columns()"
        refusal(lambda: t.dataset().to_table(columns=["a"]), message)
        t.drop_columns(["a"])
        t.add_column("b", 1)
        t.rename_columns({"b": "c"})
        assert t.dataset().to_table(columns=["c"]).num_rows == 1


@remedy(
    "column {}: {} cannot become {}, because the values would not mean the same; convert the data "
    'in pandas, and add them as another column: t.add_column("new", data)'
)
def other_meaning(tmp_path):
    t = opened(pd.DataFrame({"v": pd.period_range("2026", periods=1, freq="M")}))
    message = refusal(lambda: t.alter_column("v", dtype="string"), "convert the data in pandas")
    told(message, "t.add_column", t=t, data=t.to_pandas()["v"].astype(str))
    assert t["new"][:].to_pylist() == ["2026-01"]


@remedy(
    "column {}: digits is {}, but the table keeps {} digits of it, and rows of both kinds could "
    'not be told apart; leave digits out, or write all rows again with mode="w"'
)
def other_digits(tmp_path):
    blz.to_blz({"v": [0.5]}, store := RamStore())
    refusal(
        lambda: blz.to_blz(
            {"v": [0.5]}, store, mode="a", storage=blz.Storage(columns={"v": blz.Storage(digits=3)})
        ),
        "leave digits out",
    )
    blz.to_blz({"v": [0.5]}, store, mode="a")
    blz.to_blz(
        {"v": [0.5]}, store, mode="w", storage=blz.Storage(columns={"v": blz.Storage(digits=3)})
    )


@remedy(
    "column {}: type {} cannot be stored, because Arrow cannot write a dictionary of dictionaries; "
    "decode the outer one: array.dictionary_decode()"
)
def dictionaries(tmp_path):
    inner = pa.array(["x"]).dictionary_encode()
    array = pa.DictionaryArray.from_arrays(pa.array([0]), inner)
    message = refusal(lambda: opened({"v": array}), "dictionary_decode")
    opened({"v": told(message, "array.dictionary_decode", array=array)})


@remedy(
    "keep={}: pass at least 1; the newest version always stays",
    "older_than={}: pass 0 or a positive number of seconds",
    "version={} and at={}: pass one of them",
)
def versions(tmp_path):
    blz.to_blz({"v": [1]}, store := RamStore())
    with blz.open(store, "a") as t:
        refusal(lambda: t.vacuum(keep=0), "pass at least 1")
        t.vacuum(keep=1)
        refusal(lambda: t.vacuum(older_than=-1), "pass 0 or a positive number")
        t.vacuum(older_than=0)
    refusal(lambda: blz.open(store, version=1, at="2026-01-01"), "pass one of them")
    blz.open(store, version=1).close()


@remedy(
    "{} is at byte {}, and a table begins at byte 0; pass a new file object, or call seek(0) to "
    "replace what it holds"
)
def file_objects(tmp_path):
    file = io.BytesIO(b"abc")
    file.seek(3)
    refusal(lambda: blz.to_blz({"v": [1]}, file), "seek(0)")
    file.seek(0)
    blz.to_blz({"v": [1]}, file)
    blz.to_blz({"v": [1]}, io.BytesIO())


@remedy("{}; here: --append or --replace", "{}; see `{} --help`")
def command_line(tmp_path, capsys=None):
    source, table = tmp_path / "a.csv", str(tmp_path / "t.blz")
    source.write_text("a\n1\n")
    for options, code in (([], 0), ([], 1), (["--append"], 0), (["--replace"], 0), (["--nope"], 2)):
        assert main(["import", str(source), table, *options]) == code
    assert len(blz.open(table)) == 1


@remedy("--compression goes with --append or with --sort-by, not with both")
def compression(tmp_path):
    source, table = tmp_path / "a.csv", str(tmp_path / "t.blz")
    source.write_text("a\n1\n")
    more = ["import", str(source), table, "--append"]
    assert main(more) == 0
    assert main([*more, "--compression", "lz4", "--sort-by", "a"]) == 2
    assert main([*more, "--compression", "lz4"]) == 0
    assert main([*more, "--sort-by", "a"]) == 0


@remedy("{}; or write the other columns to Parquet with blz export --columns, and query that file")
def types_of_duckdb(tmp_path):
    table, file = str(tmp_path / "t.blz"), str(tmp_path / "t.parquet")
    blz.to_blz({"h": np.zeros(2, "f2"), "k": [1, 2]}, table)
    assert main(["sql", "select k from t", table]) == 1
    assert main(["export", table, "--columns", "k", "-o", file]) == 0
    assert duckdb.sql(f"select k from '{file}'").fetchall() == [(1,), (2,)]


@remedy(
    "{} has not one value for each row; read it within its column, to_arrow([{}])",
    "{}: a field of a struct that has unions or runs must be named by its path, pc.field('a', 'b')",
    "column {} has values of shape {}, so it is not one column of an array; read it with table[name].to_numpy()",
)
def nested(tmp_path):
    t = opened({"d": [[{"x": 1}]], "m": np.zeros((1, 3)), "n": [1]})
    message = refusal(lambda: t["d.item.x"], "to_arrow([")
    assert told(message, "to_arrow", to_arrow=t.to_arrow).num_rows == 1
    message = refusal(t.to_numpy, "table[name].to_numpy()")
    assert eval("t['m'].to_numpy()").shape == (1, 3)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([5]))
    structs = pa.StructArray.from_arrays([pa.array([1, 2]), runs], ["b", "r"])
    t = opened(pa.table({"a": structs}))
    field = pc.struct_field(pc.field("a"), [0])
    message = refusal(lambda: t.to_arrow(filters=field == 2), "pc.field('a', 'b')")
    assert t.to_arrow(filters=told(message, "pc.field") == 2).num_rows == 1


@remedy("only is_null() and is_valid() are for a column of this type")
def of_no_order(tmp_path):
    t = opened({"v": [[1], None]})
    refusal(lambda: t.count(filters=("v", "==", 1)), "only is_null()")
    assert (
        t.count(filters=pc.field("v").is_null()) == t.count(filters=pc.field("v").is_valid()) == 1
    )


@remedy(
    "/no file: Arrow cannot scan a blztable dataset by itself; use its to_table()",
    "a blztable dataset cannot do this; call its to_table() first",
)
def datasets(tmp_path):
    blz.to_blz({"v": [2, 1]}, tmp_path / "t.blz")
    one = blz.dataset(tmp_path / "t.blz")
    refusal(lambda: ds.Scanner.from_dataset(one).to_table(), "use its to_table()")
    assert one.to_table().num_rows == 2
    refusal(lambda: one.sort_by("v"), "call its to_table() first")
    assert one.to_table().sort_by("v")["v"].to_pylist() == [1, 2]


@remedy("; convert the column with astype(str)", '; use astype("{}")')
def odd_dtypes(tmp_path):
    array = np.zeros(2, np.longdouble)
    message = refusal(lambda: opened({"a": array}), "use astype(")
    opened({"a": eval("array." + named_call(message, "astype"), {"array": array})})
    series = pd.Series(np.zeros(2, "V3"))
    refusal(lambda: opened({"a": series}), "astype(str)")
    opened({"a": series.astype(str)})


@remedy(
    "{}: a dictionary of Arrow cannot hold the categories, which are {}; {}convert the column with astype(str)",
    'pass storage=blz.Storage(objects="json"), or ',
)
def odd_categories(tmp_path):
    frame = pd.DataFrame({"a": pd.Categorical([(1, 2)])})
    refusal(
        lambda: opened(frame), 'pass storage=blz.Storage(objects="json"), or convert the column'
    )
    opened(frame, storage=blz.Storage(objects="json"))
    opened(frame.astype(str))


@remedy(
    "{}, row {}: {} of {} cannot be stored in {} without change; use array.astype({}), which changes what does not fit, or array.astype(np.int64)"
)
def odd_times(tmp_path):
    array = np.array([1], "M8[ps]")
    message = refusal(lambda: opened({"a": array}), "without change")
    calls = re.findall(r"array\.astype\([^)]*\)", message)
    assert len(calls) == 2
    for call in calls:
        opened({"a": eval(call, {"array": array, "np": np})})


@remedy("{}: numpy has no type for {}: {}; use to_arrow()")
def no_numpy(tmp_path):
    t = opened({"a": pa.array([3 * 86400 * 10**9]).cast(pa.time64("ns"))})
    refusal(lambda: t["a"].to_numpy(), "use to_arrow()")
    assert t.to_arrow()["a"].cast(pa.int64()).to_pylist() == [3 * 86400 * 10**9]


@remedy("Arrow has no such text: {}; use to_numpy()", "Arrow has no dtype {}: {}; use to_numpy()")
def no_arrow(tmp_path):
    for dtype, values, words in (
        ("<U1", ["\ud800"], "Arrow has no such text"),
        ("c8", [1j], "Arrow has no dtype"),
    ):
        with blz.SuperChunk.create(None, dtype) as array:
            array.append(values)
            refusal(array.to_arrow, words)
            assert array.to_numpy().tolist() == values


@remedy(
    "chunk {} needs {} bytes, its slot has {}; rewrite(reserve=...) makes room",
    "{} has a metalayer {}; update() changes it",
)
def arrays(tmp_path):
    with blz.SuperChunk.create(tmp_path / "a.blp", "i8", (4000,), chunk_shape=(1000,)) as array:
        array[:] = 0
        random = np.random.default_rng(1).integers(0, 1 << 62, 4000)
        refusal(lambda: array.__setitem__(slice(None), random), "rewrite(reserve=...)")
        array.rewrite(reserve=9000)
        array[:] = random
        assert np.array_equal(array[:], random)
        array.vlmeta.add("a", b"x")
        refusal(lambda: array.vlmeta.add("a", b"y"), "update() changes it")
        array.vlmeta.update("a", b"y")


@remedy("{} cannot seek; to read an array from it, pass what its read() returns")
def no_seek(tmp_path):
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

    with blz.SuperChunk.create(file := io.BytesIO(), "i8") as array:
        array.append([1])
    pipe = Pipe(file.getvalue())
    refusal(lambda: blz.SuperChunk.open(pipe), "pass what its read() returns")
    assert blz.SuperChunk.open(pipe.read())[:].tolist() == [1]


@remedy(
    "{}: a table in memory belongs to its process and cannot be copied or pickled; write it to a path, or copy() it to one",
    "{}: an array in memory or in a file object cannot be copied or pickled; only one that was opened by its path, or its to_numpy()",
)
def copies(tmp_path):
    t = opened({"a": [1]})
    refusal(lambda: pickle.dumps(t), "write it to a path")
    blz.to_blz(t.to_arrow(), tmp_path / "t.blz")
    blz.copy(t._snapshot.version.store, tmp_path / "p.blz", layout="file")
    for path in (tmp_path / "t.blz", tmp_path / "p.blz"):
        assert pickle.loads(pickle.dumps(blz.open(path)))["a"][:].to_pylist() == [1]
    for file in (None, tmp_path / "a.blp"):
        with blz.SuperChunk.create(file, "i8") as array:
            array.append([1])
            if file is None:
                refusal(lambda: copy.copy(array), "its to_numpy()")
                assert copy.copy(array.to_numpy()).tolist() == [1]
    with blz.SuperChunk.open(tmp_path / "a.blp") as array:
        assert copy.copy(array)[:].tolist() == [1]


@remedy(
    "{}: it took none of {} bytes; a file that does not block must be made to block, os.set_blocking(file.fileno(), True)"
)
def blocking(tmp_path):
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with open(theirs, "wb", buffering=0) as file:
        data = pa.table({"a": np.random.default_rng(1).random(20_000)})
        message = refusal(lambda: blz.to_blz(data, file), "took none")
        call = named_call(message, "os.set_blocking")
        reader = threading.Thread(
            target=lambda: [None for _ in iter(lambda: os.read(ours, 1 << 16), b"")]
        )
        reader.start()
        eval(call, {"os": os, "file": file})
        blz.to_blz(data, file)
    reader.join()
    os.close(ours)


@remedy("progress=True needs tqdm: pip install 'blztable[progress]', or pass a callable")
def progress(tmp_path):
    hidden = dict.fromkeys(("tqdm", "tqdm.auto"))
    with pytest.MonkeyPatch.context() as patch:
        for name in hidden:
            patch.setitem(sys.modules, name, None)
        refusal(lambda: opened({"a": [1]}, progress=True), "or pass a callable")
        opened({"a": [1]}, progress=lambda done, total: None)


@remedy(
    'at={} is no time; write one as "2026-11-22T10:00", or with a zone as "2026-11-22T10:00Z"; a tag is passed as version='
)
def moments(tmp_path):
    blz.to_blz({"v": [1]}, store := RamStore())
    with blz.open(store, "a") as t:
        t.tags["first"] = 1
    message = refusal(lambda: blz.open(store, at="first"), "a tag is passed as version=")
    for text in re.findall(r'"(2026[^"]+)"', message):
        # It is a time; the same one in the next century finds the version.
        blz.open(store, at=text.replace("2026", "2126"))
    assert len(blz.open(store, version="first")) == 1


@remedy(
    "column {}: {} rows take {} bytes, more than the {} allowed in a row group, and row groups have {} rows; append whole rows with append(), or pass a smaller row_group_rows"
)
def large_groups(tmp_path):
    with tuning.tuned(group_text_bytes=1000):
        values = ["x" * 400] * 4

        def write(**options):
            blz.create(store := RamStore(), {"v": "string"}, **arguments(**options))
            with blz.open(store, "a") as t, t.transaction() as tx, tx.appender() as a:
                a["v"].append(values)
            return store

        refusal(lambda: write(row_group_rows=4), "append whole rows with append()")
        with blz.open(write(row_group_rows=1)) as t:
            assert t["v"][:].to_pylist() == values
        t = opened({"v": ["y"]})
        t.append({"v": values})
        assert len(t) == 5


@remedy("read fewer columns or rows, or use to_batches()")
def memory(tmp_path):
    t = opened(dict.fromkeys("vw", np.zeros(6_000_000)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "_memory", lambda: 70_000_000)
        refusal(t.to_arrow, "or use to_batches()")
        assert t.to_arrow(["v"]).num_rows == 6_000_000
        assert t[:5].num_rows == 5
        assert sum(batch.num_rows for batch in t.to_batches()) == 6_000_000


@remedy(
    "{}: {} row groups; a table has at most {}; write larger row groups, and join small ones with "
    "compact()"
)
def row_groups(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "MAX_GROUPS", 3)
        t = opened({"v": range(6)}, row_group_rows=2)
        refusal(
            lambda: t.append({"v": range(2)}, storage=blz.Storage(row_group_rows=2)), "at most 3"
        )
        t.configure(storage=blz.Storage(row_group_rows=6))
        t.compact()
        t.append({"v": range(6)})
        assert len(t) == 12


def damaged(tmp_path, **columns):
    """Return the path of a table of two row groups whose second one of column v is damaged."""
    table = pa.table({"k": range(20), "v": range(20)}, schema=columns.get("schema"))
    blz.to_blz(table, path := tmp_path / "d.blz", storage=blz.Storage(row_group_rows=10))
    version, pinned = versions_of.pin(LocalStore(path))
    with pinned:
        file = path / version.parts(1).key(1)
    data = bytearray(file.read_bytes())
    data[-6] ^= 1  # the last chunk, before its digest
    file.write_bytes(data)
    return path


@remedy('{}: {}, but it allows no nulls; leave the rows out with on_corrupt="skip"')
def no_nulls(tmp_path):
    schema = pa.schema([("k", pa.int64()), pa.field("v", pa.int64(), nullable=False)])
    with blz.open(damaged(tmp_path, schema=schema), "a") as t:
        refusal(lambda: t.repair(on_corrupt="null"), 'with on_corrupt="skip"')
        t.repair(on_corrupt="skip")
        assert t["k"][:].to_pylist() == list(range(10))


def cut_file(tmp_path):
    """Return the path of a table in one file that was never finished."""
    blz.to_blz(
        {"v": range(50_000)}, file := io.BytesIO(), storage=blz.Storage(row_group_rows=5_000)
    )
    path = tmp_path / "cut.blz"
    path.write_bytes(file.getvalue()[: len(file.getvalue()) * 2 // 3])
    return path


@remedy(
    '{} was never finished: {}; read them with on_corrupt="skip", or copy them with blztable.copy(source, target, on_corrupt="skip")',
    '{} was never finished: {}; copy them first with blztable.copy(source, target, on_corrupt="skip"), or remove the file',
)
def unfinished(tmp_path):
    path = cut_file(tmp_path)
    refusal(lambda: blz.open(path), 'on_corrupt="skip", or copy them')
    with pytest.warns(UserWarning, match="never finished"):
        assert blz.read_table(path, on_corrupt="skip").num_rows > 0
    refusal(lambda: blz.to_blz({"v": [1]}, path, mode="x"), "copy them first with")
    assert blz.copy(path, tmp_path / "r.blz", on_corrupt="skip").rows > 0
    path.unlink()
    blz.to_blz({"v": [1]}, path, mode="x")
    with pytest.warns(UserWarning, match="left out"):
        assert blz.read_table(damaged(tmp_path), on_corrupt="skip").num_rows == 10


@remedy(
    '{}: the first bytes of the file are damaged; write the table to a new one with blztable.copy(source, target, on_corrupt="skip")',
    '{}; write what is whole to a new table with blztable.copy(source, target, on_corrupt="skip")',
)
def damaged_files(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"v": range(50)}, path, storage=blz.Storage(layout="file"))
    whole = path.read_bytes()
    for name, at in (("front", 8), ("commit", len(whole) - 60)):
        data = bytearray(whole)
        data[at : at + 8] = bytes(8)
        path = tmp_path / f"{name}.blz"
        path.write_bytes(data)
        refusal(lambda path=path: blz.open(path, "a"), "blztable.copy(source, target")
        assert blz.copy(path, tmp_path / f"new-{name}", on_corrupt="skip").rows == 50


@remedy(
    '{}; no other version can be read; write the table again with mode="w"',
    "{}; version {} is intact, open it with version={}, and call restore({}) to continue from it",
    "version {} is intact, open it with version={}",
)
def manifests_lost(tmp_path):
    for how in ("gone", "torn"):
        blz.to_blz({"v": [1]}, path := tmp_path / f"{how}.blz")
        blz.to_blz({"v": [2]}, path, mode="a")
        file = tmp_path / f"{how}.blz" / layout.manifest(2)
        if how == "gone":
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:50])
        message = refusal(lambda: blz.open(path), "is intact, open it with version=1")
        with blz.open(path, "a", version=1) as t:
            assert t["v"][:].to_pylist() == [1]
            if "restore(" in message:
                told(message, "restore", restore=t.restore)
                t.append({"v": [3]})
        assert ("restore(" in message) == (how == "gone")
        if how == "gone":
            assert blz.open(path)["v"][:].to_pylist() == [1, 3]
    blz.to_blz({"v": [1]}, path := tmp_path / "all.blz")
    (path / layout.manifest(1)).unlink()
    refusal(lambda: blz.open(path), 'write the table again with mode="w"')
    blz.to_blz({"v": [2]}, path, mode="w")
    assert blz.open(path)["v"][:].to_pylist() == [2]


@remedy("{}: commit_id={} names the whole commit; pass it to transaction(), not to a change in it")
def name_of_a_commit(tmp_path):
    t = opened({"v": [1]})
    with t.transaction() as tx:
        message = refusal(lambda: tx.append({"v": [2]}, commit_id="job"), "names the whole commit")
    given = ast.literal_eval(re.search(r"commit_id=('\w+')", message)[1])
    for is_repeated in (False, True):
        with t.transaction(commit_id=given) as tx:
            assert tx.is_repeated == is_repeated
            tx.append({"v": [2]})
    assert t["v"][:].to_pylist() == [1, 2]


@remedy(
    "make a table of it with blztable.copy({}, new), and change that{}",
    "; change an array with blztable.SuperChunk.open({}, 'a')",
    "column {}: {}; the others can be read, columns={}",
)
def old_tables(tmp_path):
    write_table(tmp_path / "old", {"a": np.arange(9), "b": np.array([b"x"] * 9)})
    message = refusal(lambda: blz.open(tmp_path / "old", "a"), "blztable.copy(")
    new = tmp_path / "new.blz"
    told(message, "blztable.copy", blztable=blz, new=new)
    with blz.open(new, "a") as t:
        t.append({"a": [9], "b": [b"y"]})
    with blz.SuperChunk.create(tmp_path / "a.blp", "i8") as array:
        array.append([1])
    message = refusal(lambda: blz.to_blz({"a": [1]}, tmp_path / "a.blp"), "SuperChunk.open(")
    with told(message, "blztable.SuperChunk.open", blztable=blz) as array:
        array.append([2])
    told(message, "blztable.copy", blztable=blz, new=tmp_path / "b.blz")
    file = tmp_path / "old" / "b" / "meta" / "storage"
    file.write_text(file.read_text().replace('"|S1"', '"object"'))
    message = refusal(lambda: blz.read_table(tmp_path / "old"), "the others can be read")
    columns = ast.literal_eval(message[message.index("columns=") + len("columns=") :])
    assert blz.read_table(tmp_path / "old", columns=columns).num_rows == 9


def imported(tmp_path, name, content, *options):
    """Import a file with options; return the error, or the table."""
    (tmp_path / name).write_bytes(content)
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        code = main(
            ["import", str(tmp_path / name), str(tmp_path / "t.blz"), "--replace", *options]
        )
    return blz.read_table(tmp_path / "t.blz") if code == 0 else errors.getvalue()


def option(message, name):
    """Return an option of the command line, with its value, that a message tells."""
    return re.search(rf"{name}[ =]([^ `,;\n]+)", message)[0].split(" ")


@remedy(
    "pass --encoding, for example --encoding latin-1",
    "{}; {}, or --dtype {}=binary",
)
def encodings(tmp_path):
    content = b"a,b\n1,x\n2,\xe9\n"
    message = imported(tmp_path, "a.csv", content)
    assert (
        imported(tmp_path, "a.csv", content, *option(message, "--encoding"))["b"][1].as_py() == "é"
    )
    dtype = option(message, "--dtype")
    assert imported(tmp_path, "a.csv", content, *dtype)["b"].to_pylist() == [b"x", b"\xe9"]


@remedy("`--dtype {}=string` reads both as text")
def mixed_lines(tmp_path):
    content = b'{"k": 1, "a": 1}\n{"k": 2, "a": "x"}\n'
    message = imported(tmp_path, "a.ndjson", content)
    dtype = re.search(r"`(--dtype \S+)`", message)[1].split()
    assert imported(tmp_path, "a.ndjson", content, *dtype)["a"].to_pylist() == ["1", "x"]


@remedy("{} would change the digits of {}; --dtype of the column with this type lets it")
def digits(tmp_path):
    blz.to_blz({"a": [0.5]}, tmp_path / "t.blz")
    source = tmp_path / "a.csv"
    source.write_text("a\n9007199254740993\n")
    command = ["import", str(source), str(tmp_path / "t.blz"), "--append"]
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        assert main(command) == 1
    type_ = re.search(r"(\w+) would change the digits", errors.getvalue())[1]
    assert main([*command, "--dtype", f"a={type_}"]) == 0


@remedy(
    "no type is named {}; try int64, double, string, bool, date32, timestamp[us], timestamp[us,UTC], decimal(12,2), binary or category"
)
def type_names(tmp_path):
    message = imported(tmp_path, "a.csv", b"a\n\n", "--dtype", "a=nope")
    names = re.split(r", (?=[a-z])| or ", re.search("try (.*)", message)[1])
    assert len(names) == 10
    for name in names:
        assert isinstance(
            imported(tmp_path, "a.csv", b"a,b\n,1\n", "--dtype", f"a={name}"), pa.Table
        )


@remedy(
    "{}: no other process can open the table; copy it with blztable.copy() to a path or a URL, and plan there",
    "{} has no versions that a part could name; make a table of it with blztable.copy()",
)
def plans(tmp_path):
    in_memory = blz.MemoryStore()
    blz.to_blz({"v": [1, 2]}, in_memory)
    write_table(tmp_path / "old", {"v": np.arange(1, 3)})
    for number, source in enumerate((in_memory, tmp_path / "old")):
        refusal(partial(blz.plan, source), "blztable.copy()")
        blz.copy(source, tmp_path / f"{number}.blz")
        (part,) = blz.plan(tmp_path / f"{number}.blz")
        assert part.to_arrow()["v"].to_pylist() == [1, 2]


@remedy(
    "{}: several processes cannot write there; write to a directory or a URL, and make one file of it by copy() afterwards",
    "{}: storage= is that of a new table; the table keeps its own, which configure() changes",
    "job {} has rows; pass what begin() returned",
    "the text is not {}; pass what begin() or write_fragment() returned",
)
def jobs(tmp_path):
    file, path, digits = tmp_path / "file.blz", tmp_path / "t.blz", blz.Storage(page_rows=16)
    blz.to_blz({"v": [1]}, file, storage=blz.Storage(layout="file"))
    refusal(partial(blz.begin, file), "by copy()")
    blz.copy(file, path, layout="directory")
    refusal(partial(blz.begin, path, storage=digits), "configure()")
    with blz.open(path, "a") as t:
        t.configure(storage=digits)
    job = blz.begin(path)
    fragment = blz.write_fragment(job, {"v": [2]}, 0)
    refusal(partial(blz.commit, fragment, [fragment]), "begin() or write_fragment()")
    values = fragments.jsontext.loads(job.encode(), "a job")
    rows = fragments.jsontext.loads(fragment.encode(), "a fragment")["version"]
    whole = {**values, "version": rows}
    del whole["sha256"]
    forged = fragments.jsontext.dumps({**whole, "sha256": fragments._digest(whole)}).decode()
    refusal(partial(blz.commit, forged, [fragment]), "has rows; pass what begin() returned")
    assert blz.commit(job, [fragment]) == 3
    blz.copy(path, tmp_path / "again.blz", layout="file")
    assert blz.read_blz(tmp_path / "again.blz")["v"].tolist() == [1, 2]


@remedy(
    "rows must be (first row, row after the last one), not {}; read single rows with take()",
    "rows must be (first row, row after the last one) with 0 <= first <= after, not {}; read the last rows with tail()",
)
def runs_of_rows(tmp_path):
    t = opened({"v": [1, 2, 3]})
    refusal(lambda: t.to_arrow(rows=[2, 0, 1]), "with take()")
    assert t.take([2, 0, 1])["v"].to_pylist() == [3, 1, 2]
    refusal(lambda: t.to_arrow(rows=(-1, 3)), "with tail()")
    assert t.tail(1)["v"].to_pylist() == [3]


@remedy("the file keeps its dead bytes; call vacuum() to try again")
def dead_bytes(tmp_path):
    path = tmp_path / "t.blz"
    random = np.random.default_rng(1)
    blz.to_blz({"x": random.random(50_000)}, path, storage=blz.Storage(layout="file"))
    with blz.open(path, "a") as t:
        t.configure(keep_versions=1, keep_seconds=0)
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            patch.setattr(tuning, "current", tuning.Tuning(dead_bytes=1000))
            patch.setattr(writing.Writing, "rewrite", full)
            for _ in range(8):
                t.update({"x": random.random(50_000)})
        assert any("call vacuum() to try again" in str(one.message) for one in caught)
        size = path.stat().st_size
        t.vacuum(keep=1)
        assert path.stat().st_size < size


def full(*_):
    raise blz.StorageError(os.strerror(errno.ENOSPC))


@remedy(
    "a table was dropped at {}, and the files of a copy would have its numbers; copy the rows with "
    'mode="w", or choose another path'
)
def copy_where_a_table_was_dropped(tmp_path):
    source, target = RamStore(), RamStore()
    for store in (source, target):
        blz.to_blz({"n": [1]}, store)
    blz.drop(target)
    refusal(lambda: blz.copy(source, target), 'copy the rows with mode="w"')
    assert blz.copy(source, target, mode="w").rows == 1
    assert blz.read_table(target)["n"].to_pylist() == [1]


@remedy(
    "{} is one file in a bucket, which each change writes anew, so it takes no appends; append to "
    'a directory, blztable.copy(source, target, layout="directory"), or write all rows with '
    'mode="w"'
)
def append_to_a_directory_instead_of_a_file(tmp_path):
    source = MemoryStore()
    blz.to_blz({"n": [1]}, source, storage=blz.Storage(layout="file"))
    refusal(lambda: blz.to_blz({"n": [2]}, source, mode="a"), "append to a directory")
    blz.copy(source, tmp_path / "t.blz", layout="directory")
    blz.to_blz({"n": [2]}, tmp_path / "t.blz", mode="a")
    assert blz.read_table(tmp_path / "t.blz")["n"].to_pylist() == [1, 2]
    blz.to_blz({"n": [1, 2]}, source, mode="w")
    assert blz.read_table(source)["n"].to_pylist() == [1, 2]


@remedy(
    "{}: a table in memory is no file; leave layout out, and copy() the table to a file object or "
    "a path"
)
def copy_a_table_in_memory_to_a_file(tmp_path):
    store = blz.MemoryStore()
    storage = blz.Storage(layout="file")
    refusal(lambda: blz.to_blz({"n": [1]}, store, storage=storage), "is no file")
    blz.to_blz({"n": [1]}, store)
    blz.copy(store, tmp_path / "t.blz", layout="file")
    assert (tmp_path / "t.blz").is_file()
    blz.copy(store, file := io.BytesIO())
    assert blz.read_table(file.getvalue())["n"].to_pylist() == [1]


# Texts that name a call, but are no advice: help, and parts of other messages.
NO_ADVICE = {
    "type of a column, for example zip=string, price=decimal(12,2), at=timestamp[us,UTC]",
    "len() of an array without axes",
    "at={} is too early or too late",
    "dict(zip(names, array.T)), with one name per column",
    "given to create() or to_blz(), as Storage(meta=...) of a column, or to add_column()",
    "given to create() or to_blz(), as storage=blz.Storage(meta=...)",
}
# Advice that no test can do here, each with the reason.
NOT_HEEDED = {
    # zarr is no dependency of the tests.
    "zarr.open({0!r}, mode='r')",
    # Arrow must refuse to import its own array; no version that is supported is known to do so.
    "Arrow cannot give values of {} their storage type ({}); decode runs within runs with pyarrow.compute.run_end_decode()",
    # A front of more bytes than one may have takes an array of several gigabytes.
    "there is room for {} chunks; rewrite() makes more",
}


@pytest.mark.parametrize("name", sorted({one.__name__ for one in REMEDIES.values()}))
def test_a_remedy_works(name, tmp_path):
    next(one for one in REMEDIES.values() if one.__name__ == name)(tmp_path)


def test_each_message_that_names_a_remedy_is_provoked_here():
    known = REMEDIES.keys() | NO_ADVICE | NOT_HEEDED
    found = templates()
    assert found - known == set(), "write a test above that does what these messages say"
    assert known - found == set(), "no message has these texts any more"
