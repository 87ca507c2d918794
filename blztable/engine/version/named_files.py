"""Named files: the keys, numbers and sizes of the files and leaves that a version names.

Two versions share leaves, so their trees are compared from the top: what lies below a leaf that
both have is not read. The number of a leaf is above those of all files that it names.
"""

from typing import NamedTuple

import numpy as np

from blztable.engine.version.facts import Run
from blztable.engine.version.versions import Version
from blztable.format import layout
from blztable.format.layout import Path


class NamedFile(NamedTuple):
    """The number of a file, and its bytes."""

    number: int
    size: int


# Files by their keys.
Files = dict[str, NamedFile]


def files_of_run(run: Run, paths: tuple[Path, ...]) -> Files:
    """Return the files that row groups name."""
    records, count = run.records(), len(run)
    parts = records.parts.reshape(records.columns, count)
    numbers, bundles = parts["file"].astype(np.int64), run.groups["file"].astype(np.int64)
    # The chunks of a part are the end of its file.
    ends = (parts["offset"] + parts["cbytes"]).astype(np.int64)
    is_bundled = (numbers == bundles) & (bundles > 0)
    lines, groups = np.nonzero((numbers > 0) & ~is_bundled)
    files: Files = {}
    values = (lines, numbers[lines, groups], ends[lines, groups])
    for line, number, size in zip(*(column.tolist() for column in values), strict=True):
        files[layout.part(paths[line], number)] = NamedFile(number, size)
    sizes = np.where(is_bundled, ends, 0).max(0, initial=0)
    for number, size in zip(bundles.tolist(), sizes.tolist(), strict=True):
        if number:
            files[layout.part(layout.SHARED, number)] = NamedFile(number, size)
    return files


def named(version: Version, seen: set[int] | None = None, least: int = 0) -> Files:
    """Return the files and leaves that a version names.

    Nothing below a leaf in `seen` is returned, and `seen` gets the leaves that were read. Leaves
    that name no file from the number `least` on are not read either.
    """
    files: Files = {}
    for piece in version.facts.unseen(set() if seen is None else seen, least):
        if isinstance(piece, Run):
            files |= files_of_run(piece, version.paths)
        else:
            number, size = piece
            files[layout.leaf(number)] = NamedFile(number, size)
    return files


def only(version: Version, other: Version) -> Files:
    """Return the files and leaves that a version names, and the other one does not."""
    mine, theirs = _by_level(version), _by_level(other)
    files: Files = {}
    for level in range(max([0, *mine, *theirs]), 0, -1):
        here = [[*runs.get(level, ())] for runs in (mine, theirs)]
        numbers = [{n for run in runs for n in run.groups["file"].tolist()} for runs in here]
        shared = numbers[0] & numbers[1]
        for side, tree, runs in zip((version, other), (mine, theirs), here, strict=True):
            for run in runs:
                sizes = zip(run.groups["file"].tolist(), run.groups["size"].tolist(), strict=True)
                for entry, (number, size) in enumerate(sizes):
                    if number not in shared:
                        tree.setdefault(level - 1, []).append(side.facts.below(run, entry))
                        if side is version:
                            files[layout.leaf(number)] = NamedFile(number, size)
    for run in mine.get(0, ()):
        files |= files_of_run(run, version.paths)
    for run in theirs.get(0, ()):
        for key in files_of_run(run, other.paths):
            files.pop(key, None)
    return files


def _by_level(version: Version) -> dict[int, list[Run]]:
    """Return the runs of a version by their levels."""
    by_level: dict[int, list[Run]] = {}
    for run in version.facts.runs:
        by_level.setdefault(run.level, []).append(run)
    return by_level
