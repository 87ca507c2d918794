"""The judge judges: bloscpack gives back whole files and refuses damaged ones."""

import pytest

from support import bloscpack_reference


@pytest.fixture
def packed(tmp_path):
    """A file by bloscpack itself, of several chunks."""
    bloscpack = bloscpack_reference.import_bloscpack()
    path = tmp_path / "packed.blp"
    bloscpack.pack_bytes_to_file(bytes(range(256)) * 4096, str(path), chunk_size="256K")
    return path


def test_the_bytes_come_back(packed):
    assert packed.read_bytes()[:5] == b"blpk\x03"
    assert bloscpack_reference.bloscpack_bytes(packed) == bytes(range(256)) * 4096


def test_a_flipped_bit_is_seen(packed):
    data = bytearray(packed.read_bytes())
    data[-100] ^= 1
    packed.write_bytes(data)
    with pytest.raises(RuntimeError, match="Checksum mismatch"):
        bloscpack_reference.bloscpack_bytes(packed)


def test_another_version_is_refused(packed):
    data = bytearray(packed.read_bytes())
    data[4] = 4
    packed.write_bytes(data)
    with pytest.raises(RuntimeError, match="format version"):
        bloscpack_reference.bloscpack_bytes(packed)
