"""Lines alike: lines of the manifest that differ in few numbers, as in a wide table.

To decode or to encode a line takes longer than to read or to write the few kilobytes of a column in
a bundle. A line that has the text of another one, except for its path, its places and its
statistics, is read without a second look at the rest, and written without making the rest again.

Knows lines as bytes, and neither the head nor types.
"""

import base64
import re

from blztable.format.layout import Path
from blztable.format.statistics import Statistics


def _array(entry: bytes) -> bytes:
    return rb"%b(?:,%b)*" % (entry, entry)


_PLACES = _array(rb"[1-9][0-9]{0,17}")
_SIZES = _array(rb"(?:0|[1-9][0-9]{0,17})")
_COUNTS = _array(rb"(?:null|0|[1-9][0-9]{0,17})")
_BOUNDS = _array(rb'(?:null|"[A-Za-z0-9+/]*={0,2}")')
# A line as it is written. Its groups are the places and other arrays that vary, and twice what
# alike lines have in common. Without an escape, no text has a quote, so each name is a key.
_LINE = re.compile(
    rb'\{"path":[0-9]+,"k":\[(0(?:,0)*)\],"at":\[(%b)\],([^\\]*?),"cbytes":\[(%b)\],([^\\]*?),'
    rb'"nulls":\[(%b)\],"nans":\[(%b)\],"min":\[(%b)\],"max":\[(%b)\]\}'
    % (_PLACES, _SIZES, _COUNTS, _COUNTS, _BOUNDS, _BOUNDS)
)
_K, _AT, _ROWS, _CBYTES, _STREAMS, _NULLS, _NANS, _MIN, _MAX = range(1, 10)
_ARRAYS = (_K, _AT, _CBYTES, _NULLS, _NANS, _MIN, _MAX)


class LinesAlike:
    """Recognises the lines that are like one line, whose parts all lie in bundles."""

    def __init__(self, line: bytes, groups: int) -> None:
        """Take the line of a column of `groups` row groups, which was decoded without an error."""
        self._commas = [groups - 1] * len(_ARRAYS)
        found = _LINE.fullmatch(line)
        self._common = (found[_ROWS], found[_STREAMS]) if found else None

    def places(self, line: bytes, path: Path) -> list[int] | None:
        """Return the first entry of each part in its bundle; None if the line is not alike."""
        if len(path) != 1 or not line.startswith(b'{"path":%d,' % path):
            return None
        found = _LINE.fullmatch(line)
        if not found or (found[_ROWS], found[_STREAMS]) != self._common:
            return None
        if [found[array].count(b",") for array in _ARRAYS] != self._commas:
            return None
        return list(map(int, found[_AT].split(b",")))


class LineTemplate:
    """Encodes lines that are like one line, of a column with one part, which lies in a bundle."""

    def __init__(self, line: bytes) -> None:
        """Take the line of such a column."""
        found = _LINE.fullmatch(line)
        assert found
        rows, streams = (found[one].replace(b"%", b"%%") for one in (_ROWS, _STREAMS))
        self._text = b"".join(
            [
                *(b'{"path":%d,"k":[0],"at":[%d],', rows, b',"cbytes":[%d],', streams),
                b',"nulls":[%d],"nans":[%d],"min":[%b],"max":[%b]}',
            ]
        )

    def line(self, path: Path, at: int, cbytes: int, statistics: Statistics) -> bytes:
        """Return the line of a column with these places, and the statistics of its one part."""
        bounds = statistics.lowest[0], statistics.highest[0]
        low, high = (b"null" if one is None else b'"%b"' % base64.b64encode(one) for one in bounds)
        counts = statistics.nulls[0], statistics.nans[0]
        return self._text % (*path, at, cbytes, *counts, low, high)
