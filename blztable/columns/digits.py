"""Digits: floats with fewer significant decimal digits, which take fewer bytes.

Knows nothing of tables and files.

Theory of operation. A number between two powers of two is rounded to a multiple of a *step*, half
to even. The step is the greatest power of two that is at most one unit of the last digit kept, in
the lesser of the two powers. So the error is at most half of a unit of that digit, the lowest bits
become zero, and the step depends on the exponent alone. Rounding twice changes nothing more, and
the order of numbers stays. NaN, infinities, zeros and subnormal numbers are kept, and so is a
number that would become infinite.
"""

import math
from functools import cache

import numpy as np
import pyarrow as pa

from blztable.arrow.types import numbers_in

# More digits than a double has.
MAX_DIGITS = 17
# The bytes of a number, and the bits of its mantissa and exponent.
_FORMATS = {
    pa.lib.Type_HALF_FLOAT: (2, 10, 5),
    pa.lib.Type_FLOAT: (4, 23, 8),
    pa.lib.Type_DOUBLE: (8, 52, 11),
}
# Numbers rounded at a time, so that they stay in the cache.
_AT_ONCE = 1 << 14


def rounded(array: pa.Array, digits: int) -> pa.Array:
    """Return floats rounded to a number of significant decimal digits."""
    width, mantissa, exponent = _FORMATS[array.type.id]
    # A bitmap can be cut only between bytes.
    first = array.offset % 8
    start, count = array.offset - first, first + len(array)
    validity, data = array.buffers()
    words = numbers_in(data, f"<u{width}", start, count)
    steps = _dropped_bits(width, mantissa, exponent, digits)
    result = np.empty_like(words)
    for begin in range(0, count, _AT_ONCE):
        part = words[begin : begin + _AT_ONCE]
        result[begin : begin + _AT_ONCE] = _rounded(part, steps, mantissa, len(steps) - 1)
    buffers = [validity and validity.slice(start // 8), pa.py_buffer(result)]
    return pa.Array.from_buffers(array.type, len(array), buffers, array.null_count, first)


def _rounded(words: np.ndarray, steps: np.ndarray, mantissa: int, exponents: int) -> np.ndarray:
    """Return numbers, given as their bits, with the lowest bits rounded away."""
    unit, shift, mask = (words.dtype.type(number) for number in (1, mantissa, exponents))
    dropped = steps[(words >> shift) & mask]
    step = unit << dropped
    # Half of a step, or one bit less if the last bit kept is 0.
    even = (~words >> dropped) & (dropped > 0)
    above = (words + (step >> unit) - even) & -step
    # A carry into the exponent of infinity.
    infinite = (above >> shift) & mask == mask
    return np.where(infinite, words, above)


@cache
def _dropped_bits(width: int, mantissa: int, exponent: int, digits: int) -> np.ndarray:
    """Return the number of bits to round away, by the exponent of a number as it is stored."""
    bias = (1 << exponent - 1) - 1
    dropped = np.zeros(1 << exponent, f"<u{width}")
    # The first exponent is that of zero and of subnormal numbers, the last that of infinity.
    for stored in range(1, len(dropped) - 1):
        power = stored - bias
        last_digit = math.floor(power * math.log10(2)) - digits + 1
        step = math.floor(last_digit * math.log2(10))
        dropped[stored] = max(mantissa - power + step, 0)
    return dropped
