"""The layout of tests/: a folder is a room of the package or a kind of test."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "blztable"
# Folders that mirror no folder of the package. `face` tests the files at the package's root.
KINDS = {
    "benchmarks",
    "crash",
    "damage",
    "docs",
    "face",
    "golden",
    "golden/make",
    "hostile",
    "interop",
    "nested",
    "properties",
    "stores",
    "time",
    "support",
    "support/crash",
    "support/fuzzed",
    "support/interleaved",
}
FILES = {path.relative_to(TESTS): path for path in sorted(TESTS.rglob("*.py"))}


def test_each_folder_is_a_room_of_the_package_or_a_known_kind_of_test():
    folders = {path.parent.as_posix() for path in FILES} - {"."}
    unknown = {folder for folder in folders - KINDS if not (PACKAGE / folder).is_dir()}
    assert not unknown, f"neither in blztable/ nor in KINDS: {unknown}"
    assert not KINDS - folders, f"in KINDS, but without a file: {KINDS - folders}"


def test_no_test_file_lies_at_the_root():
    assert [path.name for path in FILES if len(path.parts) == 1] == ["conftest.py"]


def test_tools_are_in_support_and_support_has_no_tests():
    wrong = [
        path.as_posix()
        for path in FILES
        if len(path.parts) > 1
        and path.parts[0] != "golden"
        and path.name != "conftest.py"
        and path.name.startswith("test_") == (path.parts[0] == "support")
    ]
    assert not wrong, wrong


def test_no_test_file_imports_another_one():
    wrong = [
        f"{name}:{node.lineno}: {node.module}"
        for name, path in FILES.items()
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ImportFrom) and re.search(r"(^|\.)test_", node.module or "")
    ]
    assert not wrong, "\n" + "\n".join(wrong)
