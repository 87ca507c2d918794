"""What a notebook shows: tables with their first rows, and results as they print."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from IPython.lib.pretty import pretty

import blztable as blz
from blztable import report


def test_a_table_is_html_of_its_names_types_and_first_rows(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"<b>": ["a & b", None, *["x"] * 5], "n": range(7)}, path)
    with blz.open(path) as t:
        html = t._repr_html_()
        assert html.startswith(f"<p>CTable {path}, version 1: 7 rows x 2 columns, ")
        assert "<tr><th>&lt;b&gt;</th><th>n</th></tr><tr><td>string</td><td>int64</td></tr>" in html
        assert "<tr><td>a &amp; b</td><td>0</td></tr><tr><td>None</td><td>1</td></tr>" in html
        assert html.count("<tr>") == 2 + 5
        assert html.endswith("<p>2 more rows</p>")
        assert "<th>n</th></tr><tr><td>int64" in t[["n"]]._repr_html_()
        with t[["n"]] as few:
            assert "more columns" not in few._repr_html_()


def test_a_wide_a_long_and_an_empty_table_are_cut():
    store = blz.MemoryStore()
    far = pa.array([1 << 62], pa.int64()).cast(pa.timestamp("s"))
    blz.to_blz({**{f"c{i}": [i] for i in range(19)}, "far": far, "last": ["z" * 999]}, store)
    html = blz.open(store)._repr_html_()
    assert html.count("<th>") == 20
    assert html.endswith("<p>1 more column</p>")
    blz.create(store, {"a": int}, mode="w").close()
    assert "0 rows x 1 column, " in blz.open(store)._repr_html_()
    blz.to_blz({"long": ["z" * 999]}, store)
    assert len(blz.open(store)._repr_html_()) < 300


def test_a_damaged_table_is_shown_without_its_rows(tmp_path):
    path = tmp_path / "t.blz"
    blz.to_blz({"a": range(9)}, path)
    (file,) = (path / "data").glob("*/*.bin")
    content = bytearray(file.read_bytes())
    # Behind the chunk is its digest.
    content[-6] ^= 1
    file.write_bytes(content)
    with blz.open(path) as t:
        html = t._repr_html_()
    assert "<th>a</th>" in html
    assert "crc32 is" in html


def test_names_of_columns_are_completed():
    store = blz.MemoryStore()
    blz.to_blz({"a": [1], "b": [2]}, store)
    assert blz.open(store)._ipython_key_completions_() == ["a", "b"]


def results(t):
    """Return a result of each kind, of a table with two versions and damage."""
    t.tags["<first>"] = 1
    plan, checked = t.explain(filters="a < 2"), t.verify()
    many = [t.diff(1), t.disk_usage(), t.repair(), t.delete("a = 1"), t.row_groups[0]]
    many += [plan, plan.columns[0], t.versions()[0], t["a"].streams()[0], t.vacuum(keep=1)]
    problem = blz.Problem("it is <damaged>", "a", 0, 0, 0, 1, "data/col0/__1__.bin", True)
    source = blz.MemoryStore()
    blz.to_blz({"a": [1]}, source)
    erased, copied = t.erase("a = 2"), blz.copy(source, blz.MemoryStore())
    many += [copied, checked, replace(checked, problems=(problem,)), problem]
    return [*many, erased, *erased.left]


def test_each_kind_of_result_looks_as_it_prints_also_within_lists_and_tuples():
    store = blz.MemoryStore()
    blz.to_blz({"a": [1, 2]}, store)
    with blz.open(store, "a") as t:
        found = results(t)
    kinds = {one for one in vars(report).values() if hasattr(one, "__dataclass_fields__")}
    assert set(map(type, found)) == kinds
    for one in found:
        assert pretty(one) == str(one)
        # A line that is long puts each item on a line of its own.
        for text in (pretty([one]), pretty((one, 1)), pretty({"a": one})):
            assert str(one) in text
        assert "<pre>" in one._repr_html_()
        assert str(one) == one.__str__() != ""
        if isinstance(one, blz.Changed):
            assert repr([one]) == "[Changed(rows_deleted=1, version=3)]"
        else:
            assert repr(one) == str(one)
            assert repr([one]) == f"[{one}]"


def test_a_version_is_a_line_with_its_tags():
    store = blz.MemoryStore()
    blz.to_blz({"a": [1, 2]}, store)
    with blz.open(store, "a") as t:
        t.tags["<first>"] = 1
        first = t.versions()[0]
    assert str(first).startswith("version 1, 20")
    assert str(first).endswith(", create, 2 rows, 2 rows appended, tag '<first>'")
    assert "&lt;first&gt;" in first._repr_html_()


def test_what_a_vacuum_did_is_a_line():
    assert str(blz.Vacuumed()) == "0 versions and 0 files removed, 0 bytes"
    done = blz.Vacuumed((1,), 2, 3000, (4, 5), (6,))
    text = "1 version and 2 files removed, 3.0 kB; still open: 4, 5; damaged: 6"
    assert str(done) == text


@pytest.mark.parametrize("layout", ["directory", "file"])
def test_a_closed_table_is_one_line_and_no_traceback(tmp_path, layout):
    blz.to_blz({"<a>": [1], "b": [2]}, tmp_path / "t.blz", storage=blz.Storage(layout=layout))
    with blz.open(tmp_path / "t.blz") as t:
        pass
    html = t._repr_html_()
    assert html.startswith(f"<p>CTable {tmp_path}/t.blz, version 1: 1 row x 2 columns, ")
    assert html.endswith("t.blz was closed; open the table again</p>")
    assert "<table>" not in html
    assert repr(t) == pretty(t)


@pytest.mark.parametrize("layout", ["directory", "file"])
def test_a_table_whose_files_are_gone_says_so(tmp_path, layout):
    path = tmp_path / "t.blz"
    blz.to_blz(
        {"a": np.random.default_rng(0).random(200_000)}, path, storage=blz.Storage(layout=layout)
    )
    with blz.open(path) as t:
        for one in sorted(path.rglob("*"), reverse=True):
            one.rmdir() if one.is_dir() else one.unlink()
        path.rmdir() if layout == "directory" else path.write_bytes(b"")
        html = t._repr_html_()
    assert html.startswith(f"<p>CTable {path}, version 1: 200,000 rows x 1 column, ")
    assert html.endswith("</p>")


def test_a_dataset_names_its_columns():
    store = blz.MemoryStore()
    blz.to_blz({f"c{i}": [i] for i in range(11)}, store)
    names = ", ".join(f"c{i}" for i in range(10))
    assert repr(blz.dataset(store)) == f"<BlzDataset of 11 columns: {names}, ...>"
    assert repr(blz.open(store)[["c1"]].dataset()) == "<BlzDataset of 1 column: c1>"


def test_dir_has_the_public_names_only():
    assert dir(blz) == sorted([*blz.__all__, "__version__"])


def test_a_url_of_a_file_names_no_host():
    for use in (blz.open, blz.exists, blz.read_blz, lambda place: blz.to_blz({"a": [1]}, place)):
        with pytest.raises(ValueError, match="a URL of a file has no host"):
            use("file://host/t.blz")


def test_a_url_of_a_file_is_its_path(tmp_path):
    blz.to_blz({"a": [1]}, f"file://{tmp_path}/with%20space.blz")
    assert blz.exists(tmp_path / "with space.blz")
    assert blz.exists(f"file://localhost{tmp_path}/with%20space.blz")


def test_a_list_of_tables_is_sent_to_the_dataset():
    with pytest.raises(TypeError, match=r"dataset\(\) takes several tables"):
        blz.read_blz(["a.blz", "b.blz"])


@pytest.mark.parametrize("url", ["file://", "file://localhost", "FILE://", "file:///a%00b"])
def test_a_url_of_a_file_without_a_path_makes_no_table(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="names no path"):
        blz.to_blz({"a": [1]}, url)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="names no path"):
        blz.open(url)
    blz.to_blz({"a": [1]}, f"FILE://{tmp_path}/t.blz")
    assert blz.exists(tmp_path / "t.blz")
