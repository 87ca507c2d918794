"""Every operation on a table, a model of its effect, and a small table to start with."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa

import blztable as blz
from blztable.engine.change.compact import merge_after
from blztable.engine.version import versions
from blztable.format import layout
from blztable.storage.memory import RamStore
from support.moved_first import moved_first
from support.stores import Hooked, copied, once, tree
from support.stores import files_named as named_by


@dataclass(frozen=True)
class Model:
    """The content of a table: columns in order, attributes, number of kept versions."""

    columns: dict[str, list]
    attrs: dict = field(default_factory=dict)
    keep: int | None = None
    # The columns that it was sorted by, with their directions.
    order: tuple = ()
    # True if the column of text is not null; `found` does not tell.
    has_all_text: bool = field(default=False, compare=False)
    # The default value of the column of floats; `found` does not tell.
    default: float | None = field(default=None, compare=False)
    # Variable metalayers, by the name of their column, None for the table.
    layers: dict = field(default_factory=dict)

    def rows(self, order) -> "Model":
        columns = {name: [cells[row] for row in order] for name, cells in self.columns.items()}
        return replace(self, columns=columns)

    @property
    def n(self) -> list[int]:
        return next(iter(self.columns[name] for name in ("n", "m") if name in self.columns))

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def where(self, kept: Callable[[int], bool]) -> "Model":
        return self.rows([row for row, n in enumerate(self.n) if kept(n)])

    def with_rows(self, more: dict) -> "Model":
        """Return the model with more rows; columns missing in them have a default, or are null."""
        count = len(next(iter(more.values())))

        def filling(name: str) -> list:
            if name == "x":
                return [self.default] * count
            return ["" if self.has_all_text and name.endswith("text") else None] * count

        columns = {
            name: cells + list(more.get(name, filling(name)))
            for name, cells in self.columns.items()
        }
        if "deep" in columns:
            columns["deep"] = with_all_fields(columns["deep"])
        return replace(self, columns=columns)

    def with_deep(self, change: Callable[[int, dict], dict]) -> "Model":
        """Return the model with other structs, each given with its row."""
        cells = self.columns["deep"]
        cells = [cell and change(row, cell) for row, cell in enumerate(cells)]
        return replace(self, columns=self.columns | {"deep": cells})


def with_all_fields(cells: list) -> list:
    """Return structs that all have the fields of any; null if they lack it."""
    fields = dict.fromkeys(field for cell in cells if cell for field in cell)
    return [None if cell is None else fields | cell for cell in cells]


DEEP = pa.struct([("k", pa.int32()), ("words", pa.list_(pa.string()))])


def deep(numbers, **more):
    """Return structs with a list, of which some are null and some lists empty."""
    return [
        None if n % 5 == 4 else {"k": n, "words": [f"word {n}"] * (n % 3), **more} for n in numbers
    ]


def numbered(start, stop):
    numbers = range(start, stop)
    return pd.DataFrame(
        {
            "n": list(numbers),
            # Rows 14 and 15 have the same text.
            "text": [f"row {n - (n == 15)}" for n in numbers],
            "x": np.array(numbers, "f4") / 2,
            "deep": pd.Series(deep(numbers), dtype=pd.ArrowDtype(DEEP)),
        }
    )


def listed(frame):
    """Return the columns of a frame as lists of Python values."""
    cells = frame.to_dict("list")
    return cells | {"deep": pa.array(frame["deep"]).to_pylist()}


# Not a default index, which every other one continues.
FIRST_LABEL = 10
FIRST = numbered(0, 8).set_index(pd.RangeIndex(FIRST_LABEL, FIRST_LABEL + 8))
# 16 rows: groups of 3, 3 and 2 rows, then eight of one row, which are to be merged.
ROWS = 16
BASE = Model(listed(numbered(0, ROWS)), {"a": 1})
SEEDS = {"mine": 100, "theirs": 200}


def more(who):
    start = SEEDS[who]
    return numbered(start, start + 2)


def with_index(who):
    return more(who).set_index(pd.RangeIndex(FIRST_LABEL + ROWS, FIRST_LABEL + ROWS + 2))


def wider(who):
    start, type_ = SEEDS[who], pa.struct([*DEEP, pa.field("more", pa.bool_())])
    structs = pd.Series(deep(range(start, start + 2), more=True), dtype=pd.ArrowDtype(type_))
    return more(who).assign(x=[0.1, 0.2], deep=structs, extra=["new", who])


def evolved(model, who):
    """Return the model with more columns first, then more rows."""
    rows = listed(wider(who))
    new = {name: [None] * len(model) for name in rows if name not in model.columns}
    return replace(model, columns=model.columns | new).with_rows(rows)


def new_values(who, rows):
    return [SEEDS[who] + row for row in range(rows)]


def reordered(model):
    first = {"x": model.columns["x"]}
    return replace(model, columns=first | model.columns)


def renamed(model, who):
    names = {"n": "m", "text": f"{who}'s text"}
    columns = {names.get(name, name): cells for name, cells in model.columns.items()}
    order = tuple((names.get(name, name), way) for name, way in model.order)
    layers = {names.get(name, name): content for name, content in model.layers.items()}
    return replace(model, columns=columns, order=order, layers=layers)


def dropped(model, name):
    columns = {k: v for k, v in model.columns.items() if k != name}
    layers = {k: v for k, v in model.layers.items() if k != name}
    return replace(model, columns=columns, layers=layers)


def with_layer(model, name, who):
    """Return the model with a metalayer of a column, which may have another name now."""
    if name is not None and name not in model.columns:
        (name,) = [one for one in model.columns if one.endswith(name)]
    return replace(model, layers=model.layers | {name: who.encode()})


def updated(model, who):
    text = [who if n == 12 else t for n, t in zip(model.n, model.columns["text"], strict=True)]
    return replace(model, columns=model.columns | {"text": text})


def keyed(who):
    """Return rows of which one has the key of a row there."""
    # As many new ones as an append adds, which are not merged.
    return {"n": [12, SEEDS[who] + 5, SEEDS[who] + 6], "text": [f"up {who}"] * 3}


def upserted(model, who):
    new = dict(zip(*keyed(who).values(), strict=True))
    pairs = zip(model.n, model.columns["text"], strict=True)
    text = [new.get(n, old) for n, old in pairs]
    added = [n for n in new if n not in model.n]
    model = replace(model, columns=model.columns | {"text": text})
    return model.with_rows({"n": added, "text": [new[n] for n in added]}) if added else model


def with_nine_again(model, who):
    return model.where(lambda n: n != 9).with_rows({"n": [9, 9], "text": [who] * 2})


def deduplicated(model, who):
    """Return the model with one row of each text; rows that others append come afterwards."""
    kept, texts = [], []
    for row, (n, text) in enumerate(zip(model.n, model.columns["text"], strict=True)):
        is_theirs = who == "mine" and (n or 0) >= SEEDS["theirs"]
        if is_theirs or text not in texts:
            kept.append(row)
        texts += [] if is_theirs else [text]
    return model.rows(kept)


def resized(model, rows):
    count = rows - len(model)
    if count < 0:
        return model.rows(range(rows))
    return model.with_rows({"n": [None] * count})


def merge(table, who):
    """Return the model after the merge that may follow an append."""
    made = merge_after(table._snapshot.version, blz.Storage(row_group_rows=4), is_durable=True)
    if made is None:
        raise Dropped
    made[1].close()


class Dropped(Exception):
    """A merge that came too late and was dropped silently."""


@dataclass(frozen=True)
class Operation:
    act: Callable
    # The effect on a table.
    means: Callable[[Model, str], Model] = lambda model, who: model


OPERATIONS = {
    "append": Operation(
        lambda t, who: t.append(more(who)),
        lambda m, who: m.with_rows(listed(more(who))),
    ),
    "append some columns": Operation(
        lambda t, who: t.append({"n": [SEEDS[who]] * 2}),
        lambda m, who: m.with_rows({"n": [SEEDS[who]] * 2}),
    ),
    "append counting on": Operation(
        lambda t, who: t.append(with_index(who)),
        lambda m, who: m.with_rows(listed(more(who))),
    ),
    "append evolving": Operation(lambda t, who: t.append(wider(who), evolve=True), evolved),
    "merge": Operation(merge),
    "compact": Operation(lambda t, who: t.compact()),
    "sort": Operation(
        lambda t, who: t.compact(sort_by=[("n", "descending")]),
        # Rows that were appended meanwhile are behind.
        lambda m, who: replace(
            m.rows([*reversed(range(ROWS)), *range(ROWS, len(m))]), order=(("n", "descending"),)
        ),
    ),
    "add_column": Operation(
        lambda t, who: t.add_column("new", new_values(who, len(t))),
        lambda m, who: replace(m, columns=m.columns | {"new": new_values(who, len(m))}),
    ),
    "add field": Operation(
        lambda t, who: t.add_column("deep.new", [str(n) for n in new_values(who, len(t))]),
        lambda m, who: m.with_deep(lambda row, cell: cell | {"new": str(SEEDS[who] + row)}),
    ),
    "drop field": Operation(
        lambda t, who: t.drop_columns(["deep.words"]),
        lambda m, who: m.with_deep(
            lambda row, cell: {field: one for field, one in cell.items() if field != "words"}
        ),
    ),
    "rename field": Operation(
        lambda t, who: t.rename_columns({"deep.k": f"{who}'s k"}),
        lambda m, who: m.with_deep(
            lambda row, cell: {
                f"{who}'s k" if field == "k" else field: one for field, one in cell.items()
            }
        ),
    ),
    "drop": Operation(
        lambda t, who: t.drop_columns(["text"]),
        lambda m, who: dropped(m, "text"),
    ),
    "alter": Operation(
        lambda t, who: t.alter_column("x", dtype="double"),
        lambda m, who: replace(m, columns=m.columns | {"x": list(m.columns["x"])}),
    ),
    "alter nulls": Operation(
        lambda t, who: t.alter_column("text", nullable=False),
        lambda m, who: replace(m, has_all_text=True),
    ),
    "alter default": Operation(
        lambda t, who: t.alter_column("x", default=SEEDS[who] / 2),
        lambda m, who: replace(m, default=SEEDS[who] / 2),
    ),
    "rename": Operation(
        lambda t, who: t.rename_columns({"n": "m", "text": f"{who}'s text"}),
        renamed,
    ),
    "reorder": Operation(lambda t, who: moved_first(t, ["x"]), lambda m, who: reordered(m)),
    "update": Operation(lambda t, who: t.update({"text": who}, where=[("n", "==", 12)]), updated),
    "delete": Operation(
        lambda t, who: t.delete([("n", "in", [4, 11])]),
        lambda m, who: m.where(lambda n: n not in (4, 11)),
    ),
    "upsert": Operation(lambda t, who: t.upsert(keyed(who), on="n"), upserted),
    "replace_where": Operation(
        lambda t, who: t.append({"n": [9, 9], "text": [who] * 2}, replace_where=[("n", "==", 9)]),
        with_nine_again,
    ),
    "deduplicate": Operation(
        lambda t, who: t.deduplicate(on="text"),
        deduplicated,
    ),
    "truncate": Operation(
        lambda t, who: t.resize(10),
        lambda m, who: m.rows(range(min(10, len(m)))),
    ),
    "resize": Operation(lambda t, who: t.resize(18), lambda m, who: resized(m, 18)),
    "replace": Operation(
        lambda t, who: blz.to_blz(
            more(who),
            t._snapshot.version.store,
            storage=blz.Storage(attrs={"by": who}),
            durability="process",
        ),
        lambda m, who: Model(listed(more(who)), {"by": who}, m.keep),
    ),
    "restore": Operation(
        lambda t, who: t.restore(1),
        lambda m, who: Model(listed(FIRST), {"a": 1}, m.keep),
    ),
    "attrs a": Operation(
        lambda t, who: t.attrs.update(a=who),
        lambda m, who: replace(m, attrs=m.attrs | {"a": who}),
    ),
    "attrs b": Operation(
        lambda t, who: t.attrs.update(b=who),
        lambda m, who: replace(m, attrs=m.attrs | {"b": who}),
    ),
    "vlmeta": Operation(
        lambda t, who: t.vlmeta.__setitem__("by", who.encode()),
        lambda m, who: with_layer(m, None, who),
    ),
    "vlmeta of text": Operation(
        lambda t, who: t["text"].vlmeta.__setitem__("by", who.encode()),
        lambda m, who: with_layer(m, "text", who),
    ),
    "configure": Operation(
        lambda t, who: t.configure(keep_versions=SEEDS[who], keep_bytes=1 << 40),
        lambda m, who: replace(m, keep=SEEDS[who]),
    ),
    "tag": Operation(lambda t, who: t.tags.update({"last": 2, who: 2})),
}


def written(store):
    blz.to_blz(
        FIRST, store, storage=blz.Storage(attrs={"a": 1}, row_group_rows=3), durability="process"
    )
    blz.to_blz(
        numbered(8, ROWS),
        store,
        mode="a",
        storage=blz.Storage(row_group_rows=1),
        durability="process",
    )


@cache
def _base() -> RamStore:
    store = RamStore()
    written(store)
    return store


def base() -> RamStore:
    """Return a store with the table to start with; it is written once and copied."""
    return copied(_base())


def opened(store, **options):
    return blz.open(store, "a", durability="process", **options)


def commit(store, name, who):
    with opened(store) as table:
        OPERATIONS[name].act(table, who)


def found(store):
    """Check the newest version and that no other file exists; return its content."""
    assert files_there(store) == files_named(store)
    with blz.open(store) as table:
        assert table.verify().is_intact
        return held(table)


def held(table):
    columns = table.to_arrow().to_pydict()
    keep = table._snapshot.version.head.properties.get("keep_versions")
    owners = {None: table, **{name: table[name] for name in columns}}
    layers = {name: one.vlmeta["by"] for name, one in owners.items() if "by" in one.vlmeta}
    return Model(
        columns, dict(table.attrs), keep, tuple(table.storage.sort_by or ()), layers=layers
    )


def files_named(store):
    named = set()
    for number in versions.numbers(store):
        named |= named_by(versions.read(store, number))
    return named


def files_there(store):
    """Return the keys of all data files and leaves."""
    found = tree(store)
    leaves = {key for key in found if key.startswith(f"{layout.LEAVES}/")}
    return leaves | {key for key in found if key.startswith("data/") and key.endswith(".bin")}


def meanwhile(store, act, **options):
    """Return a store that lets others act once, when the first writer is about to publish."""
    return Hooked(store, before=once("lock", act, layout.LOCK), **options)


# The facts each operation relies on, by the operations that change them (DESIGN 3.3).
COLUMNS = {
    "append evolving",
    "add_column",
    "drop",
    "rename",
    "reorder",
    "replace",
    "alter",
    "alter nulls",
    "add field",
    "drop field",
    "rename field",
}
COUNT = {
    "append",
    "append some columns",
    "append counting on",
    "delete",
    "truncate",
    "resize",
    "restore",
    "upsert",
    "replace_where",
    "deduplicate",
}
ROW_GROUPS = COUNT | {"merge", "compact", "sort", "update"}
DEFAULTS = {"alter default"}
# The row groups that are joined are all of the base; later ones behind them do no harm.
JOINED = {
    "merge",
    "compact",
    "sort",
    "truncate",
    "restore",
    "update",
    "delete",
    "upsert",
    "replace_where",
    "deduplicate",
}
# The row groups that a delete or an update rewrites are gone, and not only others.
REWRITTEN = {"merge", "compact", "sort", "truncate", "restore"}
CONFLICTS = {
    "append": COLUMNS,
    "append some columns": COLUMNS | DEFAULTS,
    "append counting on": COLUMNS | COUNT,
    "append evolving": COLUMNS | DEFAULTS | ROW_GROUPS,
    "merge": COLUMNS | JOINED,
    # If only some of its row groups were changed, the others are joined.
    "compact": COLUMNS | {"merge", "compact", "sort", "truncate", "restore"},
    "sort": COLUMNS | JOINED,
    "add_column": COLUMNS | ROW_GROUPS,
    "alter": COLUMNS | DEFAULTS | ROW_GROUPS,
    "alter default": COLUMNS,
    "alter nulls": COLUMNS | ROW_GROUPS,
    "add field": COLUMNS | ROW_GROUPS,
    "drop field": COLUMNS,
    "rename field": COLUMNS,
    "drop": COLUMNS,
    "rename": COLUMNS,
    "reorder": COLUMNS,
    "update": COLUMNS | REWRITTEN | {"update", "upsert"},
    "upsert": COLUMNS | DEFAULTS | REWRITTEN | {"update", "upsert"},
    # The rows that a truncate keeps are those before.
    "replace_where": COLUMNS | DEFAULTS | REWRITTEN - {"truncate"} | {"replace_where"},
    "delete": COLUMNS | REWRITTEN | {"delete"},
    # A row that was no plain append may have any of the keys.
    "deduplicate": COLUMNS | (JOINED | {"resize", "append counting on"}) - {"delete"},
    "truncate": COLUMNS | ROW_GROUPS,
    "resize": COLUMNS | DEFAULTS | ROW_GROUPS,
    "replace": set(),
    "restore": set(),
    "attrs a": {"attrs a", "replace"},
    "attrs b": {"attrs b"},
    "vlmeta": {"vlmeta"},
    "vlmeta of text": {"vlmeta of text", "drop", "replace"},
    "configure": {"configure"},
    "tag": {"tag"},
}
