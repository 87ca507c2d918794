"""Accessor: `df.to_blz(path)`, also of a Series, registered with pandas when this is imported.

The writer is imported at the first use.
"""

from collections.abc import Callable
from importlib import import_module
from inspect import Signature, signature
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from blztable.storage.resolve import StoreLike


def _writer() -> Callable[..., None]:
    """Return `blztable.to_blz`."""
    writer: Callable[..., None] = import_module("blztable.writing").to_blz
    return writer


class _ToBlz:
    # `df.to_blz` has the documentation and the signature of the function.
    __doc__ = property(lambda self: _writer().__doc__)

    def __init__(self, data: pd.DataFrame | pd.Series) -> None:
        self._data = data

    def __call__(self, path: "StoreLike", **options: Any) -> None:
        _writer()(self._data, path, **options)

    @property
    def __signature__(self) -> Signature:
        whole = signature(_writer())
        _, *others = whole.parameters.values()
        return whole.replace(parameters=others)


# A second registration, on a reload, would warn.
if not hasattr(pd.DataFrame, "to_blz"):
    pd.api.extensions.register_dataframe_accessor("to_blz")(_ToBlz)
if not hasattr(pd.Series, "to_blz"):
    pd.api.extensions.register_series_accessor("to_blz")(_ToBlz)
