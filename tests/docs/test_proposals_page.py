"""docs/proposals.md: every file, public name, test and row that it refers to exists.

The texts of the proposals are not part of this repository, so nothing compares the quotes.
"""

import inspect
import re
import tomllib
from pathlib import Path

import pytest

import blztable as blz

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "proposals.md").read_text(encoding="utf-8")
ROW = re.compile(r"\| ([0-4M]\.\d+) \| (.+) \| (\w+) \| (.*) \| (.*) \|")
ROWS = {row[1]: row for row in map(ROW.fullmatch, PAGE.splitlines()) if row}
STATES = ("works", "missing", "different")
TESTS = [
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^ *def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
]


def test_the_page_counts_its_rows():
    counts = [sum(row[3] == state for row in ROWS.values()) for state in STATES]
    assert sum(counts) == len(ROWS) == 149
    works, missing, different = counts
    assert (
        f"Of 149 sentences, {works} work, {missing} are missing, and in {different} we differ on "
        "purpose."
    ) in PAGE


@pytest.mark.parametrize("number", ROWS)
def test_a_row_names_what_shows_it_or_says_why_we_differ(number):
    row = ROWS[number]
    same = re.match(r"as ([0-4]\.\d+)", row[4])
    if same and not row[5]:
        assert ROWS[same[1]][3] == row[3]
        assert not ROWS[same[1]][4].startswith("as ")
        return
    if row[3] == "works":
        assert names_in(row[4]), "no file and no public name"
        assert names_in(row[5]), "no test"
    else:
        assert len(row[4]) > 40, "no reason"


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_each_test_is_in_the_suite():
    named = {name for row in ROWS.values() for name in names_in(row[5])}
    assert {name: TESTS.count(name) for name in named} == dict.fromkeys(named, 1)


def test_each_file_and_public_name_is_there():
    for name in {name for row in ROWS.values() for name in names_in(row[4])}:
        public = re.fullmatch(r"blz\.([\w.]+)(?:\((\w+)=.*\))?", name)
        if re.search(r"\.(py|md|toml)$", name):
            assert (ROOT / name).is_file(), name
        elif public:
            found = blz
            for part in public[1].split("."):
                found = getattr(found, part)
            assert public[2] is None or public[2] in inspect.signature(found).parameters, name


def test_the_package_needs_what_the_page_says():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.match(r"\w+", text)[0] for text in project["dependencies"]}
    assert needed == {"pandas", "pyarrow", "blosc", "numpy", "isal"}
    tools = {re.match(r"\w+", text)[0] for text in project["optional-dependencies"]["test"]}
    assert {"pytest", "hypothesis"} <= tools


def test_the_package_has_the_places_that_the_page_says():
    for name in ("pyproject.toml", "blztable", "tests", "examples", "docs", "asv.conf.json"):
        assert (ROOT / name).exists(), name
