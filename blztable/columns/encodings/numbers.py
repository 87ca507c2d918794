"""Encodings of numbers: narrow, scaled and delta.

`Narrow` keeps the distance of each value from the base of its page in 1, 2 or 4 bytes. `Scaled`
does the same with floats that have few decimals, as whole numbers of 10**-power. `Delta` keeps the
distance from one value to the next. Sums wrap, so any codes are values.

Bases and firsts are kept in JSON as base64 of 64-bit integers.

Knows numpy's numbers, and of Arrow types only how wide they are.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from blztable.columns.blocks import Encoding, StreamLayout
from blztable.errors import CorruptError


def words_to_json(words: np.ndarray) -> str:
    """Return 64-bit integers as base64; JSON numbers of the format end at 2**62."""
    return base64.b64encode(words.astype("<i8", copy=False).tobytes()).decode()


def words_from_json(value: object, name: str, counts: Sequence[int]) -> np.ndarray:
    """Read 64-bit integers; CorruptError unless there are as many as one of `counts`."""
    try:
        data = base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        data = None
    if data is None or len(data) % 8 or len(data) // 8 not in counts:
        raise CorruptError(f"{name} of an encoding; expected base64 of {counts[-1]} integers")
    return np.frombuffer(data, "<i8")


# Rows that are decoded at once, so that they stay in the cache.
STEP_ROWS = 1 << 17
# By these floats codes are multiplied or divided; they are never computed from a file.
POWERS = tuple(10.0**power for power in range(19))
INVERSES = tuple(float(f"1e-{power}") for power in range(19))
FORMS = ("/", "*")
# The bits of NaN, which may have a code of its own.
NAN = int(np.array(np.nan, "<f8").view("<u8"))
# Values of a part that may be odd.
MOST_ODD = 4096


@lru_cache(16)
def codes_layout(name: str, width: int) -> StreamLayout:
    """Return the form of a stream of codes of 1, 2 or 4 bytes.

    Blosc shuffles the bits of four bytes at a time twice as fast as those of one, to the same size.
    """
    return StreamLayout(name, {1: "|u1", 2: "<u2", 4: "<u4"}[width], 4, 8 * width, "bit")


@dataclass(frozen=True, slots=True)
class Narrow(Encoding):
    """Integers as their distances from a base.

    Attributes
    ----------
    stored
        The form of the codes.
    width
        The bytes of a value.
    bases
        The base of each page as i64, or one base for all.
    page_rows
        Rows of a page.
    """

    kind: ClassVar[str] = "narrow"

    stored: StreamLayout
    width: int
    bases: np.ndarray
    page_rows: int

    @property
    def is_identity(self) -> bool:
        """True if all bases are 0."""
        return not self.bases.any()

    def parameters(self) -> Mapping[str, object]:
        """Return the bases."""
        return {"bases": words_to_json(self.bases)}

    def shared(self) -> tuple[Mapping[str, object], int]:
        """Return no parameters, and the base."""
        (base,) = self.bases.tolist()
        return {}, base

    def rebased(self, base: int) -> "Narrow":
        """Return the encoding with this base."""
        return type(self)(self.stored, self.width, np.array([base], "<i8"), self.page_rows)

    def decode(self, row: int, codes: np.ndarray, out: np.ndarray) -> None:
        """Add the base of its page to each code."""
        values = out.view(f"<u{self.width}")
        for start, stop, base in _steps(row, codes, self):
            part = values[start:stop]
            np.copyto(part, codes.view(self.stored.dtype)[start:stop], casting="unsafe")
            if base:
                part += _wrapped(base, part.dtype)

    def pick(self, rows: np.ndarray, codes: np.ndarray, out: np.ndarray) -> None:
        """Add the base of its page to each code."""
        values = out.view(f"<u{self.width}")
        np.copyto(values, codes.view(self.stored.dtype), casting="unsafe")
        values += _bases_of(rows, self).astype(values.dtype)

    def values_of_codes(self, type_: pa.DataType, most: int) -> pa.Array | None:
        """Return the values, if all pages have one base."""
        return _values_of_codes(self, type_, most)


@dataclass(frozen=True, slots=True)
class Wide(Narrow):
    """Integers of 128 bits that have no more than 64, as decimals mostly are."""

    def decode(self, row: int, codes: np.ndarray, out: np.ndarray) -> None:
        """Add the base of its page to each code, and repeat the sign in the upper half."""
        words = out.view("<i8").reshape(-1, 2)
        for start, stop, base in _steps(row, codes, self):
            low = words[start:stop, 0]
            np.add(codes.view(self.stored.dtype)[start:stop], np.int64(base), out=low)
            if 0 <= base < 1 << 62:
                words[start:stop, 1] = 0
            else:
                np.right_shift(low, 63, out=words[start:stop, 1])

    def pick(self, rows: np.ndarray, codes: np.ndarray, out: np.ndarray) -> None:
        """Add the base of its page to each code, and repeat the sign in the upper half."""
        words = out.view("<i8").reshape(-1, 2)
        words[:, 0] = codes.view(self.stored.dtype)
        words[:, 0] += _bases_of(rows, self)
        np.right_shift(words[:, 0], 63, out=words[:, 1])


def _none() -> np.ndarray:
    return np.empty(0, "<i8")


@dataclass(frozen=True, slots=True)
class Scaled(Encoding):
    """Doubles as whole numbers of 10**-power, each as its distance from a base.

    Attributes
    ----------
    power
        The number of decimals, 0 to 18.
    form
        "/" if a value is `number / 10**power`, which is correctly rounded, as text is read; "*" if
        it is `number * 10**-power`, as Arrow makes it of a decimal.
    at, odd
        The rows, ascending, whose values are no such numbers (-0.0), and their bits as i64.
    nan
        The code that stands for NaN; None if none does.
    """

    kind: ClassVar[str] = "scaled"

    stored: StreamLayout
    power: int
    form: str
    bases: np.ndarray
    page_rows: int
    at: np.ndarray = field(default_factory=_none)
    odd: np.ndarray = field(default_factory=_none)
    nan: int | None = None

    @property
    def has_all_nans(self) -> bool:
        """True if NaN has a code, and no odd value is one."""
        return self.nan is not None and not np.isnan(self.odd.view("<f8")).any()

    def parameters(self) -> Mapping[str, object]:
        """Return power, form, bases, the code of NaN, and the odd values if there are any."""
        return {**self._without_bases(), "bases": words_to_json(self.bases)}

    def shared(self) -> tuple[Mapping[str, object], int]:
        """Return all parameters but the base, and the base."""
        (base,) = self.bases.tolist()
        return self._without_bases(), base

    def rebased(self, base: int) -> "Scaled":
        """Return the encoding with this base."""
        return replace(self, bases=np.array([base], "<i8"))

    def _without_bases(self) -> dict[str, object]:
        result: dict[str, object] = {"power": self.power, "form": self.form}
        if self.nan is not None:
            result["nan"] = self.nan
        if len(self.at):
            result |= {"at": words_to_json(self.at), "odd": words_to_json(self.odd)}
        return result

    def decode(self, row: int, codes: np.ndarray, out: np.ndarray) -> None:
        """Add the base of its page to each code, and divide or multiply."""
        values = out.view("<f8")
        for start, stop, base in _steps(row, codes, self):
            part, some = values[start:stop], codes.view(self.stored.dtype)[start:stop]
            # Codes of 4 bytes and bases up to 2**53 are exact as floats; others only wrong.
            np.copyto(part, some, casting="unsafe")
            if base:
                part += float(base)
            self.scale(part)
            if self.nan is not None:
                # All these rows have the same bits. To flip them takes half the time of writing
                # NaN to scattered rows.
                found = self.scale(np.array([float(self.nan) + base]))
                flips = np.uint64(int(found.view("<u8")[0]) ^ NAN)
                part.view("<u8")[:] ^= np.multiply(some == self.nan, flips)
        first, last = np.searchsorted(self.at, [row, row + len(values)])
        values.view("<i8")[self.at[first:last] - row] = self.odd[first:last]

    def pick(self, rows: np.ndarray, codes: np.ndarray, out: np.ndarray) -> None:
        """Add the base of its page to each code, and divide or multiply."""
        values = out.view("<f8")
        np.copyto(values, codes.view(self.stored.dtype), casting="unsafe")
        values += _bases_of(rows, self)
        self.scale(values)
        if self.nan is not None:
            values[codes.view(self.stored.dtype) == self.nan] = np.nan
        if len(self.at):
            places = np.minimum(np.searchsorted(self.at, rows), len(self.at) - 1)
            is_odd = self.at[places] == rows
            values.view("<i8")[is_odd] = self.odd[places[is_odd]]

    def values_of_codes(self, type_: pa.DataType, most: int) -> pa.Array | None:
        """Return the values, if all pages have one base and no value is odd."""
        return None if len(self.at) else _values_of_codes(self, type_, most)

    def scale(self, part: np.ndarray) -> np.ndarray:
        """Turn whole numbers into the values, in place."""
        if self.power and self.form == "/":
            part /= POWERS[self.power]
        elif self.power:
            part *= INVERSES[self.power]
        return part


@dataclass(frozen=True, slots=True)
class Delta(Encoding):
    """Integers as their distances from the value before, less the least of these distances.

    Attributes
    ----------
    firsts
        The first value of each page as i64.
    least
        The least distance as i64; the code of the first row of a page is not used.
    """

    kind: ClassVar[str] = "delta"
    needs_pages: ClassVar[bool] = True

    stored: StreamLayout
    width: int
    firsts: np.ndarray
    least: np.ndarray
    page_rows: int

    def parameters(self) -> Mapping[str, object]:
        """Return the first values and the least distance."""
        return {"firsts": words_to_json(self.firsts), "least": words_to_json(self.least)}

    def decode(self, row: int, codes: np.ndarray, out: np.ndarray) -> None:
        """Sum up the distances of each page."""
        values = out.view(f"<u{self.width}")
        numbers = codes.view(self.stored.dtype)
        least = _wrapped(int(self.least[0]), values.dtype)
        for start in range(0, len(numbers), self.page_rows):
            part = values[start : start + self.page_rows]
            np.copyto(part, numbers[start : start + self.page_rows], casting="unsafe")
            if least:
                part += least
            part[0] = _wrapped(int(self.firsts[(row + start) // self.page_rows]), part.dtype)
            np.cumsum(part, out=part)

    def pick_of_page(self, page: int, rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the values of single rows of a page, in less than half of the time of all rows.

        Parameters
        ----------
        page
            The number of the page.
        rows
            The rows as indices within the page; they ascend, and each is there once.
        codes
            The codes of the page, at least up to the last of the rows.
        """
        values = np.full(len(rows), self.firsts[page], "<i8").view("<u8")
        # The code of the first row is not used, so its value is known.
        behind = rows[np.searchsorted(rows, 1) :]
        if len(behind):
            starts = np.append(1, behind[:-1] + 1)
            sums = np.add.reduceat(codes[: behind[-1] + 1], starts, dtype="<u8")
            steps = behind.astype("<u8") * self.least.view("<u8")
            values[len(rows) - len(behind) :] += np.cumsum(sums) + steps
        return values.astype(f"<u{self.width}")


def _steps(row: int, codes: np.ndarray, encoding: Narrow | Scaled) -> list[tuple[int, int, int]]:
    """Return (start, stop, base) of steps of codes that have one base."""
    count = len(codes) // np.dtype(encoding.stored.dtype).itemsize
    step, bases = min(STEP_ROWS, encoding.page_rows), encoding.bases
    # Both are powers of two, so a step does not cross the end of a page.
    cuts = [0, *range(step - row % step, count, step), count]
    return [
        (start, stop, int(bases[(row + start) // encoding.page_rows if len(bases) > 1 else 0]))
        for start, stop in pairwise(cuts)
    ]


def _values_of_codes(encoding: Narrow | Scaled, type_: pa.DataType, most: int) -> pa.Array | None:
    width = encoding.stored.nbytes(1)
    count = 1 << 8 * width
    if len(encoding.bases) > 1 or width > 2 or count > most:
        return None
    codes = np.arange(count, dtype=encoding.stored.dtype)
    values = np.empty(count * type_.byte_width, np.uint8)
    encoding.decode(0, codes.view(np.uint8), values)
    return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(values)])


def _bases_of(rows: np.ndarray, encoding: Narrow | Scaled) -> np.ndarray:
    """Return the base of each row, or one base for all."""
    bases = encoding.bases
    return bases if len(bases) == 1 else bases[rows // encoding.page_rows]


def _wrapped(value: int, dtype: "np.dtype[Any]") -> Any:
    """Return an integer as an unsigned number of the dtype, modulo its range."""
    return dtype.type(value & ((1 << (8 * dtype.itemsize)) - 1))
