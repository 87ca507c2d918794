"""What tells a row group from others: its rows, and the files that have its parts.

Knows nothing of the rows that are deleted.
"""

from collections.abc import Sequence

import numpy as np

from blztable.engine.version.versions import Version


def identities(
    version: Version, lines: Sequence[int], groups: Sequence[int] | None = None
) -> np.ndarray:
    """Return a row of numbers for each row group: its stored rows, and the file of each line.

    Two row groups of a table are the same in these columns if their numbers are equal.
    """
    chosen = range(version.group_count) if groups is None else groups
    files = version.records(lines, groups).parts["file"].reshape(len(lines), len(chosen))
    stored, bundles = version.stored_rows, version.bundles
    facts = np.array([(stored[group], bundles[group]) for group in chosen], np.int64).reshape(-1, 2)
    # A bundle and a file of a column may have the same number.
    places = 2 * files.T.astype(np.int64) + (facts[:, 1:] == files.T)
    return np.hstack([facts[:, :1], places])
