"""Dtypes: the closed list of numpy dtypes that a file may name, and how it names them.

Knows nothing of files. A text of a file is never given to `np.dtype` before it matched a pattern.
"""

import ast
import re
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.lib import format as numpy_format

from blztable.errors import FormatError, SchemaError
from blztable.format.jsontext import Json

# A width of more digits is no width of an item in memory.
_PLAIN = re.compile(
    r"[<>|=]?(?:\?|b1|[iu][1248]|f[248]|c(?:8|16)|[SUV]\d{1,9}"
    r"|[mM]8(?:\[\d{0,9}(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?)"
)
# The names that the proposals and old versions of Bloscpack wrote.
_NAMES = {
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
}
_TOKEN = r"""\s*(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|\d{1,9}|[\[\](),])"""
_LITERAL = re.compile(f"(?:{_TOKEN})++\\s*")
_KINDS = "biufcSUVmM"
_STEPS = {"[": 1, "(": 1, "]": -1, ")": -1}
MAX_TEXT = 1 << 16
LAST_CHARACTER = 0x10FFFF
MAX_DEPTH = 16
MAX_ITEM_BYTES = 8 << 20


def text_of(dtype: np.dtype) -> str:
    """Return a dtype as Bloscpack names it: a literal of Python; SchemaError if it has no name."""
    try:
        text = repr(numpy_format.dtype_to_descr(dtype))
        is_kept = dtype_of(text) == dtype
    except (ValueError, FormatError):
        is_kept = False
    if not is_kept:
        raise SchemaError(
            f"dtype {str(dtype)[:200]} cannot be stored; expected numbers, booleans, times, bytes "
            "or text of fixed width, or a structured dtype of these"
        )
    return text


def dtype_of(value: Json) -> np.dtype:
    """Return the dtype that a file names; FormatError for any other."""
    if isinstance(value, str):
        value = _literal(value)
    dtype = _checked(_tuples(value), MAX_DEPTH)
    if dtype.itemsize > MAX_ITEM_BYTES:
        raise FormatError(f"an item has {dtype.itemsize} bytes; at most {MAX_ITEM_BYTES} are read")
    return dtype


def is_text(array: np.ndarray) -> bool:
    """False if a number in the text of an array is no character.

    Numpy raises SystemError at the first look at such an item.
    """
    if array.dtype.names:
        return all(is_text(array[name]) for name in array.dtype.names)
    if array.dtype.kind != "U" or not array.size:
        return True
    codes = np.dtype("u4").newbyteorder(array.dtype.byteorder)
    return bool(np.ascontiguousarray(array).reshape(-1).view(codes).max() <= LAST_CHARACTER)


def _literal(text: str) -> Json:
    """Return the value of a literal of texts, numbers, lists and tuples; a bare name as it is."""
    if text in _NAMES or _PLAIN.fullmatch(text):
        return text
    if len(text) > MAX_TEXT or not _LITERAL.fullmatch(text):
        raise _unknown(text)
    # Brackets within texts count too: a dtype has few.
    if max(accumulate(_STEPS.get(letter, 0) for letter in text)) > 4 * MAX_DEPTH:
        raise _unknown(text)
    try:
        value: Json = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        raise _unknown(text) from None
    return value


def _tuples(value: object) -> object:
    """Return fields as tuples; JSON has lists, as Bloscpack wrote them before 0.7.2."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], list | tuple):
        return [tuple(entry) if isinstance(entry, list | tuple) else entry for entry in value]
    return value


def _checked(value: object, depth: int) -> np.dtype:
    """Return the dtype of a name or of a list of fields; each part is checked before numpy."""
    if isinstance(value, str):
        if value not in _NAMES and not _PLAIN.fullmatch(value):
            raise _unknown(value)
        return _made(value, value)
    fields = _tuples(value)
    if not isinstance(fields, list) or not fields or not depth:
        raise _unknown(value)
    members = []
    for field in fields:
        match field:
            case (str(name), form):
                members.append((name, _checked(form, depth - 1)))
            case (str(name), form, int(count)) if type(count) is int:
                members.append((name, _with_shape(_checked(form, depth - 1), (count,))))
            case (str(name), form, tuple() | list() as shape):
                members.append((name, _with_shape(_checked(form, depth - 1), tuple(shape))))
            case _:
                raise _unknown(value)
    # An empty name is padding.
    names, formats, offsets, end = [], [], [], 0
    for name, dtype in members:
        if name or dtype.type is not np.void or dtype.names:
            names.append(name)
            formats.append(dtype)
            offsets.append(end)
        end += dtype.itemsize
        if end > MAX_ITEM_BYTES:
            raise FormatError(f"an item has more than {MAX_ITEM_BYTES} bytes")
    return _made({"names": names, "formats": formats, "offsets": offsets, "itemsize": end}, value)


def _with_shape(dtype: np.dtype, shape: tuple[object, ...]) -> np.dtype:
    size = dtype.itemsize
    for count in shape:
        if type(count) is not int or count < 0 or len(shape) > 8:
            raise _unknown(shape)
        size *= count
    if size > MAX_ITEM_BYTES:
        raise FormatError(f"a field has {size} bytes; at most {MAX_ITEM_BYTES} are read")
    return np.dtype((dtype, shape))


def _made(argument: Any, value: object) -> np.dtype:
    try:
        dtype = np.dtype(argument)
    except (ValueError, TypeError, OverflowError):
        raise _unknown(value) from None
    if not dtype.itemsize or dtype.kind not in _KINDS:
        raise _unknown(value)
    return dtype


def _unknown(value: object) -> FormatError:
    return FormatError(f"the file names the dtype {str(value)[:200]!r}, which is not supported")
