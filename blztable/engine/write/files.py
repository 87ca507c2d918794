"""Data files of a write: each has the next free number, and the records of its parts.

Knows neither arrays nor encodings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from blztable.columns.parts.physical import dtype_text
from blztable.engine.write.column_writer import ColumnWriter
from blztable.errors import LimitError
from blztable.format import layout
from blztable.format.data_file import DataFile
from blztable.format.layout import Path
from blztable.format.records import DIGEST_BYTES, Records
from blztable.storage.store import KeyTaken, Store


class Numbers(Protocol):
    """The numbers of new files, which several threads draw from."""

    def next(self) -> int:
        """Return a number that no file of the table has."""


@dataclass(frozen=True, slots=True)
class FileWriter:
    """Writes the data files of one table."""

    store: Store
    uuid: str
    numbers: Numbers

    def put(
        self,
        path: Path,
        number: int,
        columns: Sequence[ColumnWriter],
        records: Records,
        chunks: Sequence[bytes],
        crcs: Sequence[int],
    ) -> tuple[int, Records]:
        """Store the parts of some columns under the first number that is free, from `number` on.

        Return the number and the records, which name it.
        """
        nodes = tuple([column.path for column in columns])
        dtypes = tuple([dtype_text(column.type) for column in columns])
        digests = [crc.to_bytes(DIGEST_BYTES, "little") for crc in crcs]
        while number <= layout.MAX_ID:
            file = DataFile(self.uuid, number, nodes, dtypes, records)
            front, placed = file.encode(chunks)
            pieces = [front, *chain.from_iterable(zip(chunks, digests, strict=True))]
            try:
                self.store.put_new(layout.part(path, number), pieces)
            except KeyTaken:
                number = self.numbers.next()  # Another writer uses that number.
            else:
                return number, placed
        raise LimitError(f"{self.store.name}: all file numbers up to {layout.MAX_ID} are used")
