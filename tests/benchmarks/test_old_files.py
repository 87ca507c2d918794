"""The suite of old files runs, on a directory that is read as it was written."""

import old_files
import pyarrow as pa

import blztable as blz


def test_each_benchmark_of_old_files_runs(monkeypatch):
    monkeypatch.setattr(old_files, "ROWS", 1000)
    monkeypatch.setattr(old_files, "CHUNK_ROWS", 300)
    suite = old_files.OldFiles()
    suite.setup()
    assert blz.read_table(suite.path).equals(pa.table(old_files.columns(1000)))
    suite.time_read()
    suite.time_filter()
    suite.time_convert()
    assert suite.track_bytes() > 0
    suite.teardown()
