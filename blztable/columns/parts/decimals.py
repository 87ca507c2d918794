"""Decimals: check that no value has more digits than the precision of its type.

Arrow and its readers rely on the precision and do not check it. The check has three steps, fastest
first. If no value is negative, the bitwise or of all values is an upper limit of them. Otherwise
the minimum and the maximum of each 64-bit word nearly always decide; numpy computes them at the
speed of memory. The remaining values are compared exactly, word by word.
"""

import numpy as np
import pyarrow as pa

# Number of bytes of a row of the reduced matrix: numpy reduces long rows fastest.
_SIDE_BY_SIDE = 16384
_WORD = 64
# Number of leading values that are tested for a negative one, to guess about the others.
_FIRST = 64


def are_within(type_: pa.DataType, data: np.ndarray) -> bool:
    """True if all values, given as bytes, have at most as many digits as the precision."""
    if not len(data):
        return True
    bound = 10**type_.precision - 1
    if type_.bit_width <= _WORD:
        values = data.view(f"<i{type_.byte_width}")
        return bool(-bound <= values.min() and values.max() <= bound)
    count = type_.byte_width // 8
    words = data.view("<i8").reshape(-1, count)
    # If a value is negative, the bitwise or is no upper limit.
    if words[:_FIRST, -1].min() >= 0:
        (bits,) = _reduced(words, np.bitwise_or)
        # No value exceeds the bitwise or of all values.
        if 0 <= _number(bits) <= bound:
            return True
    # Index of the highest word of the bound, with its sign; the words above only repeat the sign.
    word = bound.bit_length() // _WORD
    # A word strictly between these is within the bounds; if it equals one, lower words decide.
    top = bound >> _WORD * word if word else bound + 1
    bottom = ~top if word else -top
    least, greatest = _reduced(words, np.minimum, np.maximum)
    is_inside = bottom < least[word] and greatest[word] < top
    if is_inside and _are_signs(words, word, least, greatest):
        return True
    # The bound exceeds every number that the lower words alone can represent.
    if word > 0 and _are_signs(words, word - 1, least, greatest):
        return True
    return word > 0 and not (_is_any_over(words, bound) or _is_any_over(~words, bound - 1))


def _number(words: list[int]) -> int:
    """Return the number that these words represent, the lowest word first."""
    *lower, highest = words
    number = highest
    for word in reversed(lower):
        number = number << _WORD | word % (1 << _WORD)
    return number


def _reduced(words: np.ndarray, *functions: np.ufunc) -> list[list[int]]:
    """Return for each function its reduction over all values, word by word."""
    count = words.shape[1]
    step = _SIDE_BY_SIDE // 8 // count
    whole = len(words) // step * step
    parts = [words[:whole].reshape(-1, step * count), words[whole:]]
    results = []
    for function in functions:
        reduced = [function.reduce(part).reshape(-1, count) for part in parts if len(part)]
        results.append(function.reduce(np.concatenate(reduced)).tolist())
    return results


def _are_signs(words: np.ndarray, word: int, least: list[int], greatest: list[int]) -> bool:
    """True if all words above this one only repeat its sign."""
    above = range(word + 1, words.shape[1])
    if any(least[other] < -1 or greatest[other] > 0 for other in above):
        return False
    if min(least[word:]) >= 0 or max(greatest[word:]) < 0:
        return True
    return all(bool((words[:, word] ^ words[:, other]).min() >= 0) for other in above)


def _is_any_over(words: np.ndarray, bound: int) -> bool:
    """True if any value is greater than a bound that is not negative."""
    count = words.shape[1]
    over = np.zeros(len(words), np.bool_)
    equal = np.ones(len(words), np.bool_)
    for number in reversed(range(count)):
        limit = bound >> _WORD * number & (1 << _WORD) - 1
        word = words[:, number]
        if number == count - 1:
            over, equal = word > limit, word == limit
        else:
            word = word.view(np.uint64)
            over |= equal & (word > np.uint64(limit))
            equal &= word == np.uint64(limit)
    return bool(over.any())
