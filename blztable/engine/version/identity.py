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
    chosen = np.arange(version.group_count) if groups is None else np.asarray(groups)
    records = version.group_records(chosen)
    files = version.records(lines, chosen).parts["file"].reshape(len(lines), len(chosen))
    # A bundle and a file of a column may have the same number.
    places = 2 * files.astype(np.int64) + (files == records["file"])
    return np.vstack([records["stored"].astype(np.int64), places]).T
