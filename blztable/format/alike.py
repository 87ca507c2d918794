"""Lines alike: lines of the manifest that differ in few numbers, as in a wide table.

To decode a line takes longer than to read the few kilobytes of a column in a bundle. A line that
has the text of a decoded one, except for its path, its places and its statistics, needs no second
look at the rest.

Knows lines as bytes, and neither the head nor types.
"""

import re

from blztable.format.layout import Path

_NUMBER = rb"(?:0|[1-9][0-9]{0,17})"
_BOUND = rb'(?:null|"[A-Za-z0-9+/]*={0,2}")'
# What an entry of these arrays may be. The path has a group of its own.
_ENTRIES = {
    b"at": rb"[1-9][0-9]{0,17}",
    b"cbytes": _NUMBER,
    b"nulls": rb"(?:null|%b)" % _NUMBER,
    b"nans": rb"(?:null|%b)" % _NUMBER,
    b"min": _BOUND,
    b"max": _BOUND,
}
_VARYING = re.compile(rb'"(path)":[0-9]+|"(%b)":\[[^\[\]]*\]' % b"|".join(_ENTRIES))


class LinesAlike:
    """Recognises the lines that are like one line, whose parts all lie in bundles."""

    def __init__(self, line: bytes, groups: int) -> None:
        """Take the line of a column of `groups` row groups, which was decoded without an error."""
        names = [one[1] or one[2] for one in _VARYING.finditer(line)]
        # Without an escape, no text has a quote, so each name is a key. Of two equal keys, one is
        # within another object.
        is_plain = b"\\" not in line and len(set(names)) == len(names)
        self._groups = groups
        self._pattern: re.Pattern[bytes] | None = None
        if is_plain and {b"path", b"at"} <= set(names):
            pieces, end = [], 0
            for one in _VARYING.finditer(line):
                name = one[1] or one[2]
                pieces += [re.escape(line[end : one.start()]), self._varying(name)]
                end = one.end()
            self._pattern = re.compile(b"".join([*pieces, re.escape(line[end:])]))

    def places(self, line: bytes, path: Path) -> list[int] | None:
        """Return the first entry of each part in its bundle; None if the line is not alike."""
        found = self._pattern and self._pattern.fullmatch(line)
        if not found or len(path) != 1 or found[1] != b"%d" % path:
            return None
        return list(map(int, found[2].split(b",")))

    def _varying(self, name: bytes) -> bytes:
        if name == b"path":
            return rb'"path":([0-9]+)'
        entry = _ENTRIES[name]
        entries = rb"%b(?:,%b){%d}" % (entry, entry, self._groups - 1)
        return rb'"%b":\[%b\]' % (name, b"(%b)" % entries if name == b"at" else entries)
