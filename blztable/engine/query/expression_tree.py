"""Expression trees: parse an Arrow expression into terms, and split it into its conjuncts.

Knows Arrow's expressions and nothing else: no schemas, no values of columns, no statistics.

Theory of operation. Arrow has no API to inspect an expression, but pickles it as an Arrow IPC file.
The record batch has one row, with a column for each literal and each options struct. The schema
metadata are the tree as (key, value) pairs in prefix order: `call` with the function's name, its
arguments, `options` if there are any, `end`; an argument is a `call`, a `field_ref` or a `literal`.
A field of a nested column is a `nested_field_ref`: a number of names, and these as `field_ref`.
Parsing these pairs gives a `Term`; writing some of them as a new file gives the expression of a
part of the tree, and writing others in the place of some a changed one (`rewritten`).
An expression that is not pickled like this, perhaps by a later Arrow, has no tree. Then nothing is
pruned, and rows are filtered with the whole expression.
"""

import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.types import REFUSALS, without_view

# Limit for functions that recurse into a tree; a chain of `and` or `or` has the depth of one call.
MAX_DEPTH = 100
_SMALL = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
_CHAINS = ("and", "and_kleene", "or", "or_kleene")
_CONJUNCTIONS = ("and", "and_kleene")
# Keys whose value is the number of a column of the record batch.
_NUMBERED = ("literal", "options")
# What parsing raises if a pickled expression has another form than expected.
_UNEXPECTED = (*REFUSALS, struct.error, AttributeError, ValueError, TypeError, LookupError)
# Field numbers in the flatbuffer tables Message and Schema of Arrow's format.
_MESSAGE_HEADER = 2
_SCHEMA_METADATA = 2

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Field:
    """A column, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that is the same for all rows."""

    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class Call:
    """A function, its arguments, and its options by name as Arrow scalars."""

    function: str
    arguments: tuple["Term", ...]
    options: Mapping[str, pa.Scalar] | None = None


Term = Field | Literal | Call


def tree(expression: pc.Expression) -> Term | None:
    """Return the tree of an expression, a chain of `and` or `or` as one call; None without one."""
    with suppress(*_UNEXPECTED):
        return _tree(*_pickled(expression))
    return None


def parts(expression: pc.Expression) -> list[tuple[pc.Expression, Term | None]]:
    """Return the conjuncts of an expression in order, each with its tree or None."""
    with suppress(*_UNEXPECTED):
        pairs, batch = _pickled(expression)
        spans = list(_conjunct_spans(pairs))
        if len(spans) > 1:
            conjuncts = [pairs[start:stop] for start, stop in spans]
            return [(_expression(each, batch.columns), _tree(each, batch)) for each in conjuncts]
    return [(expression, tree(expression))]


def names(term: Term) -> Iterator[str]:
    """Yield the name of each column reference in a tree."""
    match term:
        case Field(name):
            yield name
        case Call(_, arguments):
            for argument in arguments:
                yield from names(argument)


def functions(term: Term | None) -> Iterator[str]:
    """Yield the name of each function in a tree."""
    if isinstance(term, Call):
        yield term.function
        for argument in term.arguments:
            yield from functions(argument)


def with_columns_for_fields(
    expression: pc.Expression, column_of: Callable[[tuple[str, ...]], str | None]
) -> pc.Expression:
    """Return an expression that refers to columns instead of fields of columns.

    `column_of` returns the name of the column for the names of a field, from the outermost one to
    its own; None to leave the reference as it is.
    """
    with suppress(*_UNEXPECTED):
        pairs, batch = _pickled(expression)
        replaced: list[Pair] = []
        rest = iter(pairs)
        for key, value in rest:
            if key != "nested_field_ref":
                replaced.append((key, value))
                continue
            fields = list(islice(rest, int(value)))
            column = column_of(tuple(name for _, name in fields))
            replaced += [(key, value), *fields] if column is None else [("field_ref", column)]
        if replaced != pairs:
            return _expression(replaced, batch.columns)
    return expression


# A column or field of structs by its names, a literal, or any other argument of a call.
Argument: TypeAlias = tuple[str, ...] | pa.Scalar | pc.Expression
Options: TypeAlias = Mapping[str, pa.Scalar]
Rewrite: TypeAlias = Callable[[str, Sequence[Argument], Options], pc.Expression | None]


def rewritten(
    expression: pc.Expression, functions: Collection[str], rewrite: Rewrite
) -> pc.Expression:
    """Return an expression with others in the place of some calls that have literals or options.

    `rewrite` is given the name of one of the functions, its arguments and its options; it returns
    what replaces the call, or None. Literals that Arrow cannot compare are replaced: extensions,
    views, and nulls of large text.
    """
    try:
        pairs, batch = _pickled(expression)
    except _UNEXPECTED:
        return expression
    columns = list(map(_comparable, batch.columns))
    is_same = all(old is new for old, new in zip(batch.columns, columns, strict=True))
    made: list[Pair] = []
    # Of each open call where it begins in `made`, and where each of its arguments and options do.
    calls: list[tuple[int, list[int]]] = [(0, [])]
    rest = iter(pairs)
    for key, value in rest:
        if key != "end":
            calls[-1][1].append(len(made))
        if key == "call":
            calls.append((len(made), []))
        made.append((key, value))
        if key == "nested_field_ref":
            made += islice(rest, int(value))
        if key != "end":
            continue
        begin, starts = calls.pop()
        if value not in functions or not any(made[at][0] in _NUMBERED for at in starts):
            continue
        stops = [*starts[1:], len(made) - 1]
        spans = [made[start:stop] for start, stop in zip(starts, stops, strict=True)]
        options: Options = {}
        if spans[-1][0][0] == "options":
            options = dict(columns[int(spans.pop()[0][1])][0].items())
        new = rewrite(value, [_argument(span, columns) for span in spans], options)
        if new is not None:
            more, its = _pickled(new)
            made[begin:] = [
                (key, str(int(value) + len(columns)) if key in _NUMBERED else value)
                for key, value in more
            ]
            columns += its.columns
            is_same = False
    return expression if is_same else _expression(made, columns)


def _argument(pairs: list[Pair], columns: Sequence[pa.Array]) -> Argument:
    (key, value), *others = pairs
    match key:
        case "field_ref":
            return (value,)
        case "nested_field_ref":
            return tuple(name for _, name in others)
        case "literal":
            return columns[int(value)][0]
    return _expression(pairs, columns)


def _comparable(literal: pa.Array) -> pa.Array:
    """Return a literal, an array of length 1, as a type for which Arrow has kernels."""
    if isinstance(literal, pa.ExtensionArray):
        literal = literal.storage
    type_ = without_view(literal.type)
    if literal.null_count and type_ in _SMALL:
        # Arrow crashes when it casts a null of large text to another type.
        return pa.nulls(1, _SMALL[type_])
    return literal if type_ == literal.type else literal.cast(type_)


def _tree(pairs: list[Pair], batch: pa.RecordBatch) -> Term | None:
    with suppress(*_UNEXPECTED):
        return _term(pairs, batch)
    return None


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
    """A call while its arguments are parsed."""

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
        # The outermost `_Open` holds the whole expression, and counts as one level.
        if self.depth > MAX_DEPTH + 1:
            raise ValueError("an expression nested too deep")

    def closed(self) -> Call:
        return Call(self.function, tuple(self.arguments), self.options)


def _conjunct_spans(pairs: list[Pair]) -> Iterator[tuple[int, int]]:
    """Yield the range of pairs of each operand of the outermost conjunctions."""
    # Number of open calls, and of the outermost open calls that are all conjunctions.
    depth = outer = start = 0
    for index, (key, value) in enumerate(pairs):
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
            start = index
        depth += {"call": 1, "end": -1}.get(key, 0)
        if depth == outer:
            yield start, index + 1


def _pickled(expression: pc.Expression) -> tuple[list[Pair], pa.RecordBatch]:
    """Return the pairs of the tree, and the record batch of literals and options."""
    buffer = expression.__reduce__()[1][0]
    reader = pa.ipc.open_file(buffer)
    return list(_metadata(reader.schema)), reader.get_batch(0)


def _expression(pairs: list[Pair], columns: Sequence[pa.Array]) -> pc.Expression:
    """Return the expression that these pairs describe."""
    fields: list[pa.Field] = []
    arrays: list[pa.Array] = []
    numbered: list[Pair] = []
    for key, value in pairs:
        if key in _NUMBERED:
            # Copy only the columns to which these pairs refer.
            numbered.append((key, str(len(arrays))))
            arrays.append(columns[int(value)])
            fields.append(pa.field("", arrays[-1].type))
        else:
            numbered.append((key, value))
    schema = pa.schema(fields, metadata=pa.KeyValueMetadata(numbered))
    # One row, also without arrays.
    row = pa.RecordBatch.from_arrays([*arrays, pa.nulls(1)], names=[""] * (len(arrays) + 1))
    batch = row.select(range(len(arrays))).replace_schema_metadata(schema.metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(batch)
    return pc.Expression._deserialize(sink.getvalue())


def _metadata(schema: pa.Schema) -> Iterator[Pair]:
    """Yield all metadata in order, from the flatbuffer; pyarrow's dict drops repeated keys."""
    message = schema.serialize().to_pybytes()
    # The flatbuffer follows 4 bytes of continuation marker and 4 bytes of length.
    data = memoryview(message)[8:]

    def number(form: str, offset: int) -> int:
        (value,) = struct.unpack_from("<" + form, data, offset)
        return int(value)

    def target(offset: int) -> int:
        return offset + number("I", offset)

    def slot(table: int, field: int) -> int:
        """Return the offset of a field that the table has."""
        fields = table - number("i", table)
        return table + number("H", fields + 4 + 2 * field)

    def text(offset: int) -> str:
        start = target(offset) + 4
        return str(data[start : start + number("I", start - 4)], "utf-8")

    header = target(slot(target(0), _MESSAGE_HEADER))
    pairs = target(slot(header, _SCHEMA_METADATA))
    for offset in range(pairs + 4, pairs + 4 + 4 * number("I", pairs), 4):
        pair = target(offset)
        yield text(slot(pair, 0)), text(slot(pair, 1))
