"""Random tables cut in runs, the statistics of the runs, and random conditions on them."""

import operator
import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.columns.statistics.bounds import zones_of_groups
from blztable.engine.query import expressions
from support import arrow_strategies as own
from support.encoded import records_of

OPERATORS = [getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")]
PRUNED = [pa.bool_(), *own.INTEGERS, *own.FLOATS, *own.DECIMALS, *own.TIMES, *own.TEXTS]
NAN = pa.scalar(float("nan"))
LITERALS = [
    *(pa.scalar(value) for value in (True, False, None, 0, 1, -3, 200, 0.0, -0.0, 0.5, b"a", "b")),
    NAN,
    pa.scalar(float("inf")),
    pa.scalar("", pa.large_string()),
]
# Most of these types can be cast or compared; the others are refused.
TARGETS = [
    pa.int16(),
    pa.int64(),
    pa.uint64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(38, 2),
    pa.date32(),
    pa.timestamp("s"),
    pa.timestamp("us"),
    pa.timestamp("ns", "UTC"),
    pa.time64("ns"),
    pa.duration("ns"),
    pa.large_string(),
    pa.binary(),
]
# Texts that differ behind the length of a bound, and beside the last characters.
STEMS = ["", "", "a" * 8, "ä" * 4, "a" * 5 + "\U0010ffff", "\U0010ffff" * 2, "a" * 300]
LETTERS = "ab\0\x7f\x80é߿ࠀ中\ud7ff\ue000\uffff😀\U0010ffff"


def known_of(array, cuts):
    """Return the writer's statistics of these runs."""
    return zones_of_groups(array.type, records_of([array[start:stop] for start, stop in cuts]))


class Drawn:
    """A random table of two columns, and random conditions with literals from it."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        rows = self.random.randint(1, 30)
        first = self.pick(*PRUNED)
        second = self.pick(first, *self.random.sample(PRUNED, 1))
        arrays = [self.array(first, rows), self.array(second, rows)]
        if self.pick(True, False, False):
            arrays[0] = self.with_dictionary(arrays[0])
        self.table = pa.table({"a": arrays[0], "b": arrays[1]})
        self.columns = {
            name: expressions.comparable(self.table[name]).combine_chunks()
            for name in self.table.column_names
        }
        # The last referenced column; literals are drawn from it.
        self.name = "a"
        self.cuts = []
        start = 0
        while start < rows:
            self.cuts.append((start, min(rows, start + self.random.randint(1, 8))))
            start = self.cuts[-1][1]

    def item(self, type_):
        """Return the bytes of a value."""
        if type_ in own.TEXTS:
            if type_ not in (*own.STRINGS, pa.string_view()) and self.pick(True, False):
                return b"\xff" * self.random.randint(0, 34) + self.random.randbytes(1)
            text = self.pick(*STEMS) + "".join(self.random.choices(LETTERS, k=self.pick(0, 1, 2)))
            return text.encode()
        width = type_.bit_width // 8
        if pa.types.is_floating(type_) and self.pick(True, False):
            return self.pick(*own.FLOAT_BITS[width]).to_bytes(width, "little")
        if pa.types.is_floating(type_):
            return np.dtype(f"<f{width}").type(self.random.randint(-4, 4) / 2).tobytes()
        most = 10**type_.precision - 1 if pa.types.is_decimal(type_) else 256**width // 2 - 1
        number = self.pick(
            *(self.random.randint(-3, 3),) * 4, self.random.randint(-most, most), most, -most
        )
        if type_ == pa.date64() and self.pick(True, False):
            number = self.random.randint(-3, 3) * 86_400_000
        return (number % 256**width).to_bytes(width, "little")

    def array(self, type_, rows):
        """Return a column, often sorted, so that its runs differ."""
        nulls = self.pick(0, 0.2, 0.9)
        present = np.array([self.random.random() >= nulls for _ in range(rows)])
        if pa.types.is_boolean(type_):
            array = pa.array(self.random.choices([True, False], k=rows), type_, mask=~present)
        else:
            pool = [self.item(type_) for _ in range(self.pick(1, 3, 8))]
            data = self.random.choices(pool, k=rows)
            if type_ in own.VIEWS:
                narrow = pa.string() if type_ == pa.string_view() else pa.binary()
                array = own.varying(narrow, data, present).cast(type_)
            elif type_ in own.TEXTS:
                array = own.varying(type_, data, present)
            else:
                buffers = [own.bitmap(present), pa.py_buffer(b"".join(data))]
                array = pa.Array.from_buffers(type_, rows, buffers)
        if self.pick(True, False):
            compared = expressions.comparable(pa.chunked_array([array])).combine_chunks()
            order = pc.sort_indices(compared)
            array = (compared if type_ in own.VIEWS else array).take(order).cast(type_)
        return array

    def with_dictionary(self, values):
        codes = [None if self.pick(*"nxxx") == "n" else code for code in range(len(values))]
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), values)

    def pick(self, *choices):
        return self.random.choice(choices)

    def field(self):
        self.name = self.pick("a", "b")
        return pc.field(self.name)

    def literal(self):
        column = self.columns[self.name]
        if self.random.random() < 0.9:
            return self.random.choice(column)
        return self.pick(*LITERALS)

    def operand(self):
        match self.pick(*"ffffclk"):
            case "f":
                return self.field()
            case "c":
                return self.field().cast(self.pick(*TARGETS), safe=self.pick(True, True, False))
            case "l":
                return self.constant()
        return self.constant().cast(self.pick(*TARGETS))

    def constant(self):
        """Return a literal of any type; with a typed null Arrow 26 crashes."""
        value = self.literal()
        return pc.scalar(value if value.is_valid else None)

    def leaf(self):
        match self.pick(*"======>>iindns?v"):
            case "=":
                one, other = self.field(), pc.scalar(self.literal())
                one, other = self.pick((one, other), (other, one))
                return self.pick(*OPERATORS)(one, other)
            case ">":
                return self.pick(*OPERATORS)(self.operand(), self.operand())
            case "i":
                return self.is_in()
            case "d":
                inside = self.is_in()
                return pc.if_else(pc.field(self.name).is_valid(), inside, pc.scalar(None))
            case "n":
                one = self.operand()
                # On a null literal of some types Arrow 26 crashes.
                is_nan = pc.is_nan(self.field())
                return self.pick(
                    one.is_null(), one.is_null(nan_is_null=True), one.is_valid(), is_nan
                )
            case "s":
                field, value = self.field(), self.literal()
                start = value.as_py() if value.type in own.TEXTS and value.is_valid else "a"
                cut = start[: self.pick(0, 1, 2, 30, 33, 40)]
                return pc.starts_with(field, cut, ignore_case=self.pick(False, False, True))
            case "v":
                return self.pick(self.field(), pc.scalar(self.pick(True, False, None)))
        return self.pick(
            pc.add(self.field(), self.field()) > self.operand(),
            pc.negate(self.field()) > self.operand(),
            pc.utf8_upper(self.field()) == "A",
            pc.is_finite(self.operand()),
            pc.coalesce(self.field(), self.operand()) == self.operand(),
        )

    def is_in(self):
        field = self.field()
        column = self.columns[self.name]
        places = self.random.choices(range(len(column)), k=self.random.randint(0, 4))
        chosen = column.take(pa.array(places, pa.int64()))
        if self.random.random() < 0.1:
            chosen = self.pick(
                pa.array([0, 1, None]), pa.array([0.0, 0.1, float("nan")]), pa.array(["a", ""])
            )
        return pc.is_in(field, value_set=chosen, skip_nulls=self.pick(True, False))

    def condition(self, depth):
        if depth == 0 or self.pick(True, False, False):
            return self.leaf()
        one = self.condition(depth - 1)
        match self.pick("&", "|", "~", "and", "or", "if", "null"):
            case "&":
                return one & self.condition(depth - 1)
            case "|":
                return one | self.condition(depth - 1)
            case "~":
                return ~one
            case "and":
                return pc.Expression._call("and", [one, self.condition(depth - 1)])
            case "or":
                return pc.Expression._call("or", [one, self.condition(depth - 1)])
            case "if":
                return pc.if_else(one, self.condition(depth - 1), self.condition(depth - 1))
        return self.pick(one.is_null(), one.is_valid())
