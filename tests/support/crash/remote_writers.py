"""Processes that change a table at any address: they race, lose replies, or are killed.

Each tells what became of each change: "made", "failed", or "unknown", if the library says so. The
test compares that with what is in the table. No commit has a name of its own.
"""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count, islice
from multiprocessing.connection import Connection

import blztable as blz
from support.crash.stress import balanced

# An address, and the options to reach it.
Place = tuple[str, dict[str, str] | None]
# A change: "append" or "delete", a writer, and a number; then what became of it.
Told = tuple[str, int, int, str]
ROWS = 2


def opened(place: Place, mode: str = "r") -> blz.CTable:
    """Open the table to read, or to change it."""
    address, options = place
    return blz.open(address, mode, storage_options=options)


def reopened(place: Place) -> blz.CTable:
    """Open the table to change it; again if requests failed."""
    while True:
        with suppress(blz.StorageError):
            return opened(place, "a")


def outcome(change: Callable[[], object]) -> str:
    """Make a change; return what is said of it."""
    try:
        change()
    except blz.CommitUnknownError:
        return "unknown"
    except (blz.StorageError, blz.ConflictError):
        return "failed"
    return "made"


def changing(pipe: Connection, place: Place, writer: int, appends: int) -> None:
    """Append, delete some of it again, and compact, in a table that is opened anew at times."""
    draw = random.Random(writer)
    numbers = iter(range(appends))
    while some := list(islice(numbers, draw.randrange(1, 20))):
        with reopened(place) as table:
            for number in some:
                said = outcome(lambda number=number: table.append(balanced(writer, number, 1)))
                pipe.send(("append", writer, number, said))
                if draw.random() < 0.1 and number > 2:
                    old = [("writer", "==", writer), ("number", "==", number - 2)]
                    said = outcome(lambda old=old: table.delete(old))
                    pipe.send(("delete", writer, number - 2, said))
                if draw.random() < 0.1:
                    outcome(table.compact)


def endless(pipe: Connection, place: Place, writer: int) -> None:
    """Append until the process is killed; tell of each append before and after it."""
    with opened(place, "a") as table:
        for number in count():
            pipe.send(("append", writer, number, "unknown"))
            table.append(balanced(writer, number, 1))
            pipe.send(("append", writer, number, "made"))


def differences(place: Place, told: list[Told]) -> list[str]:
    """Return what the newest version has otherwise than the writers were told."""
    said: dict[tuple[int, int], dict[str, str]] = {}
    for change, writer, number, what in told:
        said.setdefault((writer, number), {})[change] = what
    with opened(place) as table:
        rows = table.to_arrow().to_pydict()
    found = Counter(zip(rows["writer"], rows["number"], strict=True))
    wrong = [f"{key}: nobody appended it" for key in found.keys() - said.keys()]
    for key, changes in said.items():
        if found[key] not in _possible(changes["append"], changes.get("delete", "failed")):
            wrong.append(f"{key}: {changes}, and there are {found[key]} rows")
    return wrong


def _possible(append: str, delete: str) -> set[int]:
    """Return the numbers of rows that may be there."""
    appended = {"made": {ROWS}, "failed": {0}, "unknown": {0, ROWS}}[append]
    return {"made": {0}, "failed": appended, "unknown": {0, *appended}}[delete]
