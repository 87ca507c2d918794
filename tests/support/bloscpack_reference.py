"""The real bloscpack 0.16.0: an independent reader of our version-3 superchunks.

Knows nothing of blztable.
"""

import collections
import collections.abc
import importlib
import os
import warnings
from types import ModuleType


def bloscpack_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the data of a version-3 Bloscpack file, read by bloscpack, with verified checksums.

    Raises the exceptions of bloscpack: ``FormatVersionMismatch``, ``ChecksumMismatch`` and others.
    """
    data, _metadata = import_bloscpack().unpack_bytes_from_file(os.fspath(path))
    return data


def import_bloscpack() -> ModuleType:
    """Import bloscpack; it needs a name that Python 3.10 removed from ``collections``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes; they warn when compiled
        collections.MutableMapping = collections.abc.MutableMapping
        try:
            return importlib.import_module("bloscpack")
        finally:
            del collections.MutableMapping
