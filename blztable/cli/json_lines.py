"""JSON lines: NDJSON in blocks of whole lines, each of which Arrow can parse by itself.

Knows nothing of files and tables.
"""

import io
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import IO

import pyarrow as pa
import pyarrow.json as pa_json


def blocks(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield the lines of a file in blocks of about `size` bytes; none for a file of blanks."""
    rest = b""
    while data := file.read(size):
        # JSON has no line feed within a text.
        end = data.rfind(b"\n") + 1
        if not end:
            rest += data
            continue
        block, rest = rest + data[:end], data[end:]
        if block.strip():
            yield block
    if rest.strip():
        yield rest


def parse(block: bytes, schema: pa.Schema) -> pa.Table:
    """Return the rows of a block; the types of columns that the schema lacks are inferred."""
    return pa_json.read_json(
        io.BytesIO(block),
        pa_json.ReadOptions(block_size=len(block) + 1),
        pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer"),
    )


def first_error(block: bytes, schema: pa.Schema) -> tuple[int, str]:
    """Return the number of the first line that cannot be parsed, and why."""
    lines = block.splitlines(keepends=True)
    good, bad, message = 0, len(lines), ""
    while bad - good > 1 or not message:
        middle = (good + bad + 1) // 2 if message else bad
        try:
            parse(b"".join(lines[:middle]), schema)
            good = middle
        except pa.ArrowInvalid as error:
            bad, message = middle, re.sub(r" in row \d+$", "", str(error))
    if block.lstrip()[:1] == b"[":
        message = "NDJSON has one object a line, and this is an array; try `jq -c '.[]'`"
    return bad - 1, message


def readable(types: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """Return the types that Arrow can parse; it would take dates and times for numbers."""
    return {name: type_ for name, type_ in types.items() if _is_readable(type_)}


@lru_cache
def _is_readable(type_: pa.DataType) -> bool:
    if pa.types.is_temporal(type_) and not pa.types.is_timestamp(type_):
        return False
    try:
        parse(b'{"a": null}', pa.schema({"a": type_}))
    except pa.ArrowNotImplementedError:
        return False
    return True
