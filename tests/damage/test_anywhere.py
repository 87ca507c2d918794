"""Random damage at any place of any file: the same data, or our error that names the file.

A worker process reads each case. It must not die, hang, take 64 MiB more than the intact tables
took, or ask for 1 GiB of address space. Each run has 500 cases; a storm has more:

    BLZTABLE_CASES=20000 python -m pytest -q tests/damage/test_anywhere.py
"""

import os
import shutil
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import blztable as blz
from support import nested_arrays
from support.samples import SAMPLES
from support.worker_process import WorkerLost, WorkerProcess


def nested(place: Path) -> None:
    """Write a table of nested columns that pandas can hold, without NaN."""
    table = nested_arrays.table(40, 5).select(["list", "large list", "map", "runs", "no fields"])
    blz.to_blz(table, place, storage=blz.Storage(page_rows=8, row_group_rows=24))


TABLES = {**SAMPLES, "nested": nested}
CASES = int(os.environ.get("BLZTABLE_CASES", "80"))


def reader(intact: Path, root: Path):
    """Run in the worker: return the fault of reading a table whose files `keys` are damaged."""
    expected = {
        name: [(what, read, read(intact / name)) for what, read in readings(intact / name)]
        for name in TABLES
    }

    def answer(request: tuple[str, list[str]]) -> list[str]:
        name, keys = request
        wrong = []
        for what, read, wanted in expected[name]:
            try:
                found = read(root / name)
            except blz.BlzError as error:
                if not any(key in str(error) for key in keys):
                    wrong.append(f"{what}: {type(error).__name__} names no file: {error}")
            except BaseException as error:
                wrong.append(f"{what}: {type(error).__name__}: {error}")
            else:
                if not same(found, wanted):
                    wrong.append(f"{what}: other data")
        return wrong

    return answer


def readings(path: Path):
    """Return the ways to read a table, by name."""
    with blz.open(path) as table:
        columns, older = table.columns, range(1, table.version)
    yield "read_table", blz.read_table
    yield "read_blz", blz.read_blz
    yield "head", lambda path: first_rows(path, 9)
    if columns:
        yield "read_table(columns)", lambda path: blz.read_table(path, columns=columns[-1:])
        yield "slice", lambda path: some_rows(path, columns[0])
    for version in older:
        yield f"version {version}", lambda path, v=version: blz.read_table(path, version=v)


def first_rows(path, rows):
    with blz.open(path) as table:
        return table.head(rows)


def some_rows(path, column):
    with blz.open(path) as table:
        return table[column][5:19]


def same(found, expected) -> bool:
    if isinstance(found, pd.DataFrame):
        return (
            found.equals(expected)
            and found.columns.equals(expected.columns)
            and found.index.equals(expected.index)
            and found.attrs == expected.attrs
        )
    return found.equals(expected)


@st.composite
def damages(draw, files: dict[str, bytes]) -> dict[str, bytes]:
    """Yield some damage: the new content of one file, or of two."""
    key = draw(st.sampled_from(sorted(files)))
    content = files[key]
    kinds = ["flip", "bytes", "fill", "cut", "twice", "lost"] if content else []
    place = st.integers(0, max(len(content) - 1, 0))
    damaged = bytearray(content)
    match draw(st.sampled_from([*kinds, "more", "swap"])):
        case "flip":
            damaged[draw(place)] ^= draw(st.integers(1, 255))
        case "bytes":
            for at, value in draw(st.lists(st.tuples(place, st.integers(0, 255)), min_size=1)):
                damaged[at] = value
        case "fill":
            start, stop = sorted((draw(place), draw(place)))
            damaged[start : stop + 1] = draw(st.sampled_from([b"\0", b"\xff"])) * (stop + 1 - start)
        case "cut":
            del damaged[draw(place) :]
        case "more":
            damaged += draw(st.binary(min_size=1, max_size=64))
        case "twice":
            start, stop = sorted((draw(place), draw(place)))
            damaged[start:start] = content[start : stop + 1]
        case "lost":
            start, stop = sorted((draw(place), draw(place)))
            del damaged[start : stop + 1]
        case "swap":
            other = draw(st.sampled_from(sorted(files)))
            return {key: files[other], other: content}
    return {key: bytes(damaged)}


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """Make the undamaged tables; tests damage copies of them."""
    root = tmp_path_factory.mktemp("intact")
    for name, write in TABLES.items():
        write(root / name)
    return root


@pytest.fixture(scope="module")
def root(intact, tmp_path_factory):
    return shutil.copytree(intact, tmp_path_factory.mktemp("damaged") / "tables")


@pytest.fixture(scope="module")
def worker(intact, root):
    with WorkerProcess(reader, intact, root) as worker:
        yield worker


@pytest.mark.timeout(3600)
@settings(
    max_examples=CASES,
    deadline=None,
    phases=set(Phase) - {Phase.explain},
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_damage_anywhere_is_told_with_its_file_or_does_no_harm(root, worker, data):
    path = root / data.draw(st.sampled_from(sorted(TABLES)))
    files = {
        file.relative_to(path).as_posix(): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file()
    }
    changes = data.draw(damages(files))
    try:
        for key, content in changes.items():
            (path / key).write_bytes(content)
        assert worker.ask((path.name, list(changes))) == []
    except WorkerLost as lost:
        pytest.fail(str(lost))
    finally:
        for key in changes:
            (path / key).write_bytes(files[key])
