"""A whole version looked at: manifest, then row group by row group every part of it.

Columns are decoded by `read.py`, so whatever reading checks is checked; `examine.py` compares what
is left. Damage is written down, and the rest is checked all the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from blztable.columns.types import one_array
from blztable.engine.examine import Column, Part
from blztable.engine.files import OpenFiles
from blztable.engine.pages import Span
from blztable.engine.read import read_columns
from blztable.engine.threads import run
from blztable.engine.versions import Version, load
from blztable.errors import BlzError
from blztable.report import Problem, Report
from blztable.storage.store import KeyNotFound


def verify(version: Version, indices: Sequence[int], *, full: bool) -> Report:
    """Check the columns at these positions: all of them, or only manifest, fronts and trailers.

    Damage is reported, not raised; what is not damage (no memory, an interrupt) is raised.
    """
    head = version.head
    # Without the lines that were read before: they are to be read again.
    version = replace(version, _lines={})
    problems = list(_manifest(version))
    columns = [Column(version, index) for index in indices]
    files = chunks = nbytes = first = 0
    with OpenFiles(version.store) as open_files:
        for group, rows in enumerate(head.row_groups):
            parts = [Part(one, one.parts, group, first) for one in columns if one.parts]
            run(partial(part.open, full, open_files) for part in parts)
            if full:
                _read([part for part in parts if part.opened], Span(group, 0, rows))
                run(part.compare for part in parts)
            for part in parts:
                problems += part.problems
                facts = part.facts
                if part.opened and part.opened.superchunk:
                    files += 1
                    chunks += part.chunks if full else 0
                    nbytes += facts.cbytes if full else facts.front_length + facts.trailer_length
            first += rows
    for column in columns:
        problems += column.problems
    names = tuple(column.name for column in columns)
    problems.sort(key=_order)
    return Report(head.version, head.rows, names, full, files, chunks, nbytes, tuple(problems))


def _manifest(version: Version) -> Iterator[Problem]:
    """What is wrong with the manifest besides the columns' lines."""
    head, columns = version.head, version.head.columns

    def problem(message: str, is_readable: bool) -> Problem:
        return Problem(message, None, None, None, 0, head.rows, version.key, is_readable)

    try:
        if load(version.store, head.version).head != head:
            yield problem("another manifest than the one that was opened", False)
        elif columns.offsets:
            end = columns.offsets[-1] + columns.lengths[-1] + 1
            with version.store.open(version.key) as reader:
                if reader.size > end:
                    yield problem(f"{reader.size - end} bytes behind the last line", True)
    except KeyNotFound:
        yield problem("it is gone", False)
    except BlzError as error:
        yield problem(str(error), False)


def _read(parts: Sequence[Part], span: Span) -> None:
    """Decode the parts of a row group together; where one is damaged, each by itself."""
    if not parts:
        return
    try:
        columns = [part.column.index for part in parts]
        arrays = read_columns(parts[0].column.version, columns, [span])
        for part, array in zip(parts, arrays, strict=True):
            part.array = one_array(array)
    except BlzError:
        for part in parts:
            part.read_alone()


def _order(problem: Problem) -> tuple[int, int, int]:
    position = -1 if problem.position is None else problem.position
    return position, problem.start, problem.stop
