"""A file that cannot be read now is not damaged: verify and repair say so, in each layout."""

import errno
import os

import numpy as np
import pytest

import blztable as blz
from blztable.storage import opening

NOT_NOW = {
    "EACCES": errno.EACCES,
    "EPERM": errno.EPERM,
    "ESTALE": errno.ESTALE,
    "EMFILE": errno.EMFILE,
    "ENOMEM": errno.ENOMEM,
    "ETIMEDOUT": errno.ETIMEDOUT,
}
VERBS = {
    "verify": lambda t: t.verify(),
    "verify, fast": lambda t: t.verify(full=False),
    "repair": lambda t: t.repair(),
}


@pytest.fixture(params=["directory", "file"])
def table(request, tmp_path):
    values = {"a": np.random.default_rng(0).random(20_000)}
    path = tmp_path / "t.blz"
    blz.to_blz(values, path, storage=blz.Storage(layout=request.param, row_group_rows=10_000))
    with blz.open(path, "a") as t:
        yield t


def fail_to_read(monkeypatch, number, after):
    """Let each read of a file fail, after some."""
    real, left = opening._pread_into, [after]

    def pread(fd, *given):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(number, os.strerror(number))
        return real(fd, *given)

    def whole(fd, length, at, real=os.pread):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(number, os.strerror(number))
        return real(fd, length, at)

    monkeypatch.setattr(opening, "_pread_into", pread)
    monkeypatch.setattr(os, "pread", whole)


@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", NOT_NOW)
def test_what_cannot_be_read_now_is_raised_and_never_called_damage(
    table, monkeypatch, name, verb, after
):
    before = table.version
    with monkeypatch.context() as patch:
        fail_to_read(patch, NOT_NOW[name], after)
        with pytest.raises(blz.StorageError) as caught:
            VERBS[verb](table)
    assert caught.value.errno == NOT_NOW[name]
    assert table.version == before
    assert table.verify().is_intact


def test_a_disk_that_cannot_read_any_more_is_damage(table, monkeypatch):
    with monkeypatch.context() as patch:
        # Behind the manifest.
        fail_to_read(patch, errno.EIO, 8)
        assert table.verify().problems
    assert table.verify().is_intact
