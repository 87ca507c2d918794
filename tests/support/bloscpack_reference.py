"""The real bloscpack 0.16.0: an independent judge of our version-3 superchunks.

Knows nothing of blztable.
"""

import collections
import collections.abc
import importlib
import os
import warnings
from types import ModuleType


def bloscpack_bytes(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a version-3 Bloscpack file by bloscpack itself, every checksum checked.

    It raises what bloscpack raises: ``FormatVersionMismatch``, ``ChecksumMismatch`` and others.
    """
    data, _metadata = import_bloscpack().unpack_bytes_from_file(os.fspath(path))
    return data


def import_bloscpack() -> ModuleType:
    """The module, whose last release wants a name that Python 3.10 took from ``collections``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # escapes of 2018; they show when it is first compiled
        collections.MutableMapping = collections.abc.MutableMapping
        try:
            return importlib.import_module("bloscpack")
        finally:
            del collections.MutableMapping
