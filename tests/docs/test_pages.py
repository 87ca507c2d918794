"""The code in README, docs/, docstrings and examples/ runs.

The ```python blocks of a document share a namespace and an empty working directory. A block marked
```python no-run is left out; it shows code that promises nothing.

Each document runs twice: its tables are directories, and then files. A block marked
```python directory shows the files of a directory, and its page says so. With files something else
runs in its place.
"""

import doctest
import importlib
import re
import runpy
import shutil
from pathlib import Path

import pytest

import blztable
from blztable.storage import resolve
from blztable.storage.one_file import store as one_file
from support.random_conditions import PRUNED

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def damage_a_column() -> None:
    """Change a byte of a column, as docs/how-to/damaged-tables.md does."""
    path = Path("sensor.blz")
    places = dict(one_file.at(path)._current().listing.values())
    data = bytearray(path.read_bytes())
    (part,) = [one for key, one in places.items() if key.startswith("data/col0/")]
    data[part.position + part.length // 2] ^= 1
    path.write_bytes(data)


def damage_the_newest_manifest() -> None:
    """Damage the newest commit, as docs/how-to/go-back.md does."""
    path = Path("t.blz")
    data = bytearray(path.read_bytes())
    data[data.rindex(b'"operation"')] ^= 1
    path.write_bytes(data)


def nothing() -> None:
    """Run nothing: the block is about the files of a directory, and no later block needs it."""


# What runs in place of the marked blocks of a document if its tables are files.
IN_ONE_FILE = {
    "how-to/damaged-tables.md": damage_a_column,
    "how-to/go-back.md": damage_the_newest_manifest,
    # The data file of a part of a directory.
    "how-to/arrays.md": nothing,
    # A column by hand; one_file.py of tests/golden reads a file by hand.
    "format.md": nothing,
    # `cp -r` of a directory.
    "crash-safety.md": nothing,
    # A file has one writer.
    "how-to/workers.md": nothing,
}
# Their commands run between their blocks of Python: test_cli_page.py runs both.
WITH_COMMANDS = {"csv.md", "parquet-and-sql.md"}
DOCUMENTS = sorted(
    path
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if path.name not in WITH_COMMANDS
)
FENCE = re.compile(r"^```python([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

PACKAGE = Path(next(iter(blztable.__path__)))
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)

# Their examples damage a file in a directory, or have several writers at a time.
OF_DIRECTORIES = {"blztable.errors", "blztable.report", "blztable.workers"}


# ibis calls a function that DuckDB is about to drop.
@pytest.mark.filterwarnings("ignore:fetch_arrow_table")
@pytest.mark.parametrize("layout", resolve.LAYOUTS)
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_code_in_the_documents_runs(document, layout, tmp_path, tuned, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tuned(layout=layout)
    namespace = {"__name__": document.stem}
    for line, code, is_of_directory in python_blocks(document.read_text(encoding="utf-8")):
        if is_of_directory and layout == "file":
            IN_ONE_FILE[document.relative_to(ROOT / "docs").as_posix()]()
        elif code.lstrip().startswith(">>>"):
            run_session(code, namespace, document, line)
        else:
            # Empty lines before the block give a traceback the document's own line numbers.
            exec(compile("\n" * line + code, document, "exec"), namespace)


@pytest.mark.parametrize(
    ("module", "layout"),
    [
        (module, layout)
        for module in MODULES
        for layout in resolve.LAYOUTS
        if layout == "directory" or module not in OF_DIRECTORIES
    ],
)
def test_the_examples_in_the_docstrings_run(module, layout, tmp_path, tuned, monkeypatch):
    tuned(layout=layout)
    # Each docstring begins in an empty directory, like its reader.
    failed = 0
    for number, example in enumerate(doctest.DocTestFinder().find(importlib.import_module(module))):
        directory = tmp_path / str(number)
        directory.mkdir()
        monkeypatch.chdir(directory)
        failed += doctest.DocTestRunner(optionflags=OPTIONS).run(example).failed
    assert failed == 0, f"{failed} examples of {module} fail; see the captured output"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_run(example, monkeypatch, capsys):
    monkeypatch.syspath_prepend(example.parent)
    runpy.run_path(str(example), run_name="__main__")
    assert "flights" in capsys.readouterr().out


def test_the_types_that_are_said_to_prune_are_those_that_do():
    # Arrow's names, except for floats, whose names in Python have a width.
    floats = {"halffloat": "float16", "float": "float32", "double": "float64"}
    names = {re.split(r"[\[(]", str(type_))[0] for type_ in PRUNED}
    text = (ROOT / "docs" / "how-to" / "query.md").read_text(encoding="utf-8")
    section = text.partition("### The types that prune\n")[2].partition("\n### ")[0]
    said = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\|([^|]*)\|", section, re.MULTILINE)))
    assert sorted(said) == sorted({"dictionary", *(floats.get(name, name) for name in names)})


def test_the_recipe_for_a_copy_holds_while_versions_come_and_go(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document = ROOT / "docs" / "crash-safety.md"
    first, recipe = (code for _, code, _ in python_blocks(document.read_text(encoding="utf-8")))
    exec(first, {})
    with blztable.open("live.blz", "a") as other:
        for n in range(4):
            other.append({"n": [n]}, index=False)
    gone = []

    def copied(source: str, target: str) -> None:
        if "manifest" in source and not gone:
            gone.extend(Path(source).parent.iterdir())
            with blztable.open("live.blz", "a") as other:
                other.configure(keep_versions=1, keep_seconds=0)
                other.append({"n": [4]}, index=False)
        shutil.copy2(source, target)

    defaults = shutil.copytree.__defaults__
    mine = tuple(copied if value is shutil.copy2 else value for value in defaults)
    monkeypatch.setattr(shutil.copytree, "__defaults__", mine)
    exec(recipe, {"blz": blztable})
    assert sum(not path.exists() for path in gone) > 1
    assert blztable.read_table("backup.blz")["n"].to_pylist() == [1, 2, 3, 0, 1, 2, 3]


def test_blocks_are_found_and_marked_ones_left_out():
    text = "a\n```python\nx\n```\n```python no-run\ny\n```\n```sh\nz\n```\n"
    text += "```python directory\nw\n```\n"
    assert python_blocks(text) == [(2, "x\n", False), (11, "w\n", True)]


def test_a_block_that_is_only_for_directories_is_in_the_list():
    marked = {
        document.relative_to(ROOT / "docs").as_posix()
        for document in (ROOT / "docs").rglob("*.md")
        if any(block[2] for block in python_blocks(document.read_text(encoding="utf-8")))
    }
    assert marked == set(IN_ONE_FILE)


def python_blocks(text: str) -> list[tuple[int, str, bool]]:
    """Return the blocks to run: the number of lines before them, the code, True for directories."""
    return [
        (text.count("\n", 0, match.start(2)), match[2], match[1].strip() == "directory")
        for match in FENCE.finditer(text)
        if match[1].strip() != "no-run"
    ]


def run_session(code: str, namespace: dict, document: Path, line: int) -> None:
    """Run a block of ``>>>`` lines and compare the output."""
    test = doctest.DocTestParser().get_doctest(code, {}, document.name, str(document), line)
    test.globs = namespace
    result = doctest.DocTestRunner(optionflags=OPTIONS).run(test, clear_globs=False)
    assert result.failed == 0, f"{document.name}: {result.failed} examples fail; see the output"
