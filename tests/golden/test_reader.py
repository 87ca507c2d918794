"""The reader written from docs/format.md accepts and refuses the same tables as blztable.

`reader.py` is that reader. Where the two differ, the page decides which one is wrong.
"""

import ast
import contextlib
import random
import re
import shutil
import sys
import zlib
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pyarrow as pa
import pytest

import blztable as blz
from blztable.format.records import LENGTHS, VALUES
from golden import array_reader, page_files, reader, stated
from golden.make.v1 import CASES, FACTS
from golden.tables import ROOT, expected, facts
from support import tamper
from support.bit_equality import bits
from support.copied_stores import copied, values
from support.record_edits import all_edits
from support.small_tables import FORMS, store_of

# The libraries that the page requires besides the standard library.
MAY_IMPORT = {
    page_files: set(),
    reader: {"numpy", "blosc", "pyarrow", "golden.page_files"},
    array_reader: {"numpy", "golden.page_files", "golden.reader"},
}
# A base above 2^53 has no certain double, and no writer writes it.
TOO_LARGE = re.compile(r"stream 1 word \d+ = -?9\d{18}$")
FEW = 101
EVERY = pytest.param(1, marks=[pytest.mark.storm, pytest.mark.timeout(7200)])


@pytest.mark.parametrize("module", MAY_IMPORT, ids=lambda module: module.__name__)
def test_the_readers_import_nothing_of_the_package(module):
    imported = set()
    for node in ast.walk(ast.parse(Path(module.__file__).read_bytes())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, node.lineno
            module_name = str(node.module)
            is_own = module_name.startswith("golden.")
            imported.add(module_name if is_own else module_name.split(".")[0])
        elif isinstance(node, ast.Name):
            assert node.id not in ("__import__", "exec", "eval"), node.lineno
    assert imported - sys.stdlib_module_names == MAY_IMPORT[module]
    assert not imported & {"importlib", "runpy", "subprocess"}


def test_the_reader_takes_of_pyarrow_the_schema_and_its_types():
    tree = ast.parse(Path(reader.__file__).read_bytes())
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "pa"
    }
    types = {"string", "binary", "large_string", "large_binary", "string_view", "binary_view"}
    types |= {"struct", "list_", "null", "int8", "bool_", "uint64", "float64"}
    assert used <= {"ipc", "py_buffer", "types", "Schema", "DataType", "ArrowInvalid", *types}


@pytest.mark.parametrize("case", CASES)
def test_every_version_is_read_to_the_same_values(case):
    place = ROOT / f"{case}.blz"
    assert reader.versions(place) == list(facts(case))
    for number, known in facts(case).items():
        found, wanted = reader.read(place, number), expected(case, number)
        assert {key: found.head[key] for key in FACTS} == known
        assert found.schema.names == wanted.schema.names
        for name, column, other in zip(
            wanted.column_names, found.columns, wanted.columns, strict=True
        ):
            assert column.rows == bits(other), (number, name)
        stated.check_version(found)


# Damage


def copied_case(case: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / f"{case}.blz", tmp_path / "t.blz"))


def test_every_flipped_byte_that_says_something_of_values_is_refused(tmp_path):
    """What is said for Bloscpack alone is not read: headers, metadata, offsets, digests."""
    place = copied_case("small-texts", tmp_path)
    wanted = [column.rows for column in reader.read(place).columns]
    files = [path for path in place.rglob("*") if path.is_file() and path.stat().st_size]
    files = [path for path in files if path.parent.name in ("manifest", "leaf", "col0")]
    assert len(files) == 2
    for file in files:
        data = file.read_bytes()
        for at in range(random.randrange(3), len(data), 3):
            file.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
            try:
                found = [column.rows for column in reader.read(place).columns]
            except reader.Refused:
                continue
            assert file.parent.name == "col0", at
            assert found == wanted
        file.write_bytes(data)


@pytest.mark.parametrize("name", ["data", "data/col0", "data/col0/__1__.bin", "meta/manifest"])
def test_a_symbolic_link_below_the_root_is_refused(tmp_path, name):
    place = tmp_path / "t.blz"
    blz.to_blz({"n": range(5)}, place, storage=blz.Storage(encoding="plain"))
    (place / name).rename(tmp_path / "elsewhere")
    (place / name).symlink_to(tmp_path / "elsewhere")
    both_refuse(place)


def test_a_symbolic_link_to_the_root_is_followed(tmp_path):
    (tmp_path / "link.blz").symlink_to(copied_case("sort-by", tmp_path))
    assert reader.read(tmp_path / "link.blz").head["rows"] == 5
    assert blz.read_table(tmp_path / "link.blz").num_rows == 5


def both_refuse(place: Path) -> None:
    with pytest.raises(reader.Refused):
        reader.read(place)
    with pytest.raises(blz.BlzError):
        blz.read_table(place)


# Lies: the checksums are right, and the content is wrong.


def written(store, place: Path) -> Path:
    for key, data in values(store).items():
        file = place / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return place


@pytest.mark.parametrize("step", [FEW, EVERY])
@pytest.mark.parametrize("name", FORMS)
def test_what_both_read_of_a_resealed_table_is_the_same(name, step, tmp_path):
    store = store_of(name)
    place = written(store, tmp_path / "t.blz")
    with tamper.editing(copied(store)) as table:
        edits = [(what, edit) for what, edit in all_edits(table) if not TOO_LARGE.search(what)]
    for what, edit in edits[random.randrange(step) :: step]:
        with tamper.editing(copied(store)) as table:
            edit(table)
        written(table.store, place)
        ours = theirs = None
        with contextlib.suppress(reader.Refused):
            ours = [column.rows for column in reader.read(place).columns]
        with contextlib.suppress(blz.BlzError):
            theirs = [bits(column) for column in blz.read_table(place).columns]
        written(store, place)
        # The product may refuse more, and must refuse what the page does.
        assert theirs is None or ours == theirs, what


DATA = pa.table(
    {
        "n": pa.array([1, None, *range(7)], pa.int32()),
        "s": [None, "b", "äö", "", "c" * 9, "d", "e", "f", "g"],
        "b": [True, False, True] * 3,
        "list": pa.array([[1], [], [2, 3]] * 3),
        "runs": pa.array([1] * 9).dictionary_encode(),
        "decimal": pa.array([1, 2, 3] * 3).cast(pa.decimal128(19, 0)),
    }
)
N, S, B, LIST, _, CODED, DECIMAL = range(7)
Edit = Callable[[tamper.Table], None]


def data_of(column: int, name: int, data: bytes) -> Edit:
    return lambda table: table.part(column).streams[name].set_data(data)


def removed(key: str) -> Edit:
    return lambda table: table.head.pop(key)


LIES: dict[str, Edit] = {
    "text that is not UTF-8": data_of(S, VALUES, b"b\xff\xfe\xb6\xc3" + b"c" * 9 + b"defg"),
    "text cut inside a character": data_of(
        S, LENGTHS, bytes([0, 1, 3, 1, 9, 1, 1, 1, 1] + [0] * 7)
    ),
    "lengths beyond the values": data_of(S, LENGTHS, bytes([0, 1, 4, 0, 9, 1, 1, 1, 2] + [0] * 7)),
    "lengths of a page": data_of(S, LENGTHS, bytes([0, 1, 4, 0, 9, 1, 1, 2, 0] + [0] * 7)),
    "a boolean of 2": data_of(B, VALUES, bytes([2] * 9)),
    "a code of no item": data_of(CODED, VALUES, bytes([9] * 16)),
    "more digits": data_of(DECIMAL, VALUES, b"\xff" * 8 + b"\x7f" * 8 + bytes(16 * 8)),
    "no requires": removed("requires"),
    "a version of another file": lambda table: table.head.update(version=2),
    "a feature of later": lambda table: table.head.update(requires=["later"]),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_behind_right_checksums_is_refused_by_both(tmp_path, lie):
    place = tmp_path / "t.blz"
    blz.to_blz(DATA, place, storage=blz.Storage(page_rows=8, encoding="plain"))
    assert [column.rows for column in reader.read(place).columns] == list(map(bits, DATA.columns))
    with tamper.editing(place) as table:
        LIES[lie](table)
    both_refuse(place)


@pytest.mark.parametrize("bundled", [0, 64 << 10])
def test_a_file_of_two_row_groups_is_refused_by_both(tmp_path, tuned, bundled):
    tuned(bundled_bytes=bundled)
    place = tmp_path / "t.blz"
    rows = pa.concat_tables([DATA, DATA])
    blz.to_blz(rows, place, storage=blz.Storage(row_group_rows=9, page_rows=8, encoding="plain"))
    assert [column.rows for column in reader.read(place).columns] == list(map(bits, rows.columns))
    with tamper.editing(place) as table:
        leaf = table.leaf()
        leaf.groups["file"][1] = leaf.groups["file"][0]
        for parts in leaf.columns:
            parts[1] = deepcopy(parts[0])
    both_refuse(place)


@pytest.mark.parametrize("at", [pytest.param(8, id="position"), pytest.param(16, id="length")])
def test_a_foot_whose_index_lies_elsewhere_is_none_to_both(tmp_path, at):
    place = tmp_path / "t.blz"
    blz.to_blz(DATA, place, storage=blz.Storage(layout="file"))
    blz.to_blz(DATA, place, mode="a")
    assert reader.read(place).head["version"] == 2
    data = bytearray(place.read_bytes())
    end = data.rfind(b"blzf-end") + 8
    _, block, index, *_ = page_files.FOOT.unpack_from(data, end - page_files.FOOT.size)
    head = index - page_files.RECORD.size
    data[head + at] ^= 1
    data[head + 28 : head + 32] = zlib.crc32(data[head : head + 28]).to_bytes(4, "little")
    data[end - 12 : end - 8] = zlib.crc32(data[block : end - 12]).to_bytes(4, "little")
    # Without the seal behind it, the commit counts as not written.
    place.write_bytes(data[:end])
    assert reader.read(place).head["version"] == 1
    with pytest.warns(UserWarning, match="version 1 is the newest one that is whole"):
        assert blz.read_table(place).num_rows == len(DATA)


NOT_CHECKED: dict[str, Edit] = {
    "null slots": lambda table: (
        table.part(N)
        .streams[VALUES]
        .set_data(
            bytes([1, 0, 0, 0, 77] + [0] * 3 + [n for row in range(7) for n in (row, 0, 0, 0)])
        )
    ),
    "metadata of a file": lambda table: table.file(N).metadata.update(uuid="other"),
    "a digest": lambda table: setattr(table.file(N), "digests", [bytes(4)] * 2),
    "bytes of a part": lambda table: table.part(N).record.__setitem__("nbytes", 7),
    "a bound": lambda table: table.part(N).pages["max"].__setitem__(0, 99),
    "who wrote it": lambda table: table.head.update(writer="?", operation="?", did={}),
}


@pytest.mark.parametrize("change", NOT_CHECKED)
def test_what_a_reader_need_not_check_changes_no_value(tmp_path, change):
    place = tmp_path / "t.blz"
    blz.to_blz(DATA, place, storage=blz.Storage(page_rows=8, encoding="plain"))
    with tamper.editing(place) as table:
        NOT_CHECKED[change](table)
    assert [column.rows for column in reader.read(place).columns] == list(map(bits, DATA.columns))
    assert list(map(bits, blz.read_table(place).columns)) == list(map(bits, DATA.columns))
