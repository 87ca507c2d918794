"""Processes that change one array, and are killed; an operation has the same effect on a model."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import blztable as blz
from blztable.storage.files import LocalFile

CHUNK_ROWS = 50
MOST_ROWS = 1000
# Files whose chunks may take any values: they are stored, or have room for the worst.
FORMS = ({"clevel": 0}, {"reserve": 1 << 20, "checksum": "sha1", "order": "F"})

# An operation: its name, its number, and one more number.
Step = tuple[str, int, int]


@dataclass(frozen=True)
class State:
    """What an array holds."""

    rows: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    attrs: dict[str, int] = field(default_factory=dict)
    meta: dict[str, bytes] = field(default_factory=lambda: {"fixed": bytes(8)})
    vlmeta: dict[str, bytes] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, State)
        facts = [(one.attrs, one.meta, one.vlmeta) for one in (self, other)]
        return facts[0] == facts[1] and np.array_equal(self.rows, other.rows)


def create(place: Path, form: int) -> None:
    """Make an array without rows."""
    blz.SuperChunk.create(
        place, "f8", (0, 3), chunk_shape=(CHUNK_ROWS, 3), meta=State().meta, **FORMS[form]
    ).close()


def found(place: Path) -> State:
    """Return what a reader sees."""
    with blz.SuperChunk.open(place) as array:
        assert array.verify()
        return State(array.to_numpy(), dict(array.attrs), dict(array.meta), dict(array.vlmeta))


def steps(seed: int, first: int) -> Iterator[Step]:
    """Yield random operations without end."""
    draw = random.Random(seed)
    names = ("append", "append", "append", "assign", "assign", "chunk", "enlarge", "shrink")
    names += ("rewrite", "attribute", "fixed", "variable", "removed")
    for number in range(first, 1 << 60):
        yield draw.choice(names), number, draw.randrange(1, 120)


def rows_of(number: int, count: int) -> np.ndarray:
    """Return rows that no other operation writes."""
    return np.random.default_rng(number).normal(size=(count, 3))


def perform(array: blz.SuperChunk, step: Step) -> None:
    """Perform an operation."""
    name, number, more = step
    count = len(array)
    match name:
        case "append":
            array.append(rows_of(number, more))
        case "assign":
            array[count // 3 : count // 3 + more] = rows_of(number, min(more, count - count // 3))
        case "chunk" if array.nchunks:
            chunk = more % array.nchunks
            size = min(CHUNK_ROWS, count - chunk * CHUNK_ROWS)
            array.update_chunk(chunk, rows_of(number, size))
        case "enlarge":
            array.resize(count + more)
        case "shrink":
            array.resize(_shrunk(count, more))
        case "rewrite":
            array.rewrite()
        case "attribute":
            array.attrs["number"] = number
        case "fixed":
            array.meta.update("fixed", number.to_bytes(8, "little"))
        case "variable":
            array.vlmeta[f"layer {more % 3}"] = rows_of(number, more).tobytes()
        case "removed" if array.vlmeta:
            array.vlmeta.delete(min(array.vlmeta))


def performed(state: State, step: Step) -> State:
    """Return what the array holds after the operation."""
    name, number, more = step
    rows = state.rows.copy()
    count = len(rows)
    match name:
        case "append":
            rows = np.concatenate([rows, rows_of(number, more)])
        case "assign":
            rows[count // 3 : count // 3 + more] = rows_of(number, min(more, count - count // 3))
        case "chunk" if count:
            begin = more % -(-count // CHUNK_ROWS) * CHUNK_ROWS
            rows[begin : begin + CHUNK_ROWS] = rows_of(number, min(CHUNK_ROWS, count - begin))
        case "enlarge":
            rows = np.concatenate([rows, np.zeros((more, 3))])
        case "shrink":
            rows = rows[: _shrunk(count, more)]
        case "attribute":
            return replace(state, attrs={"number": number})
        case "fixed":
            return replace(state, meta={"fixed": number.to_bytes(8, "little")})
        case "variable":
            layer = {f"layer {more % 3}": rows_of(number, more).tobytes()}
            return replace(state, vlmeta={**state.vlmeta, **layer})
        case "removed":
            kept = sorted(state.vlmeta)[1:]
            return replace(state, vlmeta={name: state.vlmeta[name] for name in kept})
    return replace(state, rows=rows)


def _shrunk(count: int, more: int) -> int:
    return max(count - more, 0) if count < MOST_ROWS else more


def slowed(write: Callable[..., None]) -> Callable[..., None]:
    """Return a method that pauses before it writes: many kills fall between two writes."""

    def slow(*arguments: Any) -> None:
        time.sleep(random.uniform(0, 0.002))
        write(*arguments)

    return slow


def restless(pipe: Connection, place: Path, seed: int, first: int) -> None:
    """Change an array until the process is killed."""
    LocalFile.write = slowed(LocalFile.write)  # type: ignore[method-assign]
    with blz.SuperChunk.open(place, "a") as array:
        for step in steps(seed, first):
            pipe.send(("begin", step))
            perform(array, step)
            pipe.send(("done", step))


def item_of(number: int) -> str:
    """Return an item of any length that no other operation writes."""
    return f"{number} " * (number * 37 % 200)


def exchanging(pipe: Connection, place: Path, count: int, first: int) -> None:
    """Replace one of `count` items after another until the process is killed."""
    LocalFile.write = slowed(LocalFile.write)  # type: ignore[method-assign]
    with blz.SuperChunk.open(place, "a") as array:
        for number in range(first, 1 << 60):
            pipe.send(("begin", number))
            array[number % count] = item_of(number)
            pipe.send(("done", number))


def filling(pipe: Connection, place: Path, seed: int) -> None:
    """Make a new array until the process is killed; tell how many rows are appended."""
    pipe.send(0)
    array = blz.SuperChunk.create(place, "f8", (0, 3), chunk_shape=(CHUNK_ROWS, 3))
    for number in range(random.Random(seed).randrange(100)):
        array.append(rows_of(number, 20))
        pipe.send(20 * number + 20)
    array.close()
    pipe.send("closed")
    time.sleep(60)


def uniform(pipe: Connection, place: Path, seed: int) -> None:
    """Change an array until the process is killed; all items have one value, which grows."""
    LocalFile.write = slowed(LocalFile.write)  # type: ignore[method-assign]
    draw = random.Random(seed)
    while True:
        with blz.SuperChunk.open(place, "a") as array:
            pipe.send("open")
            for _ in range(draw.randrange(1, 20)):
                value = array[0, 0] if len(array) else 0
                match draw.randrange(5):
                    case 0 | 1:
                        array[:] = np.full(array.shape, value + 1)
                    case 2:
                        array.append(np.full((draw.randrange(1, 200), 3), value))
                    case 3:
                        array.resize(min(draw.randrange(1, MOST_ROWS), max(len(array), 1)))
                    case _:
                        array.rewrite()


def looking(pipe: Connection, place: Path, seconds: float) -> None:
    """Open and read in a loop; report the number of reads, and of those that had to wait."""
    end = time.monotonic() + seconds
    reads, refused, newest = 0, 0, 0.0
    while time.monotonic() < end:
        # Readers without a pause would keep the writers out.
        time.sleep(random.uniform(0, 0.03))
        try:
            with blz.SuperChunk.open(place) as array:
                values = np.unique(array.to_numpy())
        except blz.BusyError:
            refused += 1
            continue
        if len(values) > 1 or values.min(initial=newest) < newest:
            pipe.send(f"found {values} after {newest}")
            return
        reads, newest = reads + 1, float(values.max(initial=newest))
    pipe.send((reads, refused))


def racing(pipe: Connection, place: Path, writer: int, seconds: float) -> None:
    """Append numbered rows in short sessions; report the number of each append."""
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        try:
            with blz.SuperChunk.open(place, "a") as array:
                for _ in range(5):
                    array.append([[writer, number, number]])
                    pipe.send(number)
                    number += 1
                if number % 20 == 0:
                    array.rewrite()
        except blz.BusyError:
            pipe.send("busy")
