"""Calls: while a table is changed, no two files call each other.

A file that hands out a function of its own is called back. Its reader then needs both files to
follow one of them. To draw from an iterator is no call.
"""

import inspect
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pytest

import blztable as blz

ROOT = Path(blz.__file__).parent
# The rooms that change a table.
ROOMS = ("convert/", "engine/change/", "engine/version/", "engine/write/", "table/")
# Each has a reason to be called back.
CALLED_BACK = {
    # A commit asks for the changes on the newest version, under the writers' lock.
    ("engine/change/change_set.py", "engine/version/commit.py"),
    ("engine/change/creation.py", "engine/version/commit.py"),
    # A column is read to see if it has a value, only if its type depends on it.
    ("convert/append_source.py", "convert/widen.py"),
    # The tree of leaves hands each run that a change touches to the change, as `map` does.
    ("engine/version/facts.py", "engine/version/staged.py"),
    # A version keeps what is made of it, and asks for it at the first use.
    ("engine/version/staged.py", "engine/version/versions.py"),
}


def frame(rows: int) -> pd.DataFrame:
    data = {"i": np.arange(rows), "f": np.arange(rows) / 7, "c": ["x", "y"] * (rows // 2)}
    return pd.DataFrame(data).astype({"c": "category"})


CHANGES = {
    "create": lambda t, path: blz.to_blz(frame(10), path),
    "create sorted": lambda t, path: blz.to_blz(frame(10), path, sort_by="c"),
    "create from a stream": lambda t, path: blz.to_blz(
        (frame(10).assign(i=n / 2) for n in range(3)), path, sort_by="c"
    ),
    "append": lambda t, path: t.append(frame(10)),
    "update": lambda t, path: t.update({"f": pc.field("f") * 2}, where=[("i", "<", 10)]),
    "delete": lambda t, path: t.delete([("i", "<", 10)]),
    "upsert": lambda t, path: t.upsert(frame(20).assign(i=range(90, 110)), on="i"),
    "compact": lambda t, path: t.compact(sort_by="c"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_two_files_call_each_other_while_a_table_changes(change, tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz(frame(100), path)
    calls: dict[tuple[str, str], str] = {}

    def note(called, event, argument) -> None:
        code = called.f_code
        if event != "call" or code.co_flags & inspect.CO_GENERATOR or not room(called):
            return
        caller = called.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(f"{ROOT}/"):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_name != "<module>" and room(caller):
            calls.setdefault((room(caller), room(called)), code.co_qualname)

    before = sys.getprofile()
    with blz.open(path, "a") as t:
        sys.setprofile(note)
        try:
            CHANGES[change](t, tmp_path / "new.blz")
        finally:
            sys.setprofile(before)
    assert len(calls) > 20
    files = sorted({file for pair in calls for file in pair})
    both = {
        pair: (calls[pair], calls[pair[::-1]])
        for pair in combinations(files, 2)
        if pair in calls and pair[::-1] in calls and pair not in CALLED_BACK
    }
    assert not both


def room(frame) -> str:
    """Return the file of a call below the package, if it is in one of the rooms; else ""."""
    file = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
    return file if file.startswith(ROOMS) else ""
