"""Inference: the type of a column of text, from the kinds of all of its values.

Knows only arrays: no files and no tables.

Theory of operation. `TextKinds` collects which kinds of values a column has; the type follows from
the set of kinds alone, so neither the order of the values nor the place where a file is cut
matters. `TextKinds.read` first converts a block of values to the present type. The conversion is a
proof: it fails if a value would change. Only if it fails, the kinds of the block are looked at one
by one, and the caller begins again with the wider type. The set only grows, so this ends.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Flag, auto

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blztable.arrow.types import float_limit

DIGITS = 38  # of a decimal128
# From here on, a double does not hold every integer.
DOUBLE_LIMIT = 1 << 53
_SAMPLE = 64


class TextKind(Flag):
    """Kinds of values, by what a type must be able to hold."""

    TEXT = auto()
    BOOLEAN = auto()
    TIME = auto()
    DATE = auto()
    NAIVE = auto()
    NAIVE_NS = auto()
    AWARE = auto()
    AWARE_NS = auto()
    # A date or a time that nanoseconds cannot hold.
    FAR = auto()
    INTEGER = auto()
    NEGATIVE = auto()
    # From 2**63 to 2**64 - 1.
    UNSIGNED = auto()
    # Longer than 64 bits, up to 38 digits.
    LONG = auto()
    # A number whose integer digits a double would change.
    INEXACT = auto()
    REAL = auto()
    # With an exponent; infinity and NaN too.
    EXPONENT = auto()
    STRUCT = auto()
    LIST = auto()


NOTHING = TextKind(0)
NUMBERS = (
    *(TextKind.INTEGER | TextKind.NEGATIVE | TextKind.UNSIGNED | TextKind.LONG),
    *(TextKind.INEXACT | TextKind.REAL | TextKind.EXPONENT),
)
NUMBER = TextKind(sum(kind.value for kind in NUMBERS))
_NAIVE = TextKind.DATE | TextKind.NAIVE | TextKind.NAIVE_NS | TextKind.FAR
_AWARE = TextKind.AWARE | TextKind.AWARE_NS | TextKind.FAR
MOMENT = _NAIVE | _AWARE
ANY = TextKind.TEXT | TextKind.BOOLEAN | TextKind.TIME | MOMENT | NUMBER

_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[ T][0-9]{2}(:?[0-9]{2}(:?[0-9]{2})?)?"
_ZONE = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
_FRACTION = r"\.[0-9]{1,9}"
_SHAPES = {
    TextKind.BOOLEAN: "^(true|True|TRUE|false|False|FALSE)$",
    TextKind.TIME: "^[0-9]{2}:[0-9]{2}(:[0-9]{2})?$",
    TextKind.DATE: f"^{_DAY}$",
    TextKind.NAIVE: f"^{_DAY}{_CLOCK}$",
    TextKind.NAIVE_NS: f"^{_DAY}{_CLOCK}{_FRACTION}$",
    TextKind.AWARE: f"^{_DAY}{_CLOCK}{_ZONE}$",
    TextKind.AWARE_NS: f"^{_DAY}{_CLOCK}{_FRACTION}{_ZONE}$",
}
_TYPES = {
    TextKind.BOOLEAN: pa.bool_(),
    TextKind.TIME: pa.time32("s"),
    TextKind.DATE: pa.date32(),
    TextKind.NAIVE: pa.timestamp("s"),
    TextKind.NAIVE_NS: pa.timestamp("ns"),
    TextKind.AWARE: pa.timestamp("s", "UTC"),
    TextKind.AWARE_NS: pa.timestamp("ns", "UTC"),
}
_WORDS = r"(?i:inf|infinity|nan)"
# Leading zeros are no number: they would be lost.
_PLAIN = r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)"
_NUMBER_SHAPE = f"^(?:{_PLAIN}(?:[eE][+-]?[0-9]+)?|-?{_WORDS})$"
_NUMBER = re.compile(r"(-?)([0-9]*)(?:\.([0-9]*))?([eE].*)?")


@dataclass
class TextKinds:
    """The kinds of the values of a column, of a field, or of the items of a list.

    Attributes
    ----------
    fixed
        The type that the table or an option says, which is never widened.
    is_given
        True if an option says it: then a float may round an integer.
    digits, places
        Most digits before and behind the point, of the numbers that were looked at one by one.
    fields, items
        The kinds below structs and lists.
    expected
        The kinds of fields that no row had yet.
    is_text
        True if JSON has texts here, which Arrow would take for times.
    """

    flags: TextKind = NOTHING
    fixed: pa.DataType | None = None
    is_given: bool = False
    digits: int = 0
    places: int = 0
    fields: dict[str, "TextKinds"] = field(default_factory=dict)
    items: "TextKinds | None" = None
    expected: dict[str, "TextKinds"] = field(default_factory=dict)
    is_text: bool = False

    @staticmethod
    def of(type_: pa.DataType, is_given: bool = False) -> "TextKinds":
        """Return the kinds of values of a type that is known; any value may go where it is null."""
        types = pa.types
        if types.is_null(type_):
            return TextKinds()
        if types.is_struct(type_):
            return TextKinds(
                TextKind.STRUCT, fields={each.name: TextKinds.of(each.type) for each in type_}
            )
        if types.is_list(type_):
            return TextKinds(TextKind.LIST, items=TextKinds.of(type_.value_type))
        if types.is_dictionary(type_):
            type_ = type_.value_type
        return TextKinds(fixed=type_, is_given=is_given)

    def child(self, name: str) -> "TextKinds":
        """Return the kinds of a field, which a row has."""
        if name not in self.fields:
            self.fields[name] = self.expected.get(name) or TextKinds()
        return self.fields[name]

    @property
    def type(self) -> pa.DataType:
        """The type that holds all values without a change."""
        flags = self.flags
        if self.fixed is not None:
            return self.fixed
        if TextKind.STRUCT in flags:
            return pa.struct([(name, kinds.type) for name, kinds in self.fields.items()])
        if self.items is not None:
            return pa.list_(self.items.type)
        if not flags:
            return pa.null()
        if flags in NUMBER:
            return self._number_type()
        for kind in (TextKind.BOOLEAN, TextKind.TIME):
            if flags == kind:
                return _TYPES[kind]
        if flags in TextKind.DATE | TextKind.FAR:
            return pa.date32()
        for moments, fine, coarse in (
            (_NAIVE, TextKind.NAIVE_NS, TextKind.NAIVE),
            (_AWARE, TextKind.AWARE_NS, TextKind.AWARE),
        ):
            if flags in moments and not (fine in flags and TextKind.FAR in flags):
                return _TYPES[fine if fine in flags else coarse]
        return pa.string()

    def _number_type(self) -> pa.DataType:
        flags = self.flags
        if not flags & (TextKind.REAL | TextKind.EXPONENT):
            if TextKind.LONG in flags or TextKind.UNSIGNED | TextKind.NEGATIVE in flags:
                return pa.decimal128(DIGITS, 0)
            return pa.uint64() if TextKind.UNSIGNED in flags else pa.int64()
        if TextKind.INEXACT not in flags:
            return pa.float64()
        if TextKind.EXPONENT in flags or self.digits + self.places > DIGITS:
            return pa.string()
        return pa.decimal128(DIGITS, self.places)

    def read(self, texts: pa.Array, among: TextKind = ANY, point: str = ".") -> pa.Array:
        """Return values of the type; where they do not fit, look at them: the type is wider then.

        `among` are the kinds that a text may have, beside that of a text; `point` is what stands
        before the places of a number.
        """
        if texts.null_count == len(texts):
            return pa.nulls(len(texts), self.type)
        if self.fixed is not None:
            return self._fixed_values(texts, self.fixed, point)
        before = self.type
        # A few values nearly always have the kinds of all.
        for count in (_SAMPLE, len(texts)):
            try:
                if pa.types.is_decimal(self.type) and TextKind.REAL not in self.flags:
                    # 0.0 fits, but a column with fractions may be one of doubles.
                    _refuse(pc.match_substring(texts, point))
                return _converted(texts, self.type, point)
            except pa.ArrowInvalid:
                self._look(texts.drop_null()[:count], among, point)
        if self.type == before:
            self.flags |= TextKind.TEXT
        return pa.nulls(len(texts), self.type)

    def _fixed_values(self, texts: pa.Array, type_: pa.DataType, point: str) -> pa.Array:
        plain = _plain(texts, point)
        if pa.types.is_decimal(type_):
            return _decimals(plain, type_)
        if pa.types.is_integer(type_):
            try:
                return plain.cast(type_)
            except pa.ArrowInvalid:
                # Arrow takes a plus before a fraction only.
                return pc.replace_substring_regex(plain, r"^\+([0-9]+)$", r"\1").cast(type_)
        if not pa.types.is_floating(type_):
            return texts.cast(type_)
        values = plain.cast(type_)
        if not self.is_given:
            check_floats(plain, values)
        return values

    def _look(self, texts: pa.Array, among: TextKind, point: str) -> None:
        """Add the kinds of the values."""
        masks = dict(_masks(texts, among, point))
        if not pc.all(_any(masks.values(), len(texts))).as_py():
            self.flags |= TextKind.TEXT
            return
        for kind, mask in masks.items():
            values = texts.filter(mask)
            if not len(values):
                continue
            if kind in NUMBER:
                self.look_at_numbers(pc.unique(_plain(values, point)).to_pylist())
            else:
                self._look_at_times(values, kind)

    def look_at_numbers(self, texts: Iterable[str]) -> None:
        """Add the kinds of numbers, each looked at alone."""
        for text in texts:
            match = _NUMBER.fullmatch(text)
            if match is None or match[4]:
                self.flags |= TextKind.EXPONENT
                if match and np.isinf(float(text)):
                    # 1e400 is a number, but no double.
                    self.flags |= TextKind.TEXT
                continue
            sign, whole, fraction, _ = match.groups()
            self.digits = max(self.digits, len(whole))
            self.places = max(self.places, len((fraction or "").rstrip("0")))
            number = int(sign + (whole or "0"))
            if not _is_exact(number, text, pa.float64()):
                self.flags |= TextKind.INEXACT
            if len(whole) > DIGITS:
                self.flags |= TextKind.LONG | TextKind.TEXT
            elif fraction is not None:
                self.flags |= TextKind.REAL
            elif -(1 << 63) <= number < 1 << 63:
                self.flags |= TextKind.INTEGER
            else:
                is_unsigned = 0 < number < 1 << 64
                self.flags |= TextKind.UNSIGNED if is_unsigned else TextKind.LONG
            if sign:
                # Of -0 too: no unsigned integer is read from it.
                self.flags |= TextKind.NEGATIVE

    def _look_at_times(self, values: pa.Array, kind: TextKind) -> None:
        try:
            _converted(values, _TYPES[kind])
            self.flags |= kind
        except pa.ArrowInvalid:
            # No such day, or hour.
            self.flags |= TextKind.TEXT
            return
        if kind in MOMENT:
            fine = _TYPES[TextKind.AWARE_NS if kind in _AWARE else TextKind.NAIVE_NS]
            try:
                _converted(values, fine)
            except pa.ArrowInvalid:
                self.flags |= TextKind.FAR


def _masks(texts: pa.Array, among: TextKind, point: str) -> Iterable[tuple[TextKind, pa.Array]]:
    for kind, shape in _SHAPES.items():
        if kind in among:
            yield kind, pc.match_substring_regex(texts, shape)
    if among & NUMBER:
        yield TextKind.INTEGER, pc.match_substring_regex(_plain(texts, point), _NUMBER_SHAPE)


def _any(masks: Iterable[pa.Array], length: int) -> pa.Array:
    matches = pa.repeat(pa.scalar(False), length)
    for mask in masks:
        matches = pc.or_(matches, mask)
    return matches


def _plain(texts: pa.Array, point: str) -> pa.Array:
    """Return numbers without the blanks around them, and with a point before their places."""
    texts = pc.ascii_trim(texts, " \t")
    if point == ".":
        return texts
    # A point is no part of a number then.
    return pc.replace_substring(pc.replace_substring(texts, ".", "_"), point, ".")


def _converted(texts: pa.Array, type_: pa.DataType, point: str = ".") -> pa.Array:
    """Return texts as values of an inferred type; raise ArrowInvalid if one would change."""
    types = pa.types
    if types.is_string(type_):
        return texts
    if types.is_null(type_) or types.is_nested(type_):
        raise pa.ArrowInvalid(f"a text is no {type_}")
    if types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_):
        if point == ".":
            try:
                return _all_or_none(texts, type_, _numbers)
            except pa.ArrowInvalid:
                pass
        return _all_or_none(_plain(texts, point), type_, _numbers)
    return _all_or_none(texts, type_, _others)


def _all_or_none(
    texts: pa.Array, type_: pa.DataType, convert: Callable[[pa.Array, pa.DataType], pa.Array]
) -> pa.Array:
    """Return what `convert` returns for all values; a few come first, as each error costs time."""
    convert(texts[:_SAMPLE], type_)
    return convert(texts, type_)


def _others(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(type_):
        _refuse(pc.invert(pc.match_substring_regex(texts, _SHAPES[TextKind.BOOLEAN])))
    if pa.types.is_time(type_):
        _refuse(pc.invert(pc.match_substring_regex(texts, _SHAPES[TextKind.TIME])))
        # Arrow has no cast from text to a time of day.
        day = pc.binary_join_element_wise("1970-01-01T", texts, "")
        return day.cast(pa.timestamp("s")).cast(type_)
    return texts.cast(type_)


def _numbers(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(type_):
        _refuse(pc.invert(pc.match_substring_regex(texts, f"^(?:{_PLAIN})$")))
        return _decimals(texts, type_)
    values = texts.cast(type_)
    _check_zeros(texts)
    if pa.types.is_floating(type_) and check_floats(texts, values) >= 10**DIGITS:
        # Text alone, so text beside fractions too: types do not depend on what comes first.
        _refuse(pc.match_substring_regex(texts, f"^-?[0-9]{{{DIGITS + 1},}}"))
    return values


def _check_zeros(texts: pa.Array) -> None:
    """Raise ArrowInvalid for numbers with leading zeros, and for hexadecimal ones."""
    _, ends, chars = texts.buffers()
    if chars is None or not chars.size:
        return
    # numpy looks at single bytes in a fraction of the time of Arrow's functions of texts.
    data = np.frombuffer(chars, np.uint8)
    bounds = np.frombuffer(ends, np.int32)[texts.offset :][: len(texts) + 1]
    begins = bounds[:-1]
    first = data.take(begins, mode="clip")
    is_negative = first == ord("-")
    if is_negative.any():
        begins = begins + is_negative
        first = data.take(begins, mode="clip")
    second = data[begins[(first == ord("0")) & (bounds[1:] - begins > 1)] + 1]
    # Nearly all of these are 0.5.
    odd = second[second != ord(".")]
    if len(odd) and not np.isin(odd, np.frombuffer(b"eE", np.uint8)).all():
        raise pa.ArrowInvalid("a number has leading zeros")


def _decimals(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    # Arrow does not see that a number overflows the integer of a decimal.
    limit = 76 if pa.types.is_decimal256(type_) else DIGITS
    is_short = pc.match_substring_regex(texts, rf"^[+-]?0*\.?([0-9]\.?){{0,{limit}}}([eE].*)?$")
    # What is no number is refused below.
    is_number = pc.match_substring_regex(texts, r"^[+-]?[0-9.]+([eE].*)?$")
    _refuse(pc.and_not(is_number, is_short), f"a number of more than {limit} digits is no {type_}")
    return texts.cast(type_)


def check_floats(texts: pa.Array, values: pa.Array) -> float:
    """Return the largest absolute value; ArrowInvalid if the integer digits of one are others."""
    type_, words = values.type, f"^-?{_WORDS}$"
    limit = float_limit(type_)
    floats = np.frombuffer(values.buffers()[1], values.type.to_pandas_dtype())
    largest = float(np.abs(floats[values.offset :][: len(values)]).max(initial=0))
    # NaN is not less.
    if largest < limit:
        return largest
    # Arrow does not compare half floats.
    values = values.cast(pa.float64())
    if pc.any(pc.is_nan(values)).as_py():
        _refuse(pc.invert(pc.match_substring_regex(texts.filter(pc.is_nan(values)), words)))
    bounds = pc.min_max(values, skip_nulls=True).as_py()
    largest = max(-(bounds["min"] or 0), bounds["max"] or 0)
    doubtful = pc.greater_equal(pc.abs(values), pa.scalar(limit, pa.float64()))
    texts, values = texts.filter(doubtful), values.filter(doubtful)
    # No word says infinity, but a number is too large.
    is_word = pc.match_substring_regex(texts, words)
    _refuse(pc.and_not(pc.is_inf(values), is_word), f"a number is too large for {type_}")
    for text in pc.unique(texts.filter(pc.invert(is_word))).to_pylist():
        match = _NUMBER.fullmatch(text)
        if match and not match[4] and not _is_exact(int(match[1] + (match[2] or "0")), text, type_):
            raise pa.ArrowInvalid(
                f"{type_} would change the digits of {text}; --dtype of the column with this "
                "type lets it"
            )
    return largest


def _is_exact(number: int, text: str, type_: pa.DataType) -> bool:
    """True if a float has the integer digits of a number, unless its places were rounded up."""
    with np.errstate(over="ignore"):
        value = float(type_.to_pandas_dtype()(text))
    return abs(value) < float_limit(type_) or (np.isfinite(value) and int(value) == number)


def _refuse(mask: pa.Array, message: str = "a value would change") -> None:
    if pc.any(mask).as_py():
        raise pa.ArrowInvalid(message)
