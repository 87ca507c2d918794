"""A stateful model beside a table: every change, two handles, crashes, all versions bit for bit.

The model has each column as the bytes of its rows. It knows from `engine/change/changes.py` on
which facts each change relies: a handle that is behind either lands on top of the other commits, or
raises ConflictError.
"""

import gc
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from blztable import tuning
from blztable.arrow.types import nulls
from blztable.engine.change.creation import create
from blztable.engine.version import versions
from blztable.errors import ConflictError
from blztable.storage.memory import RamStore
from blztable.storage.one_file.store import OneFileStore
from blztable.storage.store import Store
from blztable.table.snapshot import Snapshot
from blztable.table.table import CTable
from blztable.table.transaction import Transaction
from support.arrow_strategies import arrays, masks
from support.bit_equality import bits
from support.moved_first import in_one_commit, moved_first
from support.nested_arrays import array_of
from support.new_tables import Stream
from support.options import Tiny, tiny
from support.stores import FileInMemory, Hooked, entries, files_named

KEPT = 10
NAMES = "abcdefgh"
INTEGERS = [pa.int8(), pa.int32()]
NESTED = [
    pa.list_(pa.int32()),
    pa.struct([("a", pa.string()), ("b", pa.large_list(pa.struct([("c", pa.bool_())])))]),
    pa.map_(pa.string(), pa.list_view(pa.float64())),
    pa.list_(pa.run_end_encoded(pa.int32(), pa.dictionary(pa.int8(), pa.string())), 2),
    pa.run_end_encoded(pa.int64(), pa.string()),
]
TYPES = [
    *NESTED,
    *INTEGERS,
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.large_binary(),
    pa.dictionary(pa.int8(), pa.string()),
]
OPTIONS = [{}, {"encoding": "plain"}, {"optimize": "size"}, {"clevel": 9}]
OPTIONS += [{"packing": "per_item"}]
TEXTS = [pa.string(), pa.string_view(), pa.large_string()]
BINARY = [pa.large_binary()]
ITEMS = [pa.string(), pa.large_string(), pa.string_view(), *BINARY]
MUTATING = {
    "put",
    "put_new",
    "publish",
    "flush",
    "flush_names",
    "reserve",
    "delete",
    "sweep",
    "prepare",
}
# Of nested types, lists and tuples of bytes.
Bits = Any


@dataclass(frozen=True)
class Model:
    """The content of a version."""

    names: tuple[str, ...] = ()
    types: tuple[pa.DataType, ...] = ()
    columns: tuple[tuple[Bits, ...], ...] = ()
    rows: int = 0
    attrs: Mapping[str, int] = field(default_factory=dict)
    # The variable metalayers of the table.
    layers: Mapping[str, bytes] = field(default_factory=dict)
    defaults: Mapping[str, Bits] = field(default_factory=dict)
    # The column that rows are sorted by, and whether in ascending order.
    order: tuple[str, bool] | None = None
    # A number for each row, which it keeps: a change of some rows lands on others' changes.
    ids: tuple[int, ...] = ()

    def column(self, name: str) -> tuple[Bits, ...]:
        return self.columns[self.names.index(name)]

    def numbers(self, name: str) -> list[float | None]:
        is_double = self.types[self.names.index(name)] == pa.float64()
        number = double if is_double else signed
        return [None if b is None else number(b) for b in self.column(name)]

    def of(self, *types: pa.DataType) -> list[str]:
        """Return the columns of these types."""
        return [n for n, t in zip(self.names, self.types, strict=True) if t in (types or TYPES)]

    def taken(self, rows: list[int]) -> "Model":
        columns = tuple(tuple(column[row] for row in rows) for column in self.columns)
        ids = tuple(self.ids[row] for row in rows)
        return replace(self, columns=columns, rows=len(rows), ids=ids)

    def without(self, ids: set[int]) -> "Model":
        """Return the content without the rows of these numbers."""
        return self.taken([row for row, one in enumerate(self.ids) if one not in ids])

    def updated(self, stored: Mapping[str, Mapping[int, Bits]]) -> "Model":
        """Return the content with these values, by column and number of the row."""
        m = self
        for name, new in stored.items():
            cells = zip(m.ids, m.column(name), strict=True)
            column = tuple(new.get(one, cell) for one, cell in cells)
            m = m.with_column(name, m.types[m.names.index(name)], column)
        return m

    def selected(self, names: list[str]) -> "Model":
        places = [self.names.index(name) for name in names]
        return replace(
            self,
            names=tuple(names),
            types=tuple(self.types[place] for place in places),
            columns=tuple(self.columns[place] for place in places),
            defaults={n: b for n, b in self.defaults.items() if n in names},
            order=self.order if self.order and self.order[0] in names else None,
        )

    def with_column(self, name: str, type_: pa.DataType, values: tuple[Bits, ...]) -> "Model":
        """Return the content with this column, in its old place or at the end."""
        names, types, columns = list(self.names), list(self.types), list(self.columns)
        place = names.index(name) if name in names else len(names)
        for each, value in ((names, name), (types, type_), (columns, values)):
            each[place : place + 1] = [value]
        return replace(self, names=tuple(names), types=tuple(types), columns=tuple(columns))

    def more(self, ids: tuple[int, ...], given: Mapping[str, list[Bits]]) -> "Model":
        rows = len(ids)
        filled = [
            column + tuple(given.get(name, [self.defaults.get(name)] * rows))
            for name, column in zip(self.names, self.columns, strict=True)
        ]
        return replace(self, columns=tuple(filled), rows=self.rows + rows, ids=(*self.ids, *ids))


_IDS = count()


def new_ids(rows: int) -> tuple[int, ...]:
    """Return numbers for new rows."""
    return tuple(next(_IDS) for _ in range(rows))


@dataclass(frozen=True)
class Change:
    """A method with its arguments, and its effect on a version."""

    call: Callable[[CTable], object]
    rebase: Callable[[Model], Model]
    # A subset of "columns", "rows", "some rows", "joined", "order", and pairs of "default" and a
    # name. Whether a change of some rows conflicts depends on the row groups that have them.
    relies: frozenset[str | tuple[str, str]]
    keys: tuple[str, ...] = ()
    # True if the change drops columns: later changes of its transaction do not rely on their files.
    drops: bool = False
    # False if the change does nothing; it still relies on the facts that it looked at.
    does: bool = True


COLUMNS = frozenset(["columns"])
ROWS = frozenset(["columns", "rows"])
SOME_ROWS = frozenset(["columns", "some rows"])
NOTHING: frozenset[str] = frozenset()


def defaults(names) -> frozenset[tuple[str, str]]:
    """Return the reliance on the default values of these columns."""
    return frozenset(("default", name) for name in names)


def signed(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def double(data: bytes) -> float:
    return float(np.frombuffer(data, "<f8")[0])


def values(draw, type_: pa.DataType, rows: int) -> pa.Array:
    if type_ in NESTED:
        return array_of(type_, rows, draw(st.integers(0, 1 << 32)))
    if type_ in (pa.int32(), pa.float64()) and draw(st.booleans()):
        return near(draw, type_, rows)
    return draw(arrays(type_, rows, stray_codes=False))


def near(draw, type_: pa.DataType, rows: int) -> pa.Array:
    """Draw numbers that are stored in fewer bytes: near each other, of few decimals."""
    numbers = np.frombuffer(draw(st.binary(min_size=rows, max_size=rows)), np.uint8)
    if type_ == pa.int32():
        found = numbers.astype(np.int32) + draw(st.sampled_from([-(1 << 31), -1, 1 << 30]))
    else:
        found = numbers / 100
    there = draw(masks(rows))
    return pa.array(found, type_, mask=None if there is None else ~there)


def given_as(draw, table: pa.Table):
    """Draw the same rows in one of the accepted forms."""
    form = draw(st.sampled_from(["table", "pieces", "reader", "frame", "mapping"]))
    cut = draw(st.integers(0, table.num_rows))
    match form:
        case "pieces":
            return iter([table[:cut], table[cut:]])
        case "reader":
            return pa.RecordBatchReader.from_batches(
                table.schema, table.to_batches(max_chunksize=5)
            )
        case "frame" if table.num_columns:
            return table.to_pandas(types_mapper=pd.ArrowDtype)
        case "mapping" if table.num_columns:
            return dict(zip(table.column_names, table.columns, strict=True))
    return table


def append(draw, model: Model) -> Change:
    rows = draw(st.integers(0, 20))
    names = draw(st.permutations(model.names))
    names = names[: draw(st.integers(1, len(names)))]
    given = {name: values(draw, model.types[model.names.index(name)], rows) for name in names}
    data, ids = given_as(draw, pa.table(given)), new_ids(rows)
    stored = {name: bits(array) for name, array in given.items()}
    return Change(
        lambda t: t.append(data),
        lambda m: m.more(ids, stored),
        COLUMNS | defaults({*model.names} - {*given}) if rows else NOTHING,
        does=bool(rows),
    )


def append_evolving(draw, model: Model) -> Change:
    """Draw rows with a new column, or with numbers that need a wider type."""
    # A reader without batches has no columns.
    rows = draw(st.integers(1, 9))
    given, wide, new = {}, [], []
    for name, type_ in zip(model.names, model.types, strict=True):
        array = values(draw, type_, rows)
        if type_ == pa.int8() and draw(st.booleans()):
            array = values(draw, pa.int32(), rows)
            if any(v is not None and not -128 <= v < 128 for v in array.to_pylist()):
                wide.append(name)
        given[name] = array
    free = [name for name in NAMES if name not in model.names]
    if free and (not wide or draw(st.booleans())):
        name, type_ = draw(st.sampled_from(free)), draw(st.sampled_from(TYPES))
        given[name] = values(draw, type_, rows)
        new.append((name, type_))
    data, ids = given_as(draw, pa.table(given)), new_ids(rows)

    def rebase(m: Model) -> Model:
        for name in wide:
            values_there = [b if b is None else signed(b) for b in m.column(name)]
            m = m.with_column(name, pa.int32(), as_int(values_there, 4))
            if name in m.defaults:
                default = as_int([signed(m.defaults[name])], 4)[0]
                m = replace(m, defaults={**m.defaults, name: default})
        for name, type_ in new:
            m = m.with_column(name, type_, (None,) * m.rows)
        stored = {
            name: as_int(array.to_pylist(), m.types[m.names.index(name)].bit_width // 8)
            if array.type in INTEGERS
            else bits(array)
            for name, array in given.items()
        }
        return m.more(ids, stored)

    relies = defaults(wide) | (ROWS if wide or new else COLUMNS)
    return Change(lambda t: t.append(data, evolve=True), rebase, relies)


def alter_column(draw, model: Model) -> Change:
    """Draw another type, of the same values, or another default for a column."""
    name = draw(st.sampled_from(model.names))
    type_ = model.types[model.names.index(name)]
    families = ([*INTEGERS, pa.float64()], TEXTS)
    others = next((types[types.index(type_) + 1 :] for types in families if type_ in types), [])
    if pa.types.is_nested(type_) and draw(st.booleans()):
        # The same values in the same type.
        return Change(lambda t: t.alter_column(name, nullable=True), lambda m: m, COLUMNS)
    if not others or draw(st.booleans()):
        default = values(draw, type_, 1)

        def with_default(m: Model) -> Model:
            left = {n: b for n, b in m.defaults.items() if n != name}
            new = {name: bits(default)[0]} if bits(default)[0] is not None else {}
            return replace(m, defaults={**left, **new})

        return Change(
            lambda t: t.alter_column(name, default=default[0]),
            with_default,
            COLUMNS,
        )
    new_type = draw(st.sampled_from(others))

    def recoded(value: Bits) -> Bits:
        if value is None or type_ in TEXTS:
            return value
        number = signed(value)
        width = new_type.bit_width // 8
        is_float = new_type == pa.float64()
        return (
            struct.pack("<d", number) if is_float else number.to_bytes(width, "little", signed=True)
        )

    def rebase(m: Model) -> Model:
        m = m.with_column(name, new_type, tuple(map(recoded, m.column(name))))
        defaults = {n: recoded(b) if n == name else b for n, b in m.defaults.items()}
        return replace(m, defaults=defaults)

    # A view has the bytes of the large type.
    keeps = (type_, new_type) == (pa.string_view(), pa.large_string())
    relies = defaults([name]) | (COLUMNS if keeps else ROWS)
    return Change(lambda t: t.alter_column(name, dtype=new_type), rebase, relies)


def as_int(numbers: list[int | None], width: int) -> tuple[Bits, ...]:
    return tuple(None if n is None else n.to_bytes(width, "little", signed=True) for n in numbers)


def feed(draw, model: Model) -> Change:
    rows = draw(st.integers(0, 40))
    given = {n: values(draw, t, rows) for n, t in zip(model.names, model.types, strict=True)}
    order = draw(st.permutations(model.names))
    cut, ids = draw(st.integers(0, rows)), new_ids(rows)

    def call(t):
        with in_one_commit(t) as tx, tx.appender() as a:
            for name in order:
                a[name].append(given[name][:cut])
            for name in reversed(order):
                a[name].append(given[name][cut:])

    stored = {name: bits(array) for name, array in given.items()}
    relies = COLUMNS if rows else NOTHING
    return Change(call, lambda m: m.more(ids, stored), relies, does=bool(rows))


def condition(draw, model: Model):
    """Draw a filter and the rows for which it is true."""
    kind = draw(st.sampled_from(["null", "valid", "greater", "tuples", "equal", "in"]))
    ordered, items = model.of(*INTEGERS, pa.float64()), model.of(*ITEMS)
    if kind in ("greater", "tuples") and ordered:
        name = draw(st.sampled_from(ordered))
        there = model.numbers(name)
        limit = draw(st.sampled_from([0, *(n for n in there if n is not None)]))
        found = [n is not None and n > limit for n in there]
        return (pc.field(name) > limit if kind == "greater" else [(name, ">", limit)]), found
    if kind in ("equal", "in") and items:
        name = draw(st.sampled_from(items))
        type_, there = model.types[model.names.index(name)], model.column(name)
        some = draw(st.lists(st.sampled_from([b"", *filter(None, there)]), min_size=1, max_size=3))
        some = some[: 1 if kind == "equal" else 3]
        # Arrow looks up no views.
        type_ = pa.large_string() if type_ == pa.string_view() else type_
        wanted = pa.array([b if type_ in BINARY else b.decode() for b in some], type_)
        field = pc.field(name)
        found = [b is not None and b in some for b in there]
        return (field == wanted[0] if kind == "equal" else field.isin(wanted)), found
    name = draw(st.sampled_from(model.names))
    found = [b is None for b in model.column(name)]
    if kind == "valid":
        return pc.field(name).is_valid(), [not is_null for is_null in found]
    return pc.field(name).is_null(), found


def update(draw, model: Model) -> Change:
    where, mask = condition(draw, model)
    if draw(st.booleans()):
        where, mask = None, [True] * model.rows
    chosen = [row for row, is_set in enumerate(mask) if is_set]
    wanted, stored = {}, {}
    for name in draw(st.lists(st.sampled_from(model.names), min_size=1, max_size=3, unique=True)):
        type_ = model.types[model.names.index(name)]
        kind = draw(st.sampled_from(["scalar", "array", "copied", "computed"]))
        if kind == "computed" and type_ in INTEGERS:
            other = draw(st.sampled_from(model.of(type_)))
            wanted[name] = pc.bit_wise_not(pc.field(other))
            stored[name] = as_int(
                [None if n is None else ~n for n in model.numbers(other)], type_.bit_width // 8
            )
        elif kind in ("copied", "computed"):
            other = draw(st.sampled_from(model.of(type_)))
            wanted[name] = pc.field(other)
            stored[name] = model.column(other)
        else:
            array = values(draw, type_, 1 if kind == "scalar" else len(chosen))
            wanted[name] = array[0] if kind == "scalar" else array
            found = bits(array) * (len(chosen) if kind == "scalar" else 1)
            stored[name] = dict(zip(chosen, found, strict=True))

    by_id = {name: {model.ids[row]: new[row] for row in chosen} for name, new in stored.items()}
    return Change(
        lambda t: t.update(wanted, where),
        lambda m: m.updated(by_id),
        SOME_ROWS,
        does=bool(chosen),
    )


def delete(draw, model: Model) -> Change:
    where, mask = condition(draw, model)
    gone = {one for one, is_gone in zip(model.ids, mask, strict=True) if is_gone}
    return Change(
        lambda t: t.delete(where),
        lambda m: m.without(gone),
        SOME_ROWS,
        does=bool(gone),
    )


def upsert(draw, model: Model) -> Change:
    """Draw rows with some keys of a column of integers, and their values in some columns."""
    names = model.of(*INTEGERS)
    if not names:
        return delete(draw, model)
    on = draw(st.sampled_from(names))
    there, type_ = model.numbers(on), model.types[model.names.index(on)]
    few = st.sampled_from([0, 1, None, *there])
    wanted = draw(st.lists(few, min_size=1, max_size=4, unique=True))
    rest = draw(st.lists(st.sampled_from(model.names), max_size=2, unique=True))
    rest = [name for name in rest if name != on]
    new = {n: values(draw, model.types[model.names.index(n)], len(wanted)) for n in rest}
    data = pa.table({on: pa.array(wanted, type_), **new})
    stored = {name: bits(array) for name, array in new.items()}
    place = {key: number for number, key in enumerate(wanted)}
    hits = {one: place[key] for one, key in zip(model.ids, there, strict=True) if key in place}
    by_id = {
        name: {one: cells[number] for one, number in hits.items()} for name, cells in stored.items()
    }
    added = [key for key in wanted if key not in there]
    ids = new_ids(len(added))
    given = {name: [cells[place[key]] for key in added] for name, cells in stored.items()}
    given[on] = bits(pa.array(added, type_))

    def rebase(m: Model) -> Model:
        m = m.updated(by_id)
        m = m.more(ids, given) if added else m
        if tuning.current.rows_per_deleted > 1 or not rest:
            return m
        # Rows that were there come behind the others, in the order of the data.
        behind = hits | {one: place[key] for one, key in zip(ids, added, strict=True)}
        return m.taken(sorted(range(m.rows), key=lambda row: behind.get(m.ids[row], -1)))

    lacking = defaults({*model.names} - {on, *rest}) if added else NOTHING
    return Change(
        lambda t: t.upsert(data, on=on),
        rebase,
        SOME_ROWS | lacking,
        does=bool(added or (hits and rest)),
    )


def replace_where(draw, model: Model) -> Change:
    """Draw rows in the place of those with one value of a column of integers."""
    names = model.of(*INTEGERS)
    if not names:
        return delete(draw, model)
    on = draw(st.sampled_from(names))
    there, type_ = model.numbers(on), model.types[model.names.index(on)]
    key = draw(st.sampled_from([0, *(n for n in there if n is not None)]))
    rows = draw(st.integers(0, 4))
    data = pa.table({on: pa.array([key] * rows, type_)})
    gone = {one for one, n in zip(model.ids, there, strict=True) if n == key}
    ids, given = new_ids(rows), {on: bits(data[on])}

    def rebase(m: Model) -> Model:
        m = m.without(gone)
        return m.more(ids, given) if rows else m

    lacking = defaults({*model.names} - {on}) if rows else NOTHING
    return Change(
        lambda t: t.append(data, replace_where=[(on, "==", key)]),
        rebase,
        SOME_ROWS | lacking,
        does=bool(gone or rows),
    )


def resize(draw, model: Model) -> Change:
    n = draw(st.integers(0, model.rows + 30))
    if n <= model.rows:
        left = lambda m: m.taken(list(range(n)))  # noqa: E731
        return Change(lambda t: t.resize(n), left, ROWS, does=n < model.rows)
    ids = new_ids(n - model.rows)
    return Change(
        lambda t: t.resize(n),
        lambda m: m.more(ids, {}),
        ROWS | defaults(model.names),
    )


def add_column(draw, model: Model) -> Change:
    name = draw(st.sampled_from([n for n in NAMES if n not in model.names]))
    kind = draw(st.sampled_from(["data", "constant", "expression"]))
    if kind == "expression" and model.names:
        other = draw(st.sampled_from(model.names))
        type_ = model.types[model.names.index(other)]
        data, stored = pc.field(other), model.column(other)
    elif kind == "data":
        type_ = draw(st.sampled_from(TYPES))
        data = values(draw, type_, model.rows)
        stored = tuple(bits(data))
    else:
        type_ = draw(st.sampled_from(TYPES))
        one = values(draw, type_, 1)
        data, stored = one[0], tuple(bits(one) * model.rows)
    default = values(draw, type_, 1) if draw(st.booleans()) else nulls(1, type_)
    defaults = {name: bits(default)[0]} if bits(default)[0] is not None else {}

    def rebase(m: Model) -> Model:
        return replace(m.with_column(name, type_, stored), defaults={**m.defaults, **defaults})

    declared = default[0] if defaults else None
    return Change(lambda t: t.add_column(name, data, default=declared), rebase, ROWS)


def drop(draw, model: Model) -> Change:
    gone = draw(st.lists(st.sampled_from(model.names), min_size=1, max_size=2, unique=True))
    kept = [name for name in model.names if name not in gone]
    return Change(lambda t: t.drop_columns(gone), lambda m: m.selected(kept), COLUMNS, drops=True)


def reorder(draw, model: Model) -> Change:
    order = draw(st.permutations(model.names))
    first = order[: draw(st.integers(1, len(order)))]
    rest = [name for name in model.names if name not in first]
    return Change(lambda t: moved_first(t, first), lambda m: m.selected([*first, *rest]), COLUMNS)


def rename(draw, model: Model) -> Change:
    old = draw(st.lists(st.sampled_from(model.names), min_size=1, max_size=3, unique=True))
    free = [name for name in NAMES if name not in model.names or name in old]
    new = dict(zip(old, draw(st.permutations(free)), strict=False))

    def rebase(m: Model) -> Model:
        return replace(
            m,
            names=tuple(new.get(name, name) for name in m.names),
            defaults={new.get(name, name): b for name, b in m.defaults.items()},
            order=m.order and (new.get(m.order[0], m.order[0]), m.order[1]),
        )

    return Change(lambda t: t.rename_columns(new), rebase, COLUMNS)


def attributes(draw, model: Model) -> Change:
    key, value = draw(st.sampled_from("xyz")), draw(st.integers(0, 3))
    if key in model.attrs and draw(st.booleans()):
        left = lambda m: replace(m, attrs={k: v for k, v in m.attrs.items() if k != key})  # noqa: E731
        return Change(lambda t: t.attrs.pop(key), left, NOTHING, (key,))
    return Change(
        lambda t: t.attrs.update({key: value}),
        lambda m: replace(m, attrs={**m.attrs, key: value}),
        NOTHING,
        (key,),
    )


def metalayers(draw, model: Model) -> Change:
    # Other keys than those of attributes.
    key, value = draw(st.sampled_from("pqr")), draw(st.binary(max_size=3))
    if key in model.layers and draw(st.booleans()):
        left = lambda m: replace(m, layers={k: v for k, v in m.layers.items() if k != key})  # noqa: E731
        return Change(lambda t: t.vlmeta.delete(key), left, NOTHING, (key,))
    return Change(
        lambda t: t.vlmeta.__setitem__(key, value),
        lambda m: replace(m, layers={**m.layers, key: value}),
        NOTHING,
        (key,),
    )


def compact(draw, model: Model) -> Change:
    numbers = model.of(*INTEGERS)
    call = lambda t: t.compact(sort_by=[order(wanted)])  # noqa: E731
    if not numbers or draw(st.booleans()):
        if model.order is None or draw(st.booleans()):
            sort_by = draw(st.sampled_from([None, ()])) if model.order is None else ()
            return Change(lambda t: t.compact(sort_by), lambda m: m, frozenset(["joined"]))
        wanted, call = model.order, lambda t: t.compact()
    else:
        wanted = draw(st.sampled_from(numbers)), draw(st.booleans())
    name, is_rising = wanted

    def rebase(m: Model) -> Model:
        found = m.numbers(name)
        # Rows that others have appended meanwhile stay behind it.
        there = [row for row in range(model.rows) if found[row] is not None]
        there.sort(key=lambda row: found[row], reverse=not is_rising)
        there += [row for row in range(model.rows) if found[row] is None]
        return replace(m.taken([*there, *range(model.rows, m.rows)]), order=wanted)

    return Change(call, rebase, frozenset(["joined", "order"]))


def order(wanted: tuple[str, bool]) -> tuple[str, str]:
    return wanted[0], "ascending" if wanted[1] else "descending"


ON_COLUMNS = [append, append, feed, update, update, delete, resize, compact]
ON_COLUMNS += [upsert, replace_where]
ON_COLUMNS += [drop, reorder, rename, append_evolving, append_evolving, alter_column]


def change(draw, model: Model) -> Change:
    """Draw any change that this version accepts."""
    kinds = [attributes, metalayers]
    if len(model.names) < len(NAMES):
        kinds.append(add_column)
    if model.names:
        kinds += ON_COLUMNS
    return draw(st.sampled_from(kinds))(draw, model)


class TinyTable(CTable):
    """A table that cuts its streams into chunks of a few rows, and may have other options."""

    others: Mapping[str, str] = {}

    def _new_transaction(
        self, commit_id: str | None, snapshot: Snapshot | None = None
    ) -> Transaction:
        tx = super()._new_transaction(commit_id, snapshot)
        kept = tx._change_set.storage.given() | self.others
        tx._change_set.storage = Tiny(**kept, chunk_bytes=64)
        return tx


class Stop(Exception):
    """The exception of a user's own code."""


class Killed(BaseException):
    """The process was killed."""


class Dying:
    """A hook that refuses every change from the n-th on."""

    def __init__(self, store: Store, left: int) -> None:
        self.store = store
        self.left: int | None = left

    def __call__(self, name: str, args: tuple) -> None:
        if name not in MUTATING or self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            if self.left == -1 and name == "put_new" and args[0] not in entries(self.store):
                self.store.put_new(args[0], [b"".join(args[1])[:50]])
            raise Killed


class Machine(RuleBasedStateMachine):
    new_store = RamStore

    @initialize(data=st.data())
    def begin(self, data):
        self.store = self.new_store()
        types = data.draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4))
        rows = data.draw(st.integers(0, 30))
        given = {n: values(data.draw, t, rows) for n, t in zip(NAMES, types, strict=False)}
        table = pa.table(given)
        options = tiny(
            row_group_rows=data.draw(st.sampled_from([16, 40])),
            # Columns with pages of their own are in no bundle.
            page_rows=data.draw(
                st.sampled_from(
                    [8, None, dict.fromkeys(data.draw(st.sets(st.sampled_from([*given]))), 8)]
                )
            ),
            encoding=dict.fromkeys(data.draw(st.sets(st.sampled_from([*given]))), "plain"),
        )
        create(self.store, Stream(table, rows), options, replace_existing=False)[1].close()
        columns = tuple(tuple(bits(array)) for array in given.values())
        self.models = {1: Model(tuple(given), tuple(types), columns, rows, ids=new_ids(rows))}
        self.expected = [1]
        self.handles = [self.opened(), self.opened()]
        self.ids = count()

    def opened(self, version=None, store=None) -> TinyTable:
        store = store or self.store
        snapshot = Snapshot(*versions.pin(store, version))
        # The model foretells each conflict; a verb would be made again.
        return TinyTable(snapshot, writable=True, durability="process", retries=0)

    @property
    def newest(self) -> int:
        return self.expected[-1]

    @rule(data=st.data(), which=st.integers(0, 1))
    def one_change(self, data, which):
        t = self.handles[which]
        self.make(which, [change(data.draw, self.models[t.version])], lambda c: c[0].call(t))

    @rule(data=st.data(), which=st.integers(0, 1), fails=st.booleans(), named=st.booleans())
    def transaction(self, data, which, fails, named):
        t = self.handles[which]
        model, changes = self.models[t.version], []
        for _ in range(data.draw(st.integers(1, 4))):
            changes.append(change(data.draw, model))
            model = changes[-1].rebase(model)
        commit_id = f"job {next(self.ids)}" if named else None

        def run(changes):
            expected = self.models[t.version]
            with t.transaction(commit_id=commit_id) as tx:
                for one in changes:
                    one.call(tx)
                    expected = one.rebase(expected)
                    same(tx, expected)
                if fails:
                    raise Stop

        if fails:
            before = entries(self.store)
            with pytest.raises(Stop):
                run(changes)
            assert entries(self.store) == before
            return
        if self.make(which, changes, run) and named and self.handles[which].version != 1:
            version = self.newest
            with t.transaction(commit_id=commit_id) as tx:
                tx.append(iter([Stop()]))
            assert tx.is_repeated
            assert self.newest == version

    @rule(data=st.data(), which=st.integers(0, 1))
    def vacuum(self, data, which):
        self.handles[which].vacuum(keep=1)
        self.expected = [n for n in self.expected if n == self.newest or n in self.pinned()]
        named = {
            key
            for number in self.expected
            for key in files_named(versions.read(self.store, number))
        }
        if self.stored() != named:
            # A cycle, such as that of an exception, may hold a snapshot and its pin.
            gc.collect()
            self.handles[which].vacuum(keep=1)
        assert self.stored() == named

    def stored(self) -> set[str]:
        return {key for key in entries(self.store) if key.endswith(".bin")}

    @rule(data=st.data(), which=st.integers(0, 1))
    def read(self, data, which):
        """Read some rows of some columns in every way."""
        t = self.handles[which]
        model = self.models[t.version]
        if not model.names:
            return
        where, mask = condition(data.draw, model)
        chosen = [row for row, is_set in enumerate(mask) if is_set]
        names = data.draw(st.lists(st.sampled_from(model.names), min_size=1, unique=True))
        shown = model.selected(names)
        same_rows(t.to_arrow(names, filters=where), shown.taken(chosen))
        assert t.count(filters=where) == len(chosen)
        batches = t.to_batches(names, filters=where, batch_rows=data.draw(st.integers(1, 20)))
        same_rows(pa.Table.from_batches(batches, batches.schema), shown.taken(chosen))
        texts = [name for name in names if name in model.of(*ITEMS)]
        found = t.to_arrow(names, filters=where, dictionaries=texts)
        for name in texts:
            assert bits(found[name]) == list(shown.taken(chosen).column(name))
        rows = data.draw(st.lists(st.integers(0, model.rows - 1), max_size=9)) if model.rows else []
        same_rows(t.take(rows, names), shown.taken(rows))
        cuts = st.none() | st.integers(-50, 50)
        rows = slice(data.draw(cuts), data.draw(cuts), data.draw(st.sampled_from([None, 1, 3])))
        same_rows(t[rows], model.taken(list(range(model.rows)[rows])))

    @rule(data=st.data(), which=st.integers(0, 1))
    def restore(self, data, which):
        number = data.draw(st.sampled_from(self.expected))
        t = self.handles[which]
        pinned = {*self.pinned(), number}
        assert t.restore(number).version == self.newest + 1
        self.committed(self.newest + 1, self.models[number], pinned)

    @rule(which=st.integers(0, 1), data=st.data())
    def reopen(self, which, data):
        self.handles[which].close()
        older = data.draw(st.booleans())
        self.handles[which] = self.opened(
            data.draw(st.sampled_from(self.expected)) if older else None
        )
        self.handles[which].others = data.draw(st.sampled_from(OPTIONS))

    @precondition(lambda self: hasattr(self, "store"))
    @rule(data=st.data(), which=st.integers(0, 1), left=st.integers(0, 12), after=st.booleans())
    def crash(self, data, which, left, after):
        self.handles[which].close()
        death = Dying(self.store, left)
        hooked = Hooked(self.store, **{"after" if after else "before": death})
        t = self.opened(store=hooked)
        self.handles[which] = t
        one = change(data.draw, self.models[t.version])
        pinned = {self.handles[1 - which].version}
        with suppress(Killed, BaseExceptionGroup):
            one.call(t)
        t.close()
        death.left = None
        there, before = versions.newest_number(self.store), self.newest
        # The second commit merges row groups after an append.
        assert there - before in (0, 1, 2)
        for number in range(before + 1, there + 1):
            self.models[number] = one.rebase(self.models[before])
        if there > before:
            # The process may have been killed before it removed old versions.
            self.expected = versions.numbers(self.store)
            assert pinned <= {*self.expected}
        self.handles[which] = self.opened()

    def pinned(self) -> set[int]:
        return {t.version for t in self.handles}

    def make(self, which, changes, run) -> bool:
        """Run changes by a handle and check the outcome; return True if there was a commit."""
        t = self.handles[which]
        seen, newest = self.models[t.version], self.models[self.newest]
        before, pinned, base = entries(self.store), self.pinned(), t.version
        relies = frozenset().union(*(one.relies for one in changes))
        keys = {key for one in changes for key in one.keys}
        is_behind = base != self.newest
        files = self.files(base), self.files(self.newest)
        drops = any(one.drops for one in changes)
        used = {fact[1] for fact in relies if fact[0] == "default"}
        new_defaults = any(seen.defaults.get(name) != newest.defaults.get(name) for name in used)
        lost = (
            ("columns" in relies and files[0][0] != files[1][0])
            or ("rows" in relies and files[0] != files[1] and not drops)
            or (new_defaults and len(changes) == 1)
            or any(seen.attrs.get(key) != newest.attrs.get(key) for key in keys)
            or any(seen.layers.get(key) != newest.layers.get(key) for key in keys)
        )
        may_be_lost = (
            (relies & {"joined", "rows", "some rows"} and files[0] != files[1])
            or ("order" in relies and seen.order != newest.order)
            # The transaction may have set them itself before, or dropped or renamed their columns.
            or (used and seen.defaults != newest.defaults)
        )
        try:
            run(changes)
        except ConflictError:
            assert is_behind
            assert lost or may_be_lost
            assert entries(self.store) == before
            assert t.version == base
            return False
        if t.version == base:
            assert not any(one.does for one in changes if not one.relies & {"joined", "order"})
            return False
        assert not (is_behind and lost)
        for one in changes:
            # A change without effect is not repeated on the rows of others.
            if one.does:
                newest = one.rebase(newest)
        for number in range(self.newest + 1, t.version + 1):
            self.committed(number, newest, pinned)
            # The handle left its version, so a merge after the commit may remove it.
            pinned = self.pinned()
        return True

    def files(self, number: int):
        """Return the columns of a version, and the files of its row groups."""
        version = versions.read(self.store, number)
        columns = [
            [version.parts(line) for line in version.nodes(index)]
            for index in range(len(version.schema))
        ]
        paths = [(c[0].path, f.name, f.type) for c, f in zip(columns, version.schema, strict=True)]
        groups = version.row_groups, version.bundles
        return paths, groups, [[node.files.tolist() for node in column] for column in columns]

    def committed(self, number: int, model: Model, pinned: set[int]) -> None:
        self.models[number] = model
        past = self.expected[: max(0, len(self.expected) + 1 - KEPT)]
        gone = {n for n in past if n not in pinned}
        heads = [versions.read(self.store, n).head for n in (number - 1, number)]
        if heads[1].operation == "append" and heads[0].operation in ("append", "merge"):
            # A quick run of appends leaves up to seven expired versions to a later commit.
            there = {*versions.numbers(self.store)}
            assert len(gone & there) < 8
            gone -= there
        self.expected = [*(n for n in self.expected if n not in gone), number]

    @invariant()
    def every_handle_shows_its_version(self):
        if not hasattr(self, "store"):
            return
        for t in self.handles:
            same(t, self.models[t.version])
        assert [one.number for one in self.handles[0].versions()] == self.expected
        with self.opened() as t:
            same(t, self.models[self.newest])
            report = t.verify()
            assert report.is_intact, report.problems


def same_rows(found: pa.Table, model: Model) -> None:
    assert found.column_names == list(model.names)
    assert found.schema.types == list(model.types)
    assert found.num_rows == model.rows
    for name, column, expected in zip(model.names, found.columns, model.columns, strict=True):
        column.validate(full=True)
        assert bits(column) == list(expected), name


def same(t, model: Model) -> None:
    same_rows(t.to_arrow(), model)
    assert len(t) == model.rows
    assert dict(t.attrs) == dict(model.attrs)
    assert dict(t.vlmeta) == dict(model.layers)
    assert t.storage.sort_by == ([order(model.order)] if model.order else None)


quick = settings(
    max_examples=8,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="class", autouse=True)
def always_written_again():
    """Let the order of rows be told without their row groups: a change of few rows is none."""
    with tuning.tuned(rows_per_deleted=1 << 60):
        yield


@pytest.mark.usefixtures("own_files_here")
class TestModel(Machine.TestCase):
    settings = quick


@pytest.mark.usefixtures("bundled", "batched")
class TestModelOfBundles(Machine.TestCase):
    settings = quick


@pytest.mark.usefixtures("bundled", "encoded")
class TestModelOfEncodings(Machine.TestCase):
    settings = quick


@pytest.mark.usefixtures("bundled", "encoded", "deletions")
class TestModelOfDeletedRows(Machine.TestCase):
    settings = quick


class MachineOfOneFile(Machine):
    """The same changes of a table in one file."""

    @staticmethod
    def new_store():
        return OneFileStore(FileInMemory())


@pytest.mark.usefixtures("own_files_here")
class TestModelOfOneFile(MachineOfOneFile.TestCase):
    settings = quick


@pytest.mark.storm
@pytest.mark.timeout(4 * 3600)
@pytest.mark.usefixtures("own_files_here")
class TestModelOfOneFileStorm(MachineOfOneFile.TestCase):
    settings = settings(quick, max_examples=1000, stateful_step_count=30)


@pytest.mark.storm
@pytest.mark.timeout(4 * 3600)
@pytest.mark.usefixtures("bundled", "encoded")
class TestModelOfEncodingsStorm(Machine.TestCase):
    settings = settings(quick, max_examples=1000, stateful_step_count=30)


@pytest.mark.storm
@pytest.mark.timeout(4 * 3600)
@pytest.mark.usefixtures("bundled", "batched")
class TestModelOfBundlesStorm(Machine.TestCase):
    settings = settings(quick, max_examples=1000, stateful_step_count=30)


@pytest.mark.storm
@pytest.mark.timeout(4 * 3600)
@pytest.mark.usefixtures("own_files_here")
class TestModelStorm(Machine.TestCase):
    settings = settings(quick, max_examples=2000, stateful_step_count=30)
