"""Loss of power while one file is changed in place.

`RecordedFile` logs each write, cut and flush. `crash_states` yields what the file may hold after a
loss of power behind any of these calls: everything before the last flush, and any choice of the
rest, in which a write may be torn at a sector or be zeros. Knows nothing of what the bytes mean.
"""

import random
from collections.abc import Iterator

from blztable.storage.files import MemoryFile

SECTOR = 512
MIXTURES = 12

Call = tuple[str, int, bytes]


class RecordedFile(MemoryFile):
    """A file in memory that logs what changes it."""

    def __init__(self, data: bytes = b"") -> None:
        super().__init__(data)
        self.log: list[Call] = []

    def write(self, at: int, data: bytes) -> None:
        super().write(at, data)
        self.log.append(("write", at, bytes(data)))

    def cut(self, size: int) -> int:
        super().cut(size)
        self.log.append(("truncate", size, b""))
        return size

    def flush(self) -> None:
        self.log.append(("flush", 0, b""))


def crash_states(before: bytes, log: list[Call], *, seed: int) -> Iterator[bytes]:
    """Yield the states of a file that held `before`."""
    draw = random.Random(seed)
    for stop in range(len(log) + 1):
        calls = log[:stop]
        flushed = max((at + 1 for at, call in enumerate(calls) if call[0] == "flush"), default=0)
        sure, rest = calls[:flushed], calls[flushed:]
        choices = [["kept"] * len(rest), ["lost"] * len(rest)]
        for at in range(len(rest)):
            others = ["kept"] * at, ["kept"] * (len(rest) - at - 1)
            choices += [[*others[0], fate, *others[1]] for fate in ("lost", "torn", "zeros")]
        fates = ("kept", "lost", "torn", "zeros")
        choices += [[draw.choice(fates) for _ in rest] for _ in range(MIXTURES if rest else 0)]
        for choice in choices:
            data = bytearray(before)
            for call in sure:
                _apply(data, call, "kept", draw)
            for call, fate in zip(rest, choice, strict=True):
                _apply(data, call, fate, draw)
            yield bytes(data)


def _apply(data: bytearray, call: Call, fate: str, draw: random.Random) -> None:
    kind, at, new = call
    if fate == "lost" or kind == "flush":
        return
    if kind == "truncate":
        del data[at:]
        return
    if fate == "torn":
        # A sector of the file is whole or not, wherever the write began.
        sectors = (at % SECTOR + len(new)) // SECTOR
        new = new[: max(draw.randint(0, sectors) * SECTOR - at % SECTOR, 0)]
    elif fate == "zeros" and at + len(new) > len(data):
        # The length reached the disk, the bytes behind the old end did not.
        new = new[: max(len(data) - at, 0)].ljust(len(new), b"\0")
    if at > len(data):
        data += bytes(at - len(data))
    data[at : at + len(new)] = new
