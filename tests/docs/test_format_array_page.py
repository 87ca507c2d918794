"""The page about the format of arrays says what the code does."""

import io
import json
import re
from pathlib import Path

import blztable as blz
from blztable.arrays.files import own
from blztable.format.bloscpack import HEADER, UNFINISHED, Header, decode_section
from blztable.storage import journal

PAGE = (Path(__file__).parents[2] / "docs" / "format-array.md").read_text(encoding="utf-8")


def section_of(title):
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(title, table=0):
    """Return the cells of a table, without its head."""
    tables = re.findall(r"(?:^\|.*\n)+", section_of(title), re.MULTILINE)
    lines = tables[table].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def made(**options):
    file = io.BytesIO()
    with blz.SuperChunk.create(file, "i4", chunk_shape=(4,), expectedlen=10, **options) as array:
        array.append(range(10))
    return file.getvalue()


def test_the_fields_of_the_header_follow_each_other():
    fields = rows("The front")
    at = 0
    for offset, size, *_ in fields:
        assert int(offset) == at
        at += int(size)
    assert at == HEADER.size
    names = [name for *_, name, _ in fields if name][1:]
    assert names == list(Header.__slots__)[: len(names)]
    assert str(UNFINISHED) in section_of("The front")


def test_the_keys_of_the_metadata_are_those_of_a_file():
    data = made()
    value = json.loads(decode_section(lambda at, size: data[at : at + size], 32)[0])
    assert [row[0].strip("`") for row in rows("The metadata")] == list(value)
    keys = re.findall(r"`(\w+)`", " ".join(row[0] for row in rows("The metadata", 1)))
    assert keys == list(value["blz"])


def test_the_layers_of_the_trailer_are_named():
    assert [row[0].strip("`") for row in rows("The trailer")] == list(own.OWN_LAYERS)


def test_the_journal_is_described():
    text = section_of("Changes in place")
    assert journal.HEAD_MAGIC.decode() in text
    assert journal.FOOT_MAGIC.decode() in text


def test_an_array_by_hand_is_what_the_page_says():
    """The front of ten integers in chunks of four, as a stranger would read it."""
    data = made()
    fields = Header.decode(data)
    assert (fields.version, fields.options, fields.checksum, fields.typesize) == (3, 3, 2, 4)
    assert (fields.chunk_size, fields.last_chunk, fields.nchunks, fields.tail) == (16, 8, 3, 0)
    text, section = decode_section(lambda at, size: data[at : at + size], 32)
    value, end = json.loads(text), 32 + section.length
    assert value["dtype"] == "'<i4'"
    offsets = [int.from_bytes(data[end + 8 * i :][:8], "little") for i in range(3)]
    assert offsets[0] == end + 24
    # A stored chunk: 16 bytes of header, four integers, then the checksum.
    assert data[offsets[0] + 16 :][:16] == b"".join(i.to_bytes(4, "little") for i in range(4))
    assert offsets[1] == offsets[0] + 16 + 16 + 4
    trailer, length = value["blz"]["trailer"]
    assert trailer == offsets[2] + 16 + 8 + 4
    assert data[trailer:][:8] == b"blztrail"
    assert trailer + length == len(data)
    # The size of the array, as the proposals compute it.
    assert fields.chunk_size * (fields.nchunks - 1) + fields.last_chunk == 40
