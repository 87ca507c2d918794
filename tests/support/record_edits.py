"""Edits of tables: each field of each record set to wrong values."""

from collections.abc import Callable, Iterator

import numpy as np

from support import tamper

Edit = Callable[[tamper.Table], None]


def wrong(old: int, bits: int) -> list[int]:
    """Return other values of a field."""
    most = (1 << bits) - 1
    found = [0, 1, old - 1, old + 1, 2 * old, most >> 1, most, most - 7]
    return sorted({one & most for one in found} - {old & most})


def fields(what: str, get: Callable[[tamper.Table], np.ndarray]) -> Callable:
    """Return the edits of each field of a struct that `get` finds in a table."""

    def edits(table: tamper.Table) -> Iterator[tuple[str, Edit]]:
        record = get(table)
        for name in record.dtype.names:
            signed = record.dtype[name].kind == "i"
            bits = 8 * record.dtype[name].itemsize
            for value in wrong(int(record[name]), bits):
                as_field = value - (1 << bits) if signed and value >> (bits - 1) else value

                def edit(edited: tamper.Table, name=name, as_field=as_field) -> None:
                    get(edited)[name] = as_field

                yield f"{what}.{name} = {as_field}", edit

    return edits


def all_edits(table: tamper.Table) -> Iterator[tuple[str, Edit]]:
    """Yield an edit for each field of each record, with what it does."""
    for number, leaf in enumerate(table.leaves):
        for entry in range(min(len(leaf.groups), 2)):
            at = f"leaf {number} group {entry}"
            yield from fields(at, lambda t, n=number, e=entry: t.leaves[n].groups[e])(table)
        for word in range(len(leaf.deleted)):
            for value in wrong(int(leaf.deleted[word]), 63):

                def deleted(t: tamper.Table, n=number, w=word, v=value) -> None:
                    t.leaves[n].deleted[w] = v

                yield f"leaf {number} deleted {word} = {value}", deleted
        for name in ("level", "entries", "columns", "crc"):
            for value in (0, 1, 2, 7, 1 << 20, (1 << 32) - 1):

                def header(t: tamper.Table, n=number, k=name, v=value) -> None:
                    t.leaves[n].fields[k] = v

                yield f"leaf {number} {name} = {value}", header
        for place in range(min(len(leaf.columns) + 1, 3)):
            for name in ("offset", "streams", "chunks", "pages", "words", "bytes"):
                for value in (0, 1, 3, (1 << 32) - 1):

                    def index(t: tamper.Table, n=number, key=(place, name), v=value) -> None:
                        t.leaves[n].index[key] = v

                    yield f"leaf {number} index {place}.{name} = {value}", index
        for column, parts in enumerate(leaf.columns):
            for entry in range(min(len(parts), 1)):
                yield from edits_of_part(table, number, column, entry)


def edits_of_part(
    table: tamper.Table, number: int, column: int, entry: int
) -> Iterator[tuple[str, Edit]]:
    def part_of(t: tamper.Table) -> tamper.Part:
        return t.leaves[number].columns[column][entry]

    at, part = f"leaf {number} part {column}", part_of(table)
    yield from fields(at, lambda t: part_of(t).record)(table)
    for page in range(min(len(part.pages), 2)):
        yield from fields(f"{at} page {page}", lambda t, p=page: part_of(t).pages[p])(table)
    for name, stream in part.streams.items():
        yield from fields(f"{at} stream {name}", lambda t, s=name: part_of(t).streams[s].record)(
            table
        )
        for chunk in range(min(len(stream.chunk_records), 1)):
            yield from fields(
                f"{at} stream {name} chunk {chunk}",
                lambda t, s=name, c=chunk: part_of(t).streams[s].chunk_records[c],
            )(table)
        for word in range(len(stream.words)):
            for value in (0, 1, -1, -(1 << 63), (1 << 63) - 1, int(stream.words[word]) + 1):

                def words(t: tamper.Table, s=name, w=word, v=value) -> None:
                    part_of(t).streams[s].words[w] = min(v, (1 << 63) - 1)

                yield f"{at} stream {name} word {word} = {value}", words

        def removed(t: tamper.Table, s=name) -> None:
            del part_of(t).streams[s]

        yield f"{at} without stream {name}", removed
    for pages in (part.pages[:0], np.concatenate([part.pages, part.pages])):

        def other_pages(t: tamper.Table, pages=pages) -> None:
            part_of(t).pages = pages

        yield f"{at} with {len(pages)} pages", other_pages
