"""The commands that copy a table: pack, unpack and recover."""

import subprocess
import sys

import pyarrow as pa
import pytest

import blztable as blz
from blztable.cli import main

DATA = pa.table({"n": range(100), "text": [f"x{number % 7}" for number in range(100)]})
BLZ = [sys.executable, "-m", "blztable"]


@pytest.fixture
def path(tmp_path):
    blz.to_blz(DATA, tmp_path / "t.blz", storage=blz.Storage(row_group_rows=30))
    return tmp_path / "t.blz"


def test_pack_makes_a_file_and_unpack_a_directory(path, tmp_path, capsys):
    assert main(["pack", str(path), str(tmp_path / "one.blz")]) == 0
    assert main(["unpack", str(tmp_path / "one.blz"), str(tmp_path / "again.blz")]) == 0
    assert (tmp_path / "one.blz").is_file()
    assert (tmp_path / "again.blz").is_dir()
    assert blz.read_table(tmp_path / "one.blz") == blz.read_table(tmp_path / "again.blz") == DATA
    assert capsys.readouterr() == ("", "")


def test_pack_and_unpack_send_a_table_through_a_pipe(path, tmp_path):
    sender = subprocess.Popen([*BLZ, "pack", path, "-"], stdout=subprocess.PIPE)
    with sender:
        done = subprocess.run(
            [*BLZ, "unpack", "-", tmp_path / "again.blz"], stdin=sender.stdout, check=False
        )
    assert (sender.returncode, done.returncode) == (0, 0)
    assert blz.read_table(tmp_path / "again.blz") == DATA


def test_a_stream_that_is_cut_short_is_told_and_recovered(path, tmp_path, capsys):
    file = tmp_path / "cut.blz"
    blz.to_blz(DATA, file, storage=blz.Storage(layout="file", row_group_rows=30))
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])
    assert main(["unpack", str(file), str(tmp_path / "no.blz")]) == 3
    assert "blz: " in capsys.readouterr().err
    assert not (tmp_path / "no.blz").exists()
    assert main(["info", str(file)]) == 3
    assert "was never finished" in capsys.readouterr().err
    assert main(["recover", str(file), str(tmp_path / "saved.blz")]) == 0
    found = blz.read_table(tmp_path / "saved.blz")
    assert found == DATA[: found.num_rows]
    assert capsys.readouterr().out == f"recovered: rows 0 to {found.num_rows}\n"


@pytest.mark.parametrize("command", ["pack", "unpack", "recover"])
@pytest.mark.parametrize("version", ["1", "first"])
def test_a_copy_is_of_the_version_that_is_named_by_number_or_tag(tmp_path, command, version):
    file, target = tmp_path / "one.blz", tmp_path / "copy.blz"
    blz.to_blz(DATA, file, storage=blz.Storage(layout="file"))
    with blz.open(file, "a") as table:
        table.tags["first"] = 1
        table.append(DATA)
    assert main([command, str(file), str(target), "--version", version]) == 0
    assert blz.read_table(target) == DATA
    assert main([command, str(file), str(tmp_path / "no.blz"), "--version", "other"]) == 1
    assert not (tmp_path / "no.blz").exists()


def test_a_copy_replaces_nothing(path, tmp_path, capsys):
    for command in ("pack", "unpack"):
        assert main([command, str(path), str(path)]) == 1
        assert "blz: " in capsys.readouterr().err
    assert blz.read_table(path) == DATA
    assert main(["pack", str(path), ""]) == 2
    assert "the path is empty" in capsys.readouterr().err


def test_pack_does_not_write_to_a_terminal(path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["pack", str(path), "-"]) == 2
    assert "a table is not text" in capsys.readouterr().err
