"""The golden tables: their folder, the facts of each version, and the rows it holds."""

import json

import pyarrow as pa

from golden.sets import unpacked

ROOT = unpacked("v1")


def facts(case: str) -> dict[int, dict]:
    """Return the facts of each version, oldest first."""
    known = json.loads((ROOT / f"{case}.expected" / "versions.json").read_bytes())
    return {number: known[str(number)] for number in sorted(map(int, known))}


def expected(case: str, version: int) -> pa.Table:
    """Return the rows of a version."""
    with pa.ipc.open_stream(ROOT / f"{case}.expected" / f"{version}.arrows") as stream:
        return stream.read_all()
