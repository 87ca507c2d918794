"""Checksums: digests as Bloscpack writes them."""

import hashlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blztable.format.checksums import BY_NAME, CHECKSUMS, crc32


@given(st.binary(), st.binary())
def test_crc32_is_zlibs_and_goes_on_from_a_value(first, second):
    assert crc32(second, crc32(first)) == zlib.crc32(first + second)


@pytest.mark.parametrize("checksum", CHECKSUMS, ids=lambda checksum: checksum.name)
@given(data=st.binary())
def test_every_digest_has_its_size_for_every_kind_of_buffer(checksum, data):
    digest = checksum.digest(data)
    assert len(digest) == checksum.size
    assert digest == checksum.digest(bytearray(data)) == checksum.digest(memoryview(data))


def test_numbers_and_names_are_bloscpacks():
    names = ["none", "adler32", "crc32", "md5", "sha1", "sha224", "sha256", "sha384", "sha512"]
    assert [checksum.name for checksum in CHECKSUMS] == names == list(BY_NAME)
    assert [checksum.id for checksum in CHECKSUMS] == list(range(9))


def test_digests_of_four_bytes_are_little_endian():
    assert BY_NAME["adler32"].digest(b"abc") == zlib.adler32(b"abc").to_bytes(4, "little")
    assert BY_NAME["crc32"].digest(b"abc") == zlib.crc32(b"abc").to_bytes(4, "little")


@pytest.mark.parametrize("name", ["md5", "sha1", "sha224", "sha256", "sha384", "sha512"])
def test_longer_digests_are_those_of_hashlib(name):
    assert BY_NAME[name].digest(b"abc") == hashlib.new(name, b"abc").digest()
