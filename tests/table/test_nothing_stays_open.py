"""Nothing stays open: once its names are gone, a handle keeps no version and no descriptor.

The garbage collector is off, so an object in a cycle of references would stay. Such an object kept
erased rows: `vacuum` keeps a version that somebody has open. The verbs are those of the public
face: a new one fails here until it has its line.
"""

import ast
import gc
import io
import os
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import blztable as blz
from blztable.storage.memory import RamStore
from support.moved_first import moved_first
from support.options import arguments

ROWS = {"n": [1, 2, 3, 3], "text": ["a", "b", "c", "c"], "deep": [{"a": 1}, {"a": 2}, None, None]}
NEW = {"n": [4], "text": ["d"], "deep": [{"a": 4}]}
NONE = {"no such option": 1}
EXPRESSION = pc.field("n") + 1 > 2


def first(iterator):
    """Draw one item, and drop the iterator."""
    return next(iter(iterator))


def append_by_column(t, values):
    with t.transaction() as tx, tx.appender() as appender:
        for name, column in values.items():
            appender[name].append(column)


def failing_transaction(t):
    with t.transaction() as tx:
        tx.append(NEW)
        raise RuntimeError("the caller failed")


def begun(t):
    """Begin a transaction that nobody enters, and enter one that nobody leaves."""
    t.transaction()
    t.transaction().__enter__().append(NEW)


def stream_that_fails():
    yield NEW
    raise RuntimeError("the caller's iterator failed")


# Each method with calls that succeed, also in part, and calls that fail.
CHANGES = {
    "add_column": ([lambda t: t.add_column("m", pc.field("n") + 1)], [lambda t: t.add_column("n")]),
    "alter_column": (
        [lambda t: t.alter_column("n", dtype="float64")],
        [lambda t: t.alter_column("text", dtype="int64")],
    ),
    "append": (
        [lambda t: t.append(NEW), lambda t: t.append({**NEW, "more": [1.5]}, evolve=True)],
        [lambda t: t.append({"zz": [1]}), lambda t: t.append(stream_that_fails())],
    ),
    "compact": ([lambda t: t.compact(sort_by="n")], [lambda t: t.compact(sort_by="deep")]),
    "deduplicate": ([lambda t: t.deduplicate("n")], [lambda t: t.deduplicate("zz")]),
    "delete": (
        [lambda t: t.delete("n = 2"), lambda t: t.delete(EXPRESSION), lambda t: t.delete("n = 9")],
        [lambda t: t.delete("zz = 2"), lambda t: t.delete([("n", "==", "text")])],
    ),
    "drop_columns": ([lambda t: t.drop_columns(["n"])], [lambda t: t.drop_columns(["zz"])]),
    "rename_columns": (
        [lambda t: t.rename_columns({"n": "m"})],
        [lambda t: t.rename_columns({"n": "text"})],
    ),
    "alter_column to a position": (
        [lambda t: moved_first(t, ["text", "n", "deep"])],
        [lambda t: moved_first(t, ["zz"])],
    ),
    "append over": (
        [lambda t: t.append(NEW, replace_where="n = 4")],
        [lambda t: t.append(NEW, replace_where="n = 2")],
    ),
    "resize": ([lambda t: t.resize(9), lambda t: t.resize(2)], [lambda t: t.resize(-1)]),
    "configure": (
        [
            lambda t: t.configure(keep_versions=5),
            lambda t: t.configure(storage=blz.Storage(row_group_rows=5)),
        ],
        [
            lambda t: t.configure(keep_versions=0),
            lambda t: t.configure(storage=blz.Storage(layout="file")),
        ],
    ),
    "update": (
        [lambda t: t.update({"n": 7}, where="n = 2"), lambda t: t.update({"n": pc.field("n") + 1})],
        [lambda t: t.update({"n": "x"}, where="n = 2"), lambda t: t.update({"n": [1]})],
    ),
    "upsert": (
        [lambda t: t.upsert({**NEW, "n": [2]}, on="n"), lambda t: t.upsert(NEW, on="n")],
        [lambda t: t.upsert({"n": ["x"]}, on="n"), lambda t: t.upsert(NEW, on="zz")],
    ),
}
READS = {
    "attrs": ([lambda t: t.attrs.update(a=1), lambda t: dict(t.attrs)], [lambda t: t.attrs["b"]]),
    "count": ([lambda t: t.count(filters="n = 2")], [lambda t: t.count(filters="zz = 2")]),
    "dataset": (
        [
            lambda t: t.dataset().to_table(filter=pc.field("n") > 1),
            lambda t: first(t.dataset().to_batches()),
            lambda t: first(t.dataset().scanner(filter=EXPRESSION).to_batches()),
            lambda t: first(t.dataset().scanner().to_reader()),
            lambda t: first(t.dataset().get_fragments()).to_table(),
            lambda t: t.dataset().scanner(columns=["n"]),
        ],
        [lambda t: t.dataset().to_table(columns=["zz"]), lambda t: t.dataset(columns=["zz"])],
    ),
    "describe": ([lambda t: t.describe()], [lambda t: t.describe(["zz"])]),
    "explain": ([lambda t: t.explain(filters="n = 2")], [lambda t: t.explain(filters="zz = 2")]),
    "head": ([lambda t: t.head(2)], [lambda t: t.head("x")]),
    "meta": ([lambda t: dict(t.meta)], [lambda t: t.meta["zz"]]),
    "sql": (
        [lambda t: t.sql("select n from self").fetchall(), lambda t: t.sql("select n from self")],
        [lambda t: t.sql("select zz from self")],
    ),
    "sample": ([lambda t: t.sample(2)], [lambda t: t.sample(-1)]),
    "statistics": ([lambda t: t.statistics()], [lambda t: t.statistics(["zz"])]),
    "tail": ([lambda t: t.tail(2)], [lambda t: t.tail("x")]),
    "take": ([lambda t: t.take([1, 0])], [lambda t: t.take([99])]),
    "to_arrow": (
        [lambda t: t.to_arrow(filters="n > 1"), lambda t: t[["n"]].to_arrow()],
        [lambda t: t.to_arrow(columns=["zz"]), lambda t: t.to_arrow(filters="n = 'x'")],
    ),
    "to_batches": (
        [
            lambda t: list(t.to_batches()),
            lambda t: first(t.to_batches(batch_rows=1)),
            lambda t: first(t.to_batches(batch_rows=1, filters="n > 1")),
            lambda t: t.to_batches(),
        ],
        [lambda t: first(t.to_batches(columns=["zz"])), lambda t: t.to_batches(filters="zz = 1")],
    ),
    "to_numpy": ([lambda t: t[["n"]].to_numpy()], [lambda t: t.to_numpy(columns=["zz"])]),
    "to_pandas": ([lambda t: t.to_pandas()], [lambda t: t.to_pandas(columns=["zz"])]),
    "verify": ([lambda t: t.verify()], [lambda t: t.verify(**NONE)]),
    "vlmeta": ([lambda t: t.vlmeta.__setitem__("a", b"1")], [lambda t: t.vlmeta["zz"]]),
}
TABLE = {
    "appender": (
        [lambda t: append_by_column(t, NEW)],
        [lambda t: append_by_column(t, {"n": [1]}), lambda t: append_by_column(t, {"n": ["x"]})],
    ),
    "diff and its rows": ([lambda t: t.diff(t.version).rows()], [lambda t: t.diff(99).rows()]),
    "close": ([lambda t: t.close()], [lambda t: t.close(**NONE)]),
    "erase": (
        [lambda t: t.erase("n = 2"), lambda t: t.erase("n = 9")],
        [lambda t: t.erase("zz = 2")],
    ),
    "plan": (
        [lambda t: if_it_has_workers(t.plan), lambda t: if_it_has_workers(t.plan, filters="n > 1")],
        [lambda t: t.plan(columns=["zz"])],
    ),
    "diff": ([lambda t: t.diff(t.version - 1)], [lambda t: t.diff(99)]),
    "disk_usage": ([lambda t: t.disk_usage()], [lambda t: t.disk_usage(**NONE)]),
    "refresh": ([lambda t: t.refresh()], [lambda t: t.refresh(**NONE)]),
    "repair": ([lambda t: t.repair("skip")], [lambda t: t.repair("zz")]),
    "restore": ([lambda t: t.restore(t.version - 1)], [lambda t: t.restore(99)]),
    "tags": (
        [lambda t: t.tags.update(good=t.version), lambda t: t.tags.clear()],
        [lambda t: t.tags.update(bad=99), lambda t: t.tags["zz"]],
    ),
    "transaction": ([lambda t: t.transaction(), begun], [failing_transaction]),
    "vacuum": ([lambda t: t.vacuum(keep=1)], [lambda t: t.vacuum(keep=0)]),
    "versions": ([lambda t: t.versions()], [lambda t: t.versions(**NONE)]),
}
COLUMN = {
    "max": ([lambda c: c.max()], [lambda c: c.max(**NONE)]),
    "meta": ([lambda c: dict(c.meta)], [lambda c: c.meta["zz"]]),
    "min": ([lambda c: c.min(), lambda c: c[:], lambda c: c[0]], [lambda c: c[99]]),
    "null_count": ([lambda c: c.null_count()], [lambda c: c.null_count(**NONE)]),
    "streams": ([lambda c: c.streams()], [lambda c: c.streams(**NONE)]),
    "to_arrow": ([lambda c: c.to_arrow()], [lambda c: c.to_arrow(**NONE)]),
    "to_numpy": ([lambda c: c.to_numpy()], [lambda c: c.to_numpy(**NONE)]),
    "to_pandas": ([lambda c: c.to_pandas()], [lambda c: c.to_pandas(**NONE)]),
    "vlmeta": ([lambda c: c.vlmeta.__setitem__("a", b"1")], [lambda c: c.vlmeta["zz"]]),
}
FUNCTIONS = {
    "copy": (
        [
            lambda p: blz.copy(p, io.BytesIO(), layout="file"),
            lambda p: blz.copy(p, io.BytesIO(), columns=["n"]),
            lambda p: blz.copy(p, p, mode="w"),
            lambda p: blz.copy(p, io.BytesIO(), on_corrupt="skip"),
        ],
        [lambda p: blz.copy(p, p), lambda p: blz.copy(p, io.BytesIO(), columns=["zz"])],
    ),
    "dataset": (
        [
            lambda p: blz.dataset(p).to_table(),
            lambda p: first(blz.dataset(p).to_batches()),
            lambda p: first(blz.dataset([p, p]).to_batches()),
        ],
        [lambda p: blz.dataset(p, columns=["zz"])],
    ),
    "begin": (
        [lambda p: if_it_has_workers(written_in_a_job, p)],
        [lambda p: blz.begin(p, mode="zz"), lambda p: blz.begin(p, mode="x")],
    ),
    "commit": ([lambda p: if_it_has_workers(written_in_a_job, p)], [lambda p: blz.commit("", [])]),
    "discard": (
        [lambda p: if_it_has_workers(written_in_a_job, p, blz.discard)],
        [lambda p: blz.discard("", [])],
    ),
    "drop": ([lambda p: (blz.drop(p), write(p))], [lambda p: blz.drop(f"{p} is none")]),
    "exists": ([blz.exists], [lambda p: blz.exists(p, **NONE)]),
    "open": ([blz.open, lambda p: repr(blz.open(p))], [lambda p: blz.open(p, version=99)]),
    "plan": (
        [lambda p: if_it_has_workers(blz.plan, p)],
        [lambda p: blz.plan(p, filters="zz = 1"), lambda p: blz.plan(p, version=99)],
    ),
    "read_blz": ([blz.read_blz], [lambda p: blz.read_blz(p, columns=["zz"])]),
    "read_table": ([blz.read_table], [lambda p: blz.read_table(p, filters="zz = 1")]),
    "set_threads": ([lambda _: blz.set_threads(None)], [lambda _: blz.set_threads(0)]),
    "sql": (
        [lambda p: blz.sql("select n from t", t=p).fetchall()],
        [lambda p: blz.sql("select zz from t", t=p)],
    ),
    "vacuum": ([lambda p: blz.vacuum(p, keep=1)], [lambda p: blz.vacuum(p, keep=0)]),
    "write_fragment": (
        [lambda p: if_it_has_workers(written_in_a_job, p)],
        [lambda p: blz.write_fragment("", ROWS, 0)],
    ),
    "set_cache": ([lambda _: blz.set_cache(64 << 20)], [lambda _: blz.set_cache(-1)]),
    "to_blz": (
        [lambda p: blz.to_blz(ROWS, p, mode="w"), lambda p: blz.to_blz(NEW, p, mode="a")],
        [
            lambda p: blz.to_blz(stream_that_fails(), p, mode="w"),
            lambda p: blz.to_blz({"zz": [1]}, p, mode="a"),
            lambda p: blz.to_blz(ROWS, p),
        ],
    ),
    "create": (
        [lambda p: blz.create(p, pa.schema({"n": pa.int64()}), mode="w").append({"n": [1]})],
        [lambda p: blz.create(p, pa.schema({"n": pa.int64()}))],
    ),
}


def if_it_has_workers(call, *arguments, **options):
    """Call what only a table in a directory can do; one in a file or in memory refuses it."""
    try:
        call(*arguments, **options)
    except ValueError as error:
        if "process" not in str(error):
            raise


def written_in_a_job(place, end=blz.commit):
    job = blz.begin(place)
    end(job, [blz.write_fragment(job, NEW, 0)])


def as_change(call):
    """Return the call as one in a transaction."""

    def run(t):
        with t.transaction() as tx:
            call(tx)

    return run


def on_column(call):
    return lambda t: call(t["n"])


def by_handle(call):
    return lambda place: call(blz.open(place, "a", durability="process"))


def public(owner):
    return {name for name in dir(owner) if not name.startswith("_")}


def methods(owner):
    return {name for name in public(owner) if not isinstance(getattr(owner, name), property)}


def cases():
    groups = [
        ("table", CHANGES | READS | TABLE, by_handle),
        ("transaction", CHANGES | READS, lambda call: by_handle(as_change(call))),
        ("column", COLUMN, lambda call: by_handle(on_column(call))),
        ("function", FUNCTIONS, lambda call: call),
    ]
    for kind, verbs, of in groups:
        for name, (good, bad) in verbs.items():
            calls = [of(call) for call in good], [of(call) for call in bad]
            yield pytest.param(*calls, id=f"{kind} {name}")


def test_each_public_verb_has_its_line_here():
    has_one = set(CHANGES | READS | TABLE)
    assert methods(blz.CTable) - has_one == set()
    # A transaction of its own is among the calls of a table.
    rest = {"appender", "append_fragments"}
    assert methods(blz.Transaction) - set(CHANGES | READS) == rest
    assert methods(blz.Column) - set(COLUMN) == set()
    functions = {one for one in blz.__all__ if one.islower()}
    assert functions - set(FUNCTIONS) == set()


@pytest.fixture(params=["directory", "one file", "memory"])
def place(request, tmp_path):
    if request.param == "memory":
        store = RamStore()
    else:
        store = tmp_path / ("t.blz" if request.param == "directory" else "t.blzf")
    layout = {"layout": "file"} if request.param == "one file" else {}
    blz.to_blz(ROWS, store, **arguments(durability="process", row_group_rows=2, **layout))
    return store


def write(place):
    """Write the first rows again, in two versions."""
    blz.to_blz(ROWS, place, mode="w", durability="process", storage=blz.Storage(row_group_rows=2))
    with blz.open(place, "a", durability="process") as t:
        t.attrs["a"] = 1


@pytest.fixture(autouse=True)
def _no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def descriptors(place):
    """Return what this process has open of a table that has a path."""
    found = []
    for fd in os.listdir("/dev/fd"):
        with suppress(OSError):  # The descriptor of the listing is closed by now.
            found.append(os.readlink(f"/dev/fd/{fd}"))
    return [one for one in found if str(place) in one]


def check_no_descriptor_is_open(place):
    if not isinstance(place, RamStore):
        assert descriptors(place) == []


def check_nothing_is_pinned(place):
    with blz.open(place, "a", durability="process") as t:
        t.attrs["next"] = t.version
        done = t.vacuum(keep=1)
        assert done.pinned == ()
        assert len(t.versions()) == 1 + len(set(t.tags.values()) - {t.version})


@pytest.mark.parametrize(("good", "bad"), [*cases()])
def test_no_verb_keeps_a_version_or_a_descriptor(place, good, bad):
    for call in good:
        write(place)
        call(place)
        check_no_descriptor_is_open(place)
        check_nothing_is_pinned(place)
    for call in bad:
        write(place)
        with suppress(Exception):
            call(place)
        check_no_descriptor_is_open(place)
        check_nothing_is_pinned(place)


@pytest.mark.parametrize(
    ("calls", "of"),
    [
        pytest.param(bad, of, id=f"{kind} {name}")
        for kind, verbs, of in [
            ("table", CHANGES | READS | TABLE, lambda call: call),
            ("transaction", CHANGES | READS, as_change),
            ("column", COLUMN, on_column),
        ]
        for name, (_, bad) in verbs.items()
    ],
)
def test_an_exception_that_is_kept_keeps_nothing_of_a_closed_handle(place, calls, of):
    for call in calls:
        write(place)
        with blz.open(place, "a", durability="process") as t:
            try:
                of(call)(t)
            except Exception as error:
                kept = error
            else:
                pytest.fail("the call is one that fails")
        del t
        check_nothing_is_pinned(place)
        del kept
        check_no_descriptor_is_open(place)


def functions_in_functions():
    """Yield each function of the package that has functions of its own, and these."""
    for path in sorted(Path(blz.__file__).parent.rglob("*.py")):
        for outer in ast.walk(ast.parse(path.read_text())):
            if isinstance(outer, ast.FunctionDef):
                inner = [one for one in ast.walk(outer) if isinstance(one, ast.FunctionDef)]
                yield path, [one for one in inner if one is not outer]


# They keep nothing but types.
HARMLESS = {"plain", "named"}


def test_no_function_in_a_function_calls_itself():
    """It would be in a cycle with the cell that holds it, which keeps all that it refers to."""
    for path, inner in functions_in_functions():
        for one in inner:
            names = {node.id for node in ast.walk(one) if isinstance(node, ast.Name)}
            assert one.name not in names - HARMLESS, f"{path}: {one.name}"
