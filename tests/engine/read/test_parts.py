"""Parts: opened, read, and read again."""

import blztable as blz
from blztable.engine.read.open_files import OpenFiles
from blztable.engine.read.parts import OpenedPart
from blztable.engine.version import versions
from blztable.storage.local import LocalStore


# Bug: a race: one thread forgot the bytes of a small part while another read them.
def test_a_small_part_that_was_forgotten_is_read_again(tmp_path):
    blz.to_blz({"a": [1, 2, 3]}, tmp_path / "t.blz")
    version, pinned = versions.pin(LocalStore(tmp_path / "t.blz"))
    with pinned:
        part = OpenedPart(version, 0, version.column(0), 0, OpenFiles(version.store))
        whole = part.reader().read(0, part.reader().size)
        part.forget()
        assert part.reader().read(0, part.reader().size) == whole
