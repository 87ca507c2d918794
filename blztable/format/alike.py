"""Lines alike: lines of the manifest that differ in few numbers, as in a wide table.

To decode or to encode a line takes longer than to read or to write the few kilobytes of a column in
a bundle. A line that has the text of another one, except for its path, its places and its
statistics, is read without a second look at the rest, and written without making the rest again.

Knows lines as bytes, and neither the head nor types.
"""

import base64
import re
from functools import lru_cache

from blztable.format.layout import Path
from blztable.format.statistics import Statistics

_PLACE = rb"[1-9][0-9]{0,17}"
_SIZE = rb"(?:0|[1-9][0-9]{0,17})"
_COUNT = rb"(?:null|0|[1-9][0-9]{0,17})"
_BOUND = rb'(?:null|"[A-Za-z0-9+/]*={0,2}")'
_AT, _ROWS, _STREAMS = 1, 2, 3


@lru_cache(16)
def _line_of(groups: int) -> re.Pattern[bytes]:
    """Return the form of a line as it is written, of so many row groups.

    Its groups are the places, and twice what alike lines have in common. Without an escape, no text
    has a quote, so each name is a key.
    """
    entries = (b"0", _PLACE, _SIZE, _COUNT, _COUNT, _BOUND, _BOUND)
    arrays = (b"%b(?:,%b){%d}" % (entry, entry, groups - 1) for entry in entries)
    return re.compile(
        rb'\{"path":[0-9]+,"k":\[%b\],"at":\[(%b)\],([^\\]*?),"cbytes":\[%b\],([^\\]*?),'
        rb'"nulls":\[%b\],"nans":\[%b\],"min":\[%b\],"max":\[%b\]\}' % tuple(arrays)
    )


class LinesAlike:
    """Recognises the lines that are like one line, whose parts all lie in bundles."""

    def __init__(self, line: bytes, groups: int) -> None:
        """Take the line of a column of `groups` row groups, which was decoded without an error."""
        self._form = _line_of(groups)
        found = self._form.fullmatch(line)
        self._common = found.group(_ROWS, _STREAMS) if found else None

    def places(self, line: bytes, path: Path) -> list[int] | None:
        """Return the first entry of each part in its bundle; None if the line is not alike."""
        if len(path) != 1 or not line.startswith(b'{"path":%d,' % path):
            return None
        found = self._form.fullmatch(line)
        if not found or found.group(_ROWS, _STREAMS) != self._common:
            return None
        return list(map(int, found[_AT].split(b",")))


class LineTemplate:
    """Encodes lines that are like one line, of a column with one part, which lies in a bundle."""

    def __init__(self, line: bytes) -> None:
        """Take the line of such a column."""
        found = _line_of(1).fullmatch(line)
        assert found
        rows, streams = (found[one].replace(b"%", b"%%") for one in (_ROWS, _STREAMS))
        self._text = b"".join(
            [
                b'{"path":%d,"k":[0],"at":[%d],',
                rows,
                b',"cbytes":[%d],',
                streams,
                b',"nulls":[%d],"nans":[%d],"min":[%b],"max":[%b]}',
            ]
        )

    def line(self, path: Path, at: int, cbytes: int, statistics: Statistics) -> bytes:
        """Return the line of a column with these places, and the statistics of its one part."""
        bounds = statistics.lowest[0], statistics.highest[0]
        low, high = (b"null" if one is None else b'"%b"' % base64.b64encode(one) for one in bounds)
        counts = statistics.nulls[0], statistics.nans[0]
        return self._text % (*path, at, cbytes, *counts, low, high)
