"""The suite of tables in one file runs, for each shape and layout."""

import one_file
import pytest


@pytest.mark.parametrize("layout", one_file.LAYOUTS)
def test_each_benchmark_of_one_file_runs(monkeypatch, layout):
    monkeypatch.setattr(one_file, "SHAPES", {"small": (100, 3)})
    suite = one_file.OneFile()
    suite.setup("small", layout)
    assert suite.path.is_file() == (layout == "file")
    suite.time_read("small", layout)
    suite.time_read_one_column("small", layout)
    suite.time_copy("small", layout)
    suite.teardown("small", layout)
    assert not suite.folder.exists()
