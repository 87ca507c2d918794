"""Caller: where the user's code called this package, for the warnings that point there.

Knows nothing of what is warned of.
"""

import sys

# A `with` over a generator puts a frame of contextlib between two frames of the package.
_SKIPPED = ("blztable", "contextlib")


def stack_level() -> int:
    """Return the `stacklevel` by which `warnings.warn` names the first line outside the package.

    It counts from the function that calls this one.
    """
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and _is_skipped(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    return level


def _is_skipped(module: str) -> bool:
    return module.partition(".")[0] in _SKIPPED
