"""Decimals: whether values have more digits than the precision of their type.

Arrow and its readers rely on it and do not look. Values that are not negative are nearly always
decided by the bitwise or of all of them, others by the least and the greatest of each 64-bit word:
numpy finds these at the speed of memory. The rest is compared exactly, word by word.
"""

import numpy as np
import pyarrow as pa

# Bytes of the rows that are compared side by side: numpy reduces long rows fastest.
_SIDE_BY_SIDE = 16384
_WORD = 64
# Values that are looked at to guess whether there are negative ones.
_FIRST = 64


def are_within(type_: pa.DataType, data: np.ndarray) -> bool:
    """True if all values of a decimal type, as bytes, have at most as many digits as it says."""
    if not len(data):
        return True
    bound = 10**type_.precision - 1
    if type_.bit_width <= _WORD:
        values = data.view(f"<i{type_.byte_width}")
        return bool(-bound <= values.min() and values.max() <= bound)
    count = type_.byte_width // 8
    words = data.view("<i8").reshape(-1, count)
    # Where one of the first is negative, the bits of all decide nothing.
    if words[:_FIRST, -1].min() >= 0:
        (bits,) = _reduced(words, np.bitwise_or)
        # No value that is not negative is greater than all bits that any of them has.
        if 0 <= _number(bits) <= bound:
            return True
    # The highest word that the bound has with its sign; those above it repeat the sign.
    place = bound.bit_length() // _WORD
    # Words strictly between these are within: at those of the bounds the words below decide.
    top = bound >> _WORD * place if place else bound + 1
    bottom = ~top if place else -top
    least, greatest = _reduced(words, np.minimum, np.maximum)
    is_inside = bottom < least[place] and greatest[place] < top
    if is_inside and _are_signs(words, place, least, greatest):
        return True
    # A bound that reaches into this word is greater than any number of the words below.
    if place > 0 and _are_signs(words, place - 1, least, greatest):
        return True
    return place > 0 and not (_is_any_over(words, bound) or _is_any_over(~words, bound - 1))


def _number(words: list[int]) -> int:
    """The number of these words, the lowest first."""
    *lower, highest = words
    number = highest
    for word in reversed(lower):
        number = number << _WORD | word % (1 << _WORD)
    return number


def _reduced(words: np.ndarray, *functions: np.ufunc) -> list[list[int]]:
    """Each word of all values reduced by each function."""
    count = words.shape[1]
    step = _SIDE_BY_SIDE // 8 // count
    whole = len(words) // step * step
    parts = [words[:whole].reshape(-1, step * count), words[whole:]]
    results = []
    for function in functions:
        found = [function.reduce(part).reshape(-1, count) for part in parts if len(part)]
        results.append(function.reduce(np.concatenate(found)).tolist())
    return results


def _are_signs(words: np.ndarray, place: int, least: list[int], greatest: list[int]) -> bool:
    """Whether all words above this one are nothing but its sign."""
    above = range(place + 1, words.shape[1])
    if any(least[other] < -1 or greatest[other] > 0 for other in above):
        return False
    if min(least[place:]) >= 0 or max(greatest[place:]) < 0:
        return True
    return all(bool((words[:, place] ^ words[:, other]).min() >= 0) for other in above)


def _is_any_over(words: np.ndarray, bound: int) -> bool:
    """Whether any value is greater than a bound that is not negative."""
    count = words.shape[1]
    over = np.zeros(len(words), np.bool_)
    equal = np.ones(len(words), np.bool_)
    for place in reversed(range(count)):
        limit = bound >> _WORD * place & (1 << _WORD) - 1
        word = words[:, place]
        if place == count - 1:
            over, equal = word > limit, word == limit
        else:
            word = word.view(np.uint64)
            over |= equal & (word > np.uint64(limit))
            equal &= word == np.uint64(limit)
    return bool(over.any())
