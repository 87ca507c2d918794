"""Accessor: `df.to_blz(path)`, registered with pandas when this is imported."""

from collections.abc import Callable
from inspect import Signature, signature
from typing import Any

import pandas as pd

from blztable.storage.resolve import StoreLike
from blztable.writing import to_blz


def _without_data(function: Callable[..., None]) -> Signature:
    """Return the signature with `self` in place of the first parameter."""
    whole = signature(function)
    first, *others = whole.parameters.values()
    return whole.replace(parameters=[first.replace(name="self"), *others])


class _ToBlz:
    # `df.to_blz` has the documentation and the signature of the function.
    __doc__ = to_blz.__doc__

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame

    def __call__(self, path: StoreLike, **options: Any) -> None:
        to_blz(self._frame, path, **options)

    __call__.__signature__ = _without_data(to_blz)  # type: ignore[attr-defined]


# A second registration, on a reload, would warn.
if not hasattr(pd.DataFrame, "to_blz"):
    pd.api.extensions.register_dataframe_accessor("to_blz")(_ToBlz)
