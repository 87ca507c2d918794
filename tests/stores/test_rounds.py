"""Rounds: how many requests a verb makes of a far table, and how many follow one another.

The numbers are golden: a change that needs more requests or rounds is seen here.
"""

import numpy as np
import pandas as pd
import pytest

import blztable as blz
from support.remote_places import options_of

URL = "s3://bucket/t.blz"
GROUPS, ROWS = 12, 2_400


def frame(first, rows):
    """Return rows of a number, a text and a category."""
    numbers = np.arange(first, first + rows)
    words = pd.Categorical(numbers % 3, categories=[0, 1, 2]).rename_categories(["a", "bb", "c"])
    return pd.DataFrame({"n": numbers, "text": [f"text {n}" for n in numbers], "word": words})


@pytest.fixture(params=[0, 64 << 10], ids=["files", "bundles"])
def far(request, s3, tuned):
    """Return the options to reach a table of many row groups and five versions, 200 ms away."""
    tuned(bundled_bytes=request.param, keep_versions=100)
    options = {"storage_options": options_of(s3)}
    frame(0, ROWS).to_blz(URL, storage=blz.Storage(row_group_rows=ROWS // GROUPS), **options)
    with blz.open(URL, "a", **options) as t:
        for number in range(4):
            t.attrs["number"] = number
    s3.latency = 0.2
    yield options
    s3.latency = 0


def exchanged(s3, options, call, mode="r"):
    """Return the exchanges of a call that is given the open table."""
    with blz.open(URL, mode, **options) as t:
        with s3.recorded() as log:
            call(t)
        return log


def check(log, requests, rounds):
    """Compare the exchanges of a call; where others use the machine, one may come a round late."""
    assert len(log) == requests
    assert rounds <= log.rounds <= rounds + 1


# By name: what is done, its requests besides one for each data file, and its rounds.
READS = {
    "verify": (lambda t: t.verify(), 1, 2),
    "verify without the chunks": (lambda t: t.verify(full=False), 1, 2),
    "repair": (lambda t: t.repair(), 1, 2),
}


@pytest.mark.parametrize("name", READS)
def test_a_check_asks_for_all_files_at_once(s3, far, name):
    call, more, rounds = READS[name]
    files = len([key for key in s3.keys if key.startswith("t.blz/data/")])
    check(exchanged(s3, far, call, "a"), files + more, rounds)


LISTS = {
    "versions": (lambda t: t.versions(), 6, 2),
    # It takes a lease on the older one, looks for marks, and gives the lease back.
    "a comparison of two versions": (lambda t: t.diff(1), 9, 5),
    "the use of the disk": (lambda t: t.disk_usage(), 9, 5),
}


@pytest.mark.parametrize("name", LISTS)
def test_the_manifests_of_all_versions_are_asked_for_at_once(s3, far, name):
    call, requests, rounds = LISTS[name]
    check(exchanged(s3, far, call), requests, rounds)


def test_a_copy_asks_for_files_ahead_and_writes_them_side_by_side(s3, far, tmp_path):
    files = len([key for key in s3.keys if key.startswith("t.blz/data/")])
    with s3.recorded() as log:
        blz.copy(URL, tmp_path / "t.blz", **far)
    check(log, 2 + files, 2)
    with s3.recorded() as log:
        blz.copy(tmp_path / "t.blz", "s3://bucket/copy.blz", **far)
    assert len(log.of("PUT", "copy.blz/data/")) == files
    assert log.of("PUT", "copy.blz/data/").rounds <= 3
    assert blz.read_blz("s3://bucket/copy.blz", **far).equals(frame(0, ROWS))


# By name: what is done, and the rounds of the reads: to find rows, and then to read old values.
CHANGES = {
    "delete": (lambda t: t.delete([("n", "<", 3)]), 1),
    "update": (lambda t: t.update({"text": "x"}, [("word", "==", "a")]), 2),
    "upsert": (lambda t: t.upsert(frame(7, 3), on="n"), 2),
    "compact": (lambda t: t.compact(), 2),
    "erase": (lambda t: t.erase([("word", "==", "c")]), 14),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_asks_for_all_row_groups_at_once(s3, far, name):
    call, rounds = CHANGES[name]
    with blz.open(URL, "a", **far) as t, s3.recorded() as log:
        call(t)
    assert log.of("GET", "t.blz/data/").rounds <= rounds + 1


def test_numbers_and_texts_of_many_small_row_groups_come_in_one_round(s3, far):
    files = len([key for key in s3.keys if key.startswith("t.blz/data/")])
    with blz.open(URL, **far) as t:
        with s3.recorded() as log:
            assert t.to_pandas().equals(frame(0, ROWS))
        check(log, files, 1)
        with s3.recorded() as log:
            assert t.take(range(0, ROWS, 3))["n"].to_pylist() == [*range(0, ROWS, 3)]
        check(log, files, 1)


def test_long_texts_of_single_rows_come_together_when_their_lengths_are_known(s3):
    draw = np.random.default_rng(0)
    texts = [bytes(one).hex() for one in draw.integers(0, 256, (1_000, 3_000), dtype=np.uint8)]
    options = {"storage_options": options_of(s3)}
    storage = blz.Storage(encoding="plain", row_group_rows=1_000)
    blz.to_blz({"text": texts}, URL, storage=storage, **options)
    with blz.open(URL, **options) as t:
        s3.latency = 0.2
        with s3.recorded() as log:
            found = t.take(range(50, 1_000, 100))["text"].to_pylist()
        s3.latency = 0
    assert found == texts[50::100]
    assert len(log) in (10, 11)
    assert log.rounds <= 3
