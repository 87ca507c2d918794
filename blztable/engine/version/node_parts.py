"""NodeParts: the parts of one node in all row groups, a thin view of their records."""

from blztable.cached import cached_property
from blztable.format import layout
from blztable.format.layout import Path
from blztable.format.records import ITEM_CHUNKS, Array, Records


class NodeParts:
    """The parts of one node."""

    def __init__(self, path: Path, records: Records, bundles: Array) -> None:
        """Join records of one column with the number of each row group's bundle, 0 for none."""
        self.path = path
        self.records = records
        # The number of the file of each part, 0 for none.
        self.files = records.parts["file"]
        self._bundles = bundles

    @cached_property
    def rows(self) -> list[int]:
        """The rows of each part."""
        return self.records.parts["rows"].tolist()

    @cached_property
    def page_rows(self) -> list[int]:
        """The rows of a page of each part."""
        return [1 << page for page in self.records.parts["page"].tolist()]

    @property
    def nbytes(self) -> int:
        """Decoded bytes of all parts."""
        return int(self.records.parts["nbytes"].sum())

    @property
    def cbytes(self) -> int:
        """Bytes of the chunks of all parts."""
        return int(self.records.parts["cbytes"].sum())

    def has_bytes(self, group: int) -> bool:
        """True if a part has chunks; otherwise its records say all."""
        return bool(self.records.parts["cbytes"][group])

    def takes_memory(self, group: int) -> bool:
        """True if the values of a part take memory; those of the null type do not."""
        return bool(self.records.parts["nbytes"][group]) or self.has_bytes(group)

    def is_bundled(self, group: int) -> bool:
        """True if a part lies in the bundle of its row group."""
        return 0 < int(self.files[group]) == int(self._bundles[group])

    def key(self, group: int) -> str:
        """Return the key of the file of a part, which must have one."""
        path = layout.SHARED if self.is_bundled(group) else self.path
        return layout.part(path, int(self.files[group]))

    def unit_rows(self, group: int) -> int:
        """Return the rows that are read together: those of a page, or one."""
        return 1 if self.records.parts["flags"][group] & ITEM_CHUNKS else self.page_rows[group]
