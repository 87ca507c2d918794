"""Paths consist of numbers, and only names that we make are ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.format import layout

NUMBERS = st.integers(0, 10**18 - 1)
FOREIGN = [
    "",
    ".",
    "..",
    "a",
    "-1",
    " 1",
    "1 ",
    "+1",
    "0x1",
    "\uff11",
    "\u0663",
    "\xb2",
    "1\n",
    "1e3",
    "_1",
    "1_0",
]


@given(st.integers(1, layout.MAX_VERSION))
def test_a_manifest_is_named_by_its_version(version):
    prefix, _, name = layout.manifest(version).rpartition("/")
    assert prefix == layout.MANIFESTS
    assert layout.manifest_version(name) == version


@given(st.lists(st.integers(1, layout.MAX_VERSION)))
def test_names_of_manifests_sort_like_their_versions(versions):
    assert [layout.manifest(v) for v in sorted(versions)] == sorted(map(layout.manifest, versions))


@given(st.lists(NUMBERS, min_size=1, max_size=3), st.integers(1, 10**18 - 1))
def test_a_part_is_named_by_its_column_and_number(path, k):
    data, *columns, name = layout.part(tuple(path), k).split("/")
    assert data == layout.DATA
    assert [layout.column_id(column) for column in columns] == path
    assert layout.part_number(name) == k


@pytest.mark.parametrize("text", [*FOREIGN, "01", "1" * 19])
def test_another_name_is_no_columns_and_no_parts(text):
    assert layout.column_id(f"col{text}") is None
    assert layout.part_number(f"__{text}__.bin") is None
    assert layout.part_number(f"__{text}__.bin.tmp") is None


@pytest.mark.parametrize(
    "text", ["0" * 20, "1", "0" * 19, "0" * 20 + "1", "1" * 20 + "\n", "\uff11" * 20]
)
def test_another_name_is_no_manifests(text):
    assert layout.manifest_version(text) is None


def test_part_0_and_version_0_are_never_named():
    assert layout.part_number("__0__.bin") is None
    with pytest.raises(AssertionError):
        layout.part((0,), 0)
    with pytest.raises(AssertionError):
        layout.manifest(0)
    with pytest.raises(AssertionError):
        layout.manifest(layout.MAX_VERSION + 1)
