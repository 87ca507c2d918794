"""Output: make the JSON values and the lines of text that each command prints.

Knows nothing of arguments and exit codes.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import accumulate

import pyarrow as pa

import blztable as blz
from blztable.cli.plain import plain_object, plain_values
from blztable.cli.terminal import Json, json_text, printable

# Maximum number of characters of one value.
CELL = 32
GAP = "  "
# What a commit did to rows.
DONE = ("rows_appended", "rows_updated", "rows_deleted")


def info(table: blz.CTable) -> Json:
    """Return the values of `blz info`."""
    # What another program stored has no versions.
    kind = getattr(table, "kind", None)
    entry = version_info(table)
    stored = {"version": table.version, **_commit(entry)} if kind is None else {"kind": kind}
    return {
        "path": table.path,
        **stored,
        "rows": len(table),
        "columns": len(table.columns),
        **(
            {"row_groups": entry.row_groups, "deleted_rows": entry.deleted_rows}
            if kind is None
            else {}
        ),
        "sort_by": [list(key) for key in table.storage.sort_by or ()],
        "digits": _digits(table),
        "nbytes": table.nbytes,
        "cbytes": table.cbytes,
        "ratio": round(table.nbytes / table.cbytes, 3) if table.cbytes else None,
        **({"tags": dict(table.tags), "disk": _disk(table)} if kind is None else {}),
        "attributes": plain_object(dict(table.attrs)),
    }


def _digits(table: blz.CTable) -> dict[str, int]:
    """Return the digits kept of columns of which not all are kept."""
    columns = table.storage.columns or {}
    return {name: own.digits for name, own in columns.items() if own.digits is not None}


def _disk(table: blz.CTable) -> Json:
    used = table.disk_usage()
    return {**asdict(used), "total": used.total}


def info_lines(result: Json) -> Iterator[str]:
    """Yield one line per value."""
    sizes = {"nbytes": " bytes uncompressed", "cbytes": " bytes on disk"}
    order = (name if way == "ascending" else f"{name} {way}" for name, way in result["sort_by"])
    printed = {**result, "sort_by": ", ".join(order)}
    for name in ("digits", "tags"):
        printed[name] = ", ".join(f"{one} {value}" for one, value in result.get(name, {}).items())
    disk = result.get("disk", {})
    printed["disk"] = ", ".join(f"{name} {nbytes:,}" for name, nbytes in disk.items())
    for name, value in printed.items():
        if name != "attributes" and value != "" and (name, value) != ("deleted_rows", 0):
            number = f"{value:,}" if isinstance(value, int) else str(value)
            title = name.replace("_", " ")
            yield f"{title + ':':<11} {printable(number)}{sizes.get(name, '')}"
    for name, value in result["attributes"].items():
        yield f"attribute {printable(name)}: {json_text(value)}"


def version_info(table: blz.CTable) -> blz.VersionInfo:
    """Return the entry of the open version in the list of versions."""
    result = (info for info in table.versions() if info.number == table.version)
    # The entry can be missing only on a file system without locks.
    return next(result, blz.VersionInfo(table.version))


def versions(table: blz.CTable) -> Json:
    """Return the versions that exist, oldest first."""
    return {
        "path": table.path,
        "versions": [
            {
                "version": info.number,
                **_commit(info),
                "rows": info.rows,
                "columns": info.columns,
                "row_groups": info.row_groups,
                "deleted_rows": info.deleted_rows,
                **{name: getattr(info, name) for name in DONE},
                "seconds": info.seconds,
                "commit_ids": None if info.commit_ids is None else list(info.commit_ids),
                "tags": list(info.tags),
                "damage": info.damage,
            }
            for info in table.versions()
        ],
    }


def versions_lines(result: Json) -> Iterator[str]:
    """Yield a title, one line per version, and the damage of each damaged version."""
    if not result["versions"]:
        yield f"{result['path']} has no versions: another program wrote it"
        return
    facts = ("version", "time", "operation", "rows", *DONE, "seconds")
    names = (*facts, "row_groups", "commit_ids", "tags")
    columns = [[name.removeprefix("rows_").replace("_", " ")] for name in names]
    for info in result["versions"]:
        texts = {name: ", ".join(info[name] or ()) for name in ("commit_ids", "tags")}
        # What was not done stays empty.
        cells = {**info, **{name: info[name] or "" for name in DONE}, **texts}
        if info["damage"] is not None:
            cells["operation"] = "damaged"
        for name, column in zip(names, columns, strict=True):
            column.append(_cell(cells[name]))
    yield from _aligned(columns)
    for info in result["versions"]:
        if info["damage"] is not None:
            yield f"version {info['version']} is damaged: {info['damage']}"


def resolved(path: str) -> str:
    """Return the path of a table as an open table has it."""
    return path if "://" in path else os.path.realpath(os.path.expanduser(path))


def vacuumed(path: str, removed: blz.Vacuumed) -> Json:
    """Return the numbers of removed, pinned and damaged versions, and of removed files."""
    return {"path": resolved(path), **asdict(removed)}


def vacuumed_lines(result: Json) -> Iterator[str]:
    """Yield a line about the removal, and a line about versions that stay."""
    numbers = {
        name: ", ".join(map(str, result[name])) for name in ("versions", "pinned", "damaged")
    }
    if result["damaged"]:
        yield f"nothing was removed; versions with damaged manifests: {numbers['damaged']}"
    else:
        files = f"{result['files']:,} files that no version uses ({result['nbytes']:,} bytes)"
        yield f"removed: versions {numbers['versions'] or 'none'}; {files}"
    if result["pinned"]:
        yield f"kept, because they are open elsewhere: versions {numbers['pinned']}"


def _commit(info: blz.VersionInfo) -> Json:
    time = None if info.time is None else info.time.isoformat(timespec="seconds")
    return {"time": time and time.replace("+00:00", "Z"), "operation": info.operation}


def schema(table: blz.CTable) -> Json:
    """Return name and type of each column, whether it is nullable, and the digits kept."""
    digits = _digits(table)
    return {
        "columns": [
            {
                "name": field.name,
                "type": str(field.type),
                "nullable": field.nullable,
                "digits": digits.get(field.name),
            }
            for field in table.schema
        ]
    }


def streams(table: blz.CTable) -> Json:
    """Return how the streams of each column are stored."""
    return {
        "columns": [
            {"name": name, "streams": [asdict(stream) for stream in table[name].streams()]}
            for name in dict.fromkeys(table.columns)
        ]
    }


def streams_lines(result: Json) -> Iterator[str]:
    """Yield a title, and one line per stream."""
    titles = ("column", "stream", "encodings", "codecs", "nbytes", "encoded", "cbytes")
    columns = [[title] for title in titles]
    for entry in result["columns"]:
        for stream in entry["streams"]:
            texts = [" | ".join(stream[name]) for name in ("encodings", "codecs")]
            sizes = [f"{stream[name]:,}" for name in ("nbytes", "nbytes_encoded", "cbytes")]
            cells = [entry["name"], stream["name"], *texts, *sizes]
            for cell, column in zip(cells, columns, strict=True):
                column.append(_cell(cell))
    yield from _aligned(columns)


def schema_lines(result: Json) -> Iterator[str]:
    """Yield one line per column."""
    rows = [
        (
            entry["name"],
            entry["type"],
            "" if entry["nullable"] else "not null",
            "" if entry["digits"] is None else f"{entry['digits']} digits",
        )
        for entry in result["columns"]
    ]
    return _aligned([[printable(cell) for cell in column] for column in zip(*rows, strict=True)])


def head(rows: pa.Table) -> Json:
    """Return names, types and rows, each as a list because names may repeat."""
    columns = [plain_values(column) for column in rows.columns]
    return {
        "columns": rows.column_names,
        "types": [str(type_) for type_ in rows.schema.types],
        "rows": [list(row) for row in zip(*columns, strict=True)] or [[]] * rows.num_rows,
    }


def head_lines(result: Json, width: int) -> Iterator[str]:
    """Yield names and rows of as many columns as fit, then the number of the others."""
    columns = [
        [_cell(name), *(_cell(row[index]) for row in result["rows"])]
        for index, name in enumerate(result["columns"])
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
