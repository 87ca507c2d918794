"""The tree of an expression: what of which arguments, and the parts of a conjunction.

Knows Arrow's expressions and nothing else: no schemas, no values of columns, no statistics.

Arrow lets nobody look into an expression, but writes it down for pickle: as a file of IPC whose one
batch holds the literals and options, and whose metadata are the tree in order: `call` and its name,
the arguments, perhaps `options`, `end`. What is not as foreseen, in a version of Arrow to come, has
no tree, and whoever asks must do without.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow_errors import REFUSALS
from blztable.arrow_types import without_view

# So that whoever goes down a tree may recurse; chains of the same are one call.
MAX_DEPTH = 100
_SMALL = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
_CHAINS = ("and", "and_kleene", "or", "or_kleene")
_CONJUNCTIONS = ("and", "and_kleene")
_UNFORESEEN = (
    *(*REFUSALS, struct.error, AttributeError, ValueError),
    *(TypeError, LookupError),
)
# Of Arrow's Message and Schema, by the number of the field in its flatbuffer.
_MESSAGE_HEADER = 2
_SCHEMA_METADATA = 2

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Field:
    """The column of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """The same value for each row."""

    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class Call:
    """A function of arguments; options by name, as Arrow's scalars."""

    function: str
    arguments: tuple["Term", ...]
    options: Mapping[str, pa.Scalar] | None = None


Term = Field | Literal | Call


def tree(expression: pc.Expression) -> Term | None:
    """The tree; a chain of `and` or `or` is one call. None where it cannot be told."""
    try:
        pairs, batch = _written(expression)
        return _term(pairs, batch)
    except _UNFORESEEN:
        return None


def parts(expression: pc.Expression) -> list[tuple[pc.Expression, Term | None]]:
    """The expressions that are all true where this one is, in order; itself if it is but one.

    Each with its tree, which is None where it cannot be told.
    """
    try:
        pairs, batch = _written(expression)
        spans = list(_conjunct_spans(pairs))
        if len(spans) == 1:
            return [(expression, tree(expression))]
        return [
            (_expression(pairs[start:stop], batch), _tree_of(pairs[start:stop], batch))
            for start, stop in spans
        ]
    except _UNFORESEEN:
        return [(expression, tree(expression))]


def names(term: Term) -> Iterator[str]:
    """The columns that a tree refers to, as often as it does."""
    match term:
        case Field(name):
            yield name
        case Call(_, arguments):
            for argument in arguments:
                yield from names(argument)


def _tree_of(pairs: list[Pair], batch: pa.RecordBatch) -> Term | None:
    try:
        return _term(pairs, batch)
    except _UNFORESEEN:
        return None


def with_safe_literals(expression: pc.Expression) -> pc.Expression:
    """The expression with literals that Arrow can compare: no views, no nulls of large text."""
    try:
        pairs, batch = _written(expression)
        columns = list(map(_comparable, batch.columns))
        if all(old is new for old, new in zip(batch.columns, columns, strict=True)):
            return expression
        return _expression(pairs, pa.RecordBatch.from_arrays(columns, names=batch.schema.names))
    except _UNFORESEEN:
        return expression


def _comparable(literal: pa.Array) -> pa.Array:
    """One value, of a type that Arrow has kernels for."""
    type_ = without_view(literal.type)
    if literal.null_count and type_ in _SMALL:
        # Casting a null of large text to another type ends the process.
        return pa.nulls(1, _SMALL[type_])
    return literal if type_ == literal.type else literal.cast(type_)


def _term(pairs: list[Pair], batch: pa.RecordBatch) -> Term:
    calls = [_Open("")]
    for key, value in pairs:
        match key:
            case "call":
                calls.append(_Open(value))
            case "end":
                call = calls.pop()
                calls[-1].add(call.closed(), call.depth)
            case "field_ref":
                calls[-1].add(Field(value))
            case "literal":
                calls[-1].add(Literal(batch.column(int(value))[0]))
            case "options":
                calls[-1].options = dict(batch.column(int(value))[0].items())
            case _:
                raise ValueError(f"{key!r} in an expression")
    (root,) = calls
    (term,) = root.arguments
    return term


@dataclass(slots=True)
class _Open:
    """A call of which not all arguments are read."""

    function: str
    arguments: list[Term] = field(default_factory=list)
    options: Mapping[str, pa.Scalar] | None = None
    depth: int = 1

    def add(self, term: Term, depth: int = 0) -> None:
        if isinstance(term, Call) and term.function == self.function in _CHAINS:
            self.arguments += term.arguments
            depth -= 1
        else:
            self.arguments.append(term)
        self.depth = max(self.depth, depth + 1)
        # What is around the whole is a level too.
        if self.depth > MAX_DEPTH + 1:
            raise ValueError("an expression nested too deep")

    def closed(self) -> Call:
        return Call(self.function, tuple(self.arguments), self.options)


def _conjunct_spans(pairs: list[Pair]) -> Iterator[tuple[int, int]]:
    """Where in the pairs the operands of the conjunctions at the top are."""
    # The calls that are open, and how many of them are conjunctions with nothing else around them.
    depth = outer = start = 0
    for at, (key, value) in enumerate(pairs):
        if key == "options":
            continue
        if key not in ("call", "end", "field_ref", "literal"):
            raise ValueError(f"{key!r} in an expression")
        if depth == outer:
            if key == "call" and value in _CONJUNCTIONS:
                depth, outer = depth + 1, outer + 1
                continue
            if key == "end":
                depth, outer = depth - 1, outer - 1
                continue
            start = at
        depth += {"call": 1, "end": -1}.get(key, 0)
        if depth == outer:
            yield start, at + 1


def _written(expression: pc.Expression) -> tuple[list[Pair], pa.RecordBatch]:
    """An expression as it is pickled: its tree as pairs, and the literals and options."""
    buffer = expression.__reduce__()[1][0]
    reader = pa.ipc.open_file(buffer)
    return list(_metadata(reader.schema)), reader.get_batch(0)


def _expression(pairs: list[Pair], batch: pa.RecordBatch) -> pc.Expression:
    """What these pairs are written for."""
    fields: list[pa.Field] = []
    arrays: list[pa.Array] = []
    numbered: list[Pair] = []
    for key, value in pairs:
        if key in ("literal", "options"):
            # Of the columns its own ones only: there are as many as in the whole expression.
            numbered.append((key, str(len(arrays))))
            fields.append(batch.schema.field(int(value)))
            arrays.append(batch.column(int(value)))
        else:
            numbered.append((key, value))
    schema = pa.schema(fields, metadata=pa.KeyValueMetadata(numbered))
    if arrays:
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    else:
        batch = batch.select([]).replace_schema_metadata(schema.metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(batch)
    return pc.Expression._deserialize(sink.getvalue())


def _metadata(schema: pa.Schema) -> Iterator[Pair]:
    """The metadata in order, and as often as they are there: pyarrow makes a dict of them."""
    message = schema.serialize().to_pybytes()
    # Behind the mark of a message and its length is a flatbuffer.
    data = memoryview(message)[8:]

    def number(form: str, at: int) -> int:
        (value,) = struct.unpack_from("<" + form, data, at)
        return int(value)

    def target(at: int) -> int:
        return at + number("I", at)

    def slot(table: int, field: int) -> int:
        """Where a field of a table is; it is there."""
        fields = table - number("i", table)
        return table + number("H", fields + 4 + 2 * field)

    def text(at: int) -> str:
        start = target(at) + 4
        return str(data[start : start + number("I", start - 4)], "utf-8")

    header = target(slot(target(0), _MESSAGE_HEADER))
    pairs = target(slot(header, _SCHEMA_METADATA))
    for at in range(pairs + 4, pairs + 4 + 4 * number("I", pairs), 4):
        pair = target(at)
        yield text(slot(pair, 0)), text(slot(pair, 1))
