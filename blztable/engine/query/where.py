"""Where: a condition as text, `amt > 3 and day = '2026-01-02'`, as an expression of Arrow.

Knows the schema, because a literal becomes a value of the type of the column beside it. Nothing of
rows.

Theory of operation. The text is cut into tokens by one regular expression. A method for each rule
of the grammar takes the tokens it needs, and returns the expression:

    condition  = all-of, "or" all-of ...
    all-of     = one, "and" one ...
    one        = "not" one | "(" condition ")" | value [comparison]
    comparison = = == != <> < <= > >= value | "is" ["not"] "null" | ["not"] "in" "(" literals ")"
                 | ["not"] "between" literal "and" literal | ["not"] "like" or "ilike" text
    value      = literal | name "." name ...

A null is neither true nor false, as in SQL. Arrow's `is_in` is false for a null, so a `not` is
carried inwards to the comparisons, where it is known what it must say of nulls.
"""

import functools
import re
from collections.abc import Callable
from decimal import Decimal
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.nested.paths import value_of
from blztable.arrow.types import compared_type, is_text
from blztable.engine.query.expression_tree import MAX_DEPTH
from blztable.engine.query.literals import (
    Compare,
    ComparedColumn,
    among,
    compared,
    mirrored,
    operand_of,
    scalar_of,
)
from blztable.errors import SchemaError, check_encodes, no_column

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?!\w))
    | (?P<text>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<word>[^\W\d]\w*)
    | (?P<symbol><=|>=|<>|!=|==|[=<>(),.+-])
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_COMPARISONS = {
    **{"=": eq, "==": eq, "!=": ne, "<>": ne},
    **{"<": lt, "<=": le, ">": gt, ">=": ge},
}
WhereValue = str | int | Decimal | bool

_CONSTANTS = {"true": True, "false": False}
_WORDS = {"and", "or", "not", "in", "is", "null", "between", "like", "ilike", *_CONSTANTS}


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


def parse(text: str, schema: pa.Schema) -> pc.Expression:
    """Return the expression of a condition over the columns of a schema.

    Raises
    ------
    ValueError
        The text is no condition; the message has the place.
    ColumnNotFoundError
        The schema has no such column.
    SchemaError
        A literal is no value of the type of its column, or UTF-8 cannot encode the text.
    """
    check_encodes(text, "the condition")
    parser = _ConditionParser(text, schema)
    expression = parser.condition(negated=False)
    parser.expect("end", "", "and, or, the end")
    return expression


class _ConditionParser:
    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text, self._schema = text, schema
        self._depth = 0
        self._next = self._token(0)

    def condition(self, negated: bool) -> pc.Expression:
        return self._chain("or", self._all_of, and_ if negated else or_, negated)

    def _all_of(self, negated: bool) -> pc.Expression:
        return self._chain("and", self._one, or_ if negated else and_, negated)

    def _chain(
        self,
        word: str,
        part: Callable[[bool], pc.Expression],
        join: Callable[[pc.Expression, pc.Expression], pc.Expression],
        negated: bool,
    ) -> pc.Expression:
        parts = [part(negated)]
        while self._takes("word", word):
            parts.append(part(negated))
        # In pairs, so that the tree of a long chain is not as deep as the chain.
        while len(parts) > 1:
            parts = [functools.reduce(join, parts[at : at + 2]) for at in range(0, len(parts), 2)]
        return parts[0]

    def _one(self, negated: bool) -> pc.Expression:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} levels of parentheses and not", self._next)
        if self._takes("word", "not"):
            result = self._one(not negated)
        elif self._takes("symbol", "("):
            result = self.condition(negated)
            self.expect("symbol", ")", "and, or, )")
        else:
            result = self._comparison(negated)
        self._depth -= 1
        return result

    def _comparison(self, negated: bool) -> pc.Expression:
        start = self._next
        left = self._value()
        if self._next.kind == "symbol" and self._next.text in _COMPARISONS:
            compare = _COMPARISONS[self._take().text]
            operator, right = self._next, self._value()
            if not isinstance(left, ComparedColumn) and not isinstance(right, ComparedColumn):
                raise self._error("one side of a comparison must be a column", operator)
            return _negated(_compared(left, compare, right), negated)
        if not isinstance(left, ComparedColumn):
            if isinstance(left, bool):
                return pc.scalar(left is not negated)
            raise self._error("a condition begins with a column, not, or (", start)
        if self._takes("word", "is"):
            negated ^= self._takes("word", "not")
            self.expect("word", "null", "null" if negated else "null, not null")
            return left.expression.is_valid() if negated else left.expression.is_null()
        if self._next.kind == "word" and self._next.text.lower() == "not":
            self._take()
            test = self._test_of(left, not negated)
            return self._expected("in, between, like, ilike") if test is None else test
        test = self._test_of(left, negated)
        return _negated(left.expression, negated) if test is None else test

    def _test_of(self, column: ComparedColumn, negated: bool) -> pc.Expression | None:
        """Return the test by `in`, `between` or `like` that follows a column; None without one."""
        if self._takes("word", "in"):
            return self._in(column, negated)
        if self._takes("word", "between"):
            least = self._literal()
            self.expect("word", "and", "and")
            within = _compared(column, ge, least) & _compared(column, le, self._literal())
            return _negated(within, negated)
        for word in ("like", "ilike"):
            if self._takes("word", word):
                if not is_text(compared_type(column.type)):
                    raise SchemaError(
                        f"{word} needs a column of text; column {column.name!r} is {column.type}"
                    )
                pattern = _unquoted(self.expect("text", None, "a pattern in single quotes").text)
                return _negated(_like(column.expression, pattern, word == "ilike"), negated)
        return None

    def _in(self, column: ComparedColumn, negated: bool) -> pc.Expression:
        self.expect("symbol", "(", "(")
        values = [self._literal()]
        while self._takes("symbol", ","):
            values.append(self._literal())
        self.expect("symbol", ")", "a comma, )")
        test = among(column, [scalar_of(value, column) for value in values])
        return ~test & column.expression.is_valid() if negated else test

    def _value(self) -> ComparedColumn | WhereValue:
        is_name = self._next.kind == "quoted" or (
            self._next.kind == "word" and self._next.text.lower() not in _WORDS
        )
        return self._column() if is_name else self._literal()

    def _column(self) -> ComparedColumn:
        names = [self._name()]
        while self._takes("symbol", "."):
            names.append(self._name())
        indices = self._schema.get_all_field_indices(names[0])
        if len(names) > 1:
            field = value_of(self._schema, tuple(names))
            if field is None:
                raise no_column(".".join(names), self._schema.names)
            return ComparedColumn(".".join(names), pc.field(*field[0]), field[1])
        if not indices:
            raise no_column(names[0], self._schema.names)
        # The check of the expression refuses a name that several columns share.
        return ComparedColumn(names[0], pc.field(names[0]), self._schema.types[indices[0]])

    def _name(self) -> str:
        if self._next.kind == "quoted":
            return self._take().text[1:-1].replace('""', '"')
        return self.expect("word", None, "the name of a column").text

    def _literal(self) -> WhereValue:
        sign = next((sign for sign in "+-" if self._takes("symbol", sign)), "")
        token = self._next
        if token.kind == "number":
            return _number(sign + self._take().text)
        if token.kind == "text" and not sign:
            return _unquoted(self._take().text)
        if token.text.lower() in _CONSTANTS and not sign:
            return _CONSTANTS[self._take().text.lower()]
        if token.text.lower() == "null":
            raise self._error("nothing equals null; write `is null`", token)
        return self._expected("a number" if sign else "a column, a number, a text in single quotes")

    def expect(self, kind: str, text: str | None, expected: str) -> _Token:
        """Take a token of this kind and text; ValueError if the next one is another."""
        token = self._next
        if token.kind != kind or (text is not None and token.text.lower() != text):
            self._expected(expected)
        return self._take()

    def _takes(self, kind: str, text: str) -> bool:
        """Take the next token if it is this one."""
        is_this = self._next.kind == kind and self._next.text.lower() == text
        if is_this:
            self._take()
        return is_this

    def _take(self) -> _Token:
        token = self._next
        self._next = self._token(token.start + len(token.text))
        return token

    def _token(self, start: int) -> _Token:
        match = _TOKEN.match(self._text, start)
        if match is None:
            blank = re.compile(r"\s*").match(self._text, start)
            begin = blank.end() if blank else start
            unclosed = {"'": "a text without its end", '"': "a name without its end"}
            what = unclosed.get(self._text[begin], f"unexpected {self._text[begin]!r}")
            raise self._error(what, _Token("", "", begin))
        kind = match.lastgroup or ""
        return _Token(kind, match[kind], match.start(kind))

    def _expected(self, expected: str) -> NoReturn:
        token = repr(self._next.text) if self._next.text else "the end"
        raise self._error(f"expected {expected}; found {token}", self._next)

    def _error(self, message: str, token: _Token) -> ValueError:
        return ValueError(
            f"{self._text!r:.500} is no condition: {message}, at character {token.start + 1}"
        )


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _negated(expression: pc.Expression, negated: bool) -> pc.Expression:
    """Return a condition that is null where a value is, or its opposite."""
    return ~expression if negated else expression


def _like(column: pc.Expression, pattern: str, ignore_case: bool) -> pc.Expression:
    """Return the match of a pattern; one that only ends in `%` by a function that prunes."""
    prefix = pattern.removesuffix("%")
    if prefix != pattern and not ignore_case and not re.search(r"[%_\\]", prefix):
        return pc.starts_with(column, prefix)
    return pc.match_like(column, pattern, ignore_case=ignore_case)


def _number(text: str) -> int | Decimal:
    """Return an integer of any usual length as an int, which is faster; else a decimal."""
    return int(text) if len(text) < 20 and text.lstrip("+-").isdecimal() else Decimal(text)


def _compared(
    left: ComparedColumn | WhereValue, compare: Compare, right: ComparedColumn | WhereValue
) -> pc.Expression:
    """Return the comparison of two columns, or of a column and a literal."""
    if not isinstance(right, ComparedColumn):
        assert isinstance(left, ComparedColumn)
        return compared(left, compare, operand_of(right, left))
    if not isinstance(left, ComparedColumn):
        return compared(right, mirrored(compare), operand_of(left, right))
    return compare(left.expression, right.expression)
