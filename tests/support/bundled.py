"""Bundles made by hand: the parts of a table are put into bundles, without the writer.

So tests of the reader do not depend on the writer. Only the bytes of the format are used.
"""

from blztable.engine.version.versions import newest_number
from blztable.format import layout
from support import tamper

MAGIC = b"blzgroup"


def bundle(store, groups=None, columns=None) -> None:
    """Put the parts of these columns in these row groups (default: all) into bundles."""
    gone = []
    with tamper.editing(store, newest_number(store)) as table:
        count = len(table.head["row_groups"])
        table.head.setdefault("bundles", [0] * count)
        numbers = table.head["bundles"]
        for group in range(count) if groups is None else groups:
            data = MAGIC
            number = table.head.get("next_bundle", 1)
            for index in range(len(table.lines)) if columns is None else columns:
                line = table.lines[index]
                line.setdefault("at", [0] * count)
                if line["k"][group]:
                    key = table.key(index, group)
                    line["k"][group], line["at"][group] = 0, len(data)
                    data += store.get(key)
                    gone.append(key)
            if len(data) > len(MAGIC):
                numbers[group], table.head["next_bundle"] = number, number + 1
                store.put(layout.part(layout.SHARED, number), data)
        table.head["requires"] = ["bundles"]
    store.delete(gone)
