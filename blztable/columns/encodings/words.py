"""Integers of 64 bits as base64, in which encodings keep their parameters as JSON."""

import base64
import binascii
from collections.abc import Sequence

import numpy as np

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
