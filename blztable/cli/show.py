"""What each command shows: as values for JSON, and as lines for people."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import accumulate

import pyarrow as pa

import blztable as blz
from blztable.cli.plain import Json, json_text, plain_object, plain_values, printable

# Characters of one value that are shown.
CELL = 32
GAP = "  "


def info(table: blz.CTable) -> Json:
    """What the table is."""
    said = facts(table)
    return {
        "path": table.path,
        "version": table.version,
        **_made(said),
        "rows": table.nrows,
        "columns": len(table.column_names),
        "row_groups": said.row_groups,
        "sort_by": [list(key) for key in table.sort_by],
        "nbytes": table.nbytes,
        "cbytes": table.cbytes,
        "ratio": round(table.nbytes / table.cbytes, 3) if table.cbytes else None,
        "attributes": plain_object(dict(table.attrs)),
    }


def info_lines(found: Json) -> Iterator[str]:
    """A line for each fact."""
    sizes = {"nbytes": " bytes uncompressed", "cbytes": " bytes on disk"}
    order = (name if way == "ascending" else f"{name} {way}" for name, way in found["sort_by"])
    for name, value in {**found, "sort_by": ", ".join(order)}.items():
        if name != "attributes" and value != "":
            number = f"{value:,}" if isinstance(value, int) else str(value)
            title = name.replace("_", " ")
            yield f"{title + ':':<11} {printable(number)}{sizes.get(name, '')}"
    for name, value in found["attributes"].items():
        yield f"attribute {printable(name)}: {json_text(value)}"


def facts(table: blz.CTable) -> blz.VersionInfo:
    """What is said of the version that is open in the list of versions."""
    found = (one for one in table.versions() if one.number == table.version)
    # It can only be gone where a medium does not lock.
    return next(found, blz.VersionInfo(table.version))


def versions(table: blz.CTable) -> Json:
    """The versions that are there, oldest first."""
    return {
        "path": table.path,
        "versions": [
            {
                "version": one.number,
                **_made(one),
                "rows": one.rows,
                "columns": one.columns,
                "row_groups": one.row_groups,
                "commit_ids": None if one.commit_ids is None else list(one.commit_ids),
                "damage": one.damage,
            }
            for one in table.versions()
        ],
    }


def versions_lines(found: Json) -> Iterator[str]:
    """A line for each version below the titles, and then what is wrong with each damaged one."""
    names = ("version", "time", "operation", "rows", "row_groups", "commit_ids")
    columns = [[name.replace("_", " ")] for name in names]
    for one in found["versions"]:
        cells = {**one, "commit_ids": ", ".join(one["commit_ids"] or ())}
        if one["damage"] is not None:
            cells["operation"] = "damaged"
        for name, column in zip(names, columns, strict=True):
            column.append(_cell(cells[name]))
    yield from _aligned(columns)
    for one in found["versions"]:
        if one["damage"] is not None:
            yield f"version {one['version']} is damaged: {one['damage']}"


def vacuumed(table: blz.CTable, removed: blz.Vacuumed) -> Json:
    """What went, and what did not."""
    return {"path": table.path, **asdict(removed)}


def vacuumed_lines(found: Json) -> Iterator[str]:
    """A line for what was removed, and one for each reason why no more was."""
    numbers = {name: ", ".join(map(str, found[name])) for name in ("versions", "pinned", "damaged")}
    if found["damaged"]:
        yield f"nothing was removed: what these versions name is damaged: {numbers['damaged']}"
    else:
        files = f"{found['files']:,} files that no version named ({found['nbytes']:,} bytes)"
        yield f"removed: versions {numbers['versions'] or 'none'}; {files}"
    if found["pinned"]:
        yield f"kept, because someone has them open: versions {numbers['pinned']}"


def _made(one: blz.VersionInfo) -> Json:
    time = None if one.time is None else one.time.isoformat(timespec="seconds")
    return {"time": time and time.replace("+00:00", "Z"), "operation": one.operation}


def schema(table: blz.CTable) -> Json:
    """The columns: names, types, and whether values may be missing."""
    return {
        "columns": [
            {"name": field.name, "type": str(field.type), "nullable": field.nullable}
            for field in table.schema
        ]
    }


def schema_lines(found: Json) -> Iterator[str]:
    """A line for each column."""
    rows = [
        (entry["name"], entry["type"], "" if entry["nullable"] else "not null")
        for entry in found["columns"]
    ]
    return _aligned([[printable(cell) for cell in column] for column in zip(*rows, strict=True)])


def head(rows: pa.Table) -> Json:
    """Names and types of the columns, and the rows: a list each, for names may repeat."""
    columns = [plain_values(column) for column in rows.columns]
    return {
        "columns": rows.column_names,
        "types": [str(type_) for type_ in rows.schema.types],
        "rows": [list(row) for row in zip(*columns, strict=True)] or [[]] * rows.num_rows,
    }


def head_lines(found: Json, width: int) -> Iterator[str]:
    """The rows below the names, as many columns as have room; what was left out is said."""
    columns = [
        [_cell(name), *(_cell(row[at]) for row in found["rows"])]
        for at, name in enumerate(found["columns"])
    ]
    ends = accumulate(max(map(len, column)) + len(GAP) for column in columns)
    fitting = max(sum(end <= width + len(GAP) for end in ends), 1)
    yield from _aligned(columns[:fitting])
    if len(columns) > fitting:
        yield f"... and {len(columns) - fitting:,} more columns"


def _cell(value: Json) -> str:
    text = value if isinstance(value, str) else "" if value is None else str(value)
    text = printable(text[: CELL + 1])
    return text if len(text) <= CELL else text[: CELL - 3] + "..."


def _aligned(columns: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        yield GAP.join(map(str.ljust, row, widths)).rstrip()
