"""What a table keeps of older versions: by default, by number, by age and by size."""

import numpy as np
import pytest

import blztable as blz
from blztable.engine.version import retention, versions
from support.options import arguments

RANDOM = np.random.default_rng(0)


@pytest.fixture(params=["directory", "file"])
def path(request, tmp_path):
    path = tmp_path / "t.blz"
    rewrite(path, layout=request.param)
    return path


def rewrite(path, **options):
    """Write about 80 kB that do not compress."""
    blz.to_blz({"n": RANDOM.integers(0, 1 << 62, 10_000)}, path, **arguments(**options))


def numbers(path):
    with blz.open(path) as t:
        return [one.number for one in t.versions()]


def test_a_table_that_is_written_ten_times_keeps_one_version_beside_the_newest(path):
    for number in range(2, 11):
        rewrite(path)
        assert numbers(path) == [number - 1, number]


def test_the_versions_between_two_writes_go_with_the_second_write(path):
    for number in range(3):
        blz.to_blz({"n": [number]}, path, mode="a")
    assert numbers(path) == [1, 2, 3, 4]
    rewrite(path)
    assert numbers(path) == [4, 5]
    blz.to_blz({"n": [1]}, path, mode="a")
    assert numbers(path) == [4, 5, 6]


@pytest.mark.parametrize(
    "setting", [{"keep_versions": 5}, {"keep_seconds": 3600}, {"keep_bytes": 10**9}]
)
def test_a_table_with_a_setting_of_its_own_keeps_what_that_says(path, setting):
    with blz.open(path, "a") as t:
        t.configure(**setting)
    for _ in range(4):
        rewrite(path)
    kept = [2, 3, 4, 5, 6] if "keep_versions" in setting else [1, 2, 3, 4, 5, 6]
    assert numbers(path) == kept


def test_a_version_that_a_reader_has_open_stays_when_the_table_is_written_again(path):
    with blz.open(path) as reader:
        for _ in range(3):
            rewrite(path)
        if path.is_dir():
            assert numbers(path) == [1, 3, 4]
        assert reader.to_arrow().num_rows == 10_000
    rewrite(path)
    assert numbers(path) == [4, 5]


def test_the_oldest_versions_go_when_they_take_more_than_the_bytes_given(path):
    with blz.open(path, "a") as t:
        t.configure(keep_bytes=200_000)
    for number in range(3, 8):
        rewrite(path)
        # Versions 1 and 2 share their file.
        assert numbers(path) == {3: [1, 2, 3], 4: [1, 2, 3, 4]}.get(
            number, [number - 2, number - 1, number]
        )


def test_versions_that_share_all_files_with_the_newest_take_only_their_manifests(path):
    with blz.open(path, "a") as t:
        t.configure(keep_bytes=30_000)
        for number in range(5):
            t.attrs["turn"] = number
        assert numbers(path) == [1, 2, 3, 4, 5, 6, 7]


def test_appends_in_quick_succession_keep_to_the_bytes_too(path):
    with blz.open(path, "a") as t:
        t.configure(keep_versions=1000, keep_bytes=0)
        for number in range(3):
            t.append({"n": [number]})
    # Each commit pins the version that it was made from.
    assert len(numbers(path)) == 2


def test_a_damaged_version_is_taken_for_empty_and_the_rest_keeps_to_the_bytes(tmp_path):
    path = tmp_path / "t.blz"
    rewrite(path)
    with blz.open(path, "a") as t:
        t.configure(keep_bytes=200_000)
    rewrite(path)
    (path / "meta/manifest" / f"{2:020}").write_bytes(b"damaged")
    rewrite(path)
    assert numbers(path) == [1, 2, 3, 4]
    with blz.open(path) as t:
        (store, head) = t._snapshot.version.store, t._snapshot.version
        limits = retention.RetentionLimits(10, 3600, 100_000)
        assert retention.all_expired(head, versions.numbers(store), limits) == [1]


def test_vacuum_keeps_to_the_bytes_of_the_table(path):
    with blz.open(path, "a") as t:
        t.configure(keep_versions=10)
    for _ in range(3):
        rewrite(path)
    with blz.open(path, "a") as t:
        # Its base stays open until it is committed.
        t.configure(keep_bytes=0)
        assert t.vacuum().versions == (5,)
        assert numbers(path) == [6]


def test_bytes_below_zero_are_refused(path):
    with blz.open(path, "a") as t, pytest.raises(ValueError, match="bytes"):
        t.configure(keep_bytes=-1)
