"""Several processes change one table in a store: what each is told of its changes is true.

Short in the suite, long with `-m storm`; `-s` prints the counts.
"""

import random
from collections import Counter
from contextlib import ExitStack

import pytest

import blztable as blz
from support.crash.remote_writers import changing, differences, endless, opened
from support.crash.stress import SCHEMA, balanced, running, told
from support.remote_places import options_of
from support.s3_server import Fault, share

FAULTS = {
    "no faults": [],
    "lost replies": [Fault.LOST],
    "all faults": [Fault.LOST, Fault.REFUSED, Fault.CONFLICT, Fault.DROPPED, Fault.CUT],
}


@pytest.fixture(params=["store"])
def place(request, s3, tmp_path):
    """Return the address of an empty table, and the options to reach it.

    It is on the local S3 server, or in a directory whose writers rely on no lock.
    """
    if request.param == "store":
        place, storage = ("s3://bucket/t.blz", options_of(s3)), None
    else:
        place, storage = (str(tmp_path / "t.blz"), None), blz.Storage(locks="none")
    blz.to_blz(SCHEMA.empty_table(), place[0], storage=storage, storage_options=place[1])
    return place


IN_BOTH = pytest.mark.parametrize("place", ["store", "directory"], indirect=True)


def storm(*sizes):
    """Return the parameters of a storm."""
    return pytest.param(*sizes, marks=[pytest.mark.storm, pytest.mark.timeout(1800)])


def check(place, changes):
    """Compare the table with what its writers were told; verify it after a vacuum as well."""
    print(f"\n{Counter((change, what) for change, _, _, what in changes)}")
    assert not differences(place, changes)
    with opened(place, "a") as table:
        table.vacuum(keep=1)
        assert not table.verify(full=True).problems
    assert not differences(place, changes)


def test_rows_that_are_lost_or_doubled_are_told(place):
    with opened(place, "a") as table:
        table.append(balanced(0, 0, 2))
    assert differences(place, [("append", 0, 0, "made"), ("append", 0, 1, "made")]) == [
        "(0, 0): {'append': 'made'}, and there are 4 rows",
        "(0, 1): {'append': 'made'}, and there are 0 rows",
    ]
    assert differences(place, []) == ["(0, 0): nobody appended it"]


@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize(("writers", "appends"), [(2, 6), storm(4, 100)])
def test_writers_that_race_lose_and_double_nothing(s3, place, writers, appends, faults):
    with ExitStack() as held:
        if FAULTS[faults]:
            held.enter_context(s3.failing(share(0.1, FAULTS[faults])))
        programs = [
            held.enter_context(running(changing, place, writer, appends))
            for writer in range(writers)
        ]
        changes = [change for _, pipe in programs for change in told(pipe)]
        for process, _ in programs:
            process.join()
            assert process.exitcode == 0
    assert len([one for one in changes if one[0] == "append"]) == writers * appends
    check(place, changes)


@pytest.mark.parametrize("place", ["directory"], indirect=True)
@pytest.mark.parametrize(("writers", "appends"), [(3, 8), storm(4, 100)])
def test_writers_that_race_in_a_directory_lose_and_double_nothing(place, writers, appends):
    with ExitStack() as held:
        programs = [
            held.enter_context(running(changing, place, writer, appends))
            for writer in range(writers)
        ]
        changes = [change for _, pipe in programs for change in told(pipe)]
        for process, _ in programs:
            process.join()
            assert process.exitcode == 0
    check(place, changes)


@IN_BOTH
@pytest.mark.parametrize("kills", [3, storm(200)])
def test_the_newest_version_is_whole_whenever_a_writer_is_killed(place, kills):
    draw, changes = random.Random(kills), []
    for writer in range(kills):
        with running(endless, place, writer) as (process, pipe):
            pipe.poll(60)
            process.join(draw.uniform(0, 0.3))
            assert process.exitcode is None
            process.kill()
            changes += told(pipe)
        assert not differences(place, changes)
    check(place, changes)


def requests_of_an_append(s3, place, number):
    """Return how many requests an append makes, with that of opening the table."""
    with s3.recorded() as log, opened(place, "a") as table:
        table.append(balanced(0, number, 1))
    return len(log)


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.HUNG])
def test_an_append_is_made_once_or_not_at_all_whichever_request_fails(s3, place, fault):
    count = requests_of_an_append(s3, place, 0)
    changes = [("append", 0, 0, "made")]
    for number in range(1, count + 1):
        requests = iter(range(1, 1000))

        def rule(_, number=number, requests=requests):
            return fault if next(requests) == number else None

        with s3.failing(rule), running(changing, place, number, 1) as (process, pipe):
            changes += told(pipe)
            process.join()
            assert process.exitcode == 0
        assert not differences(place, changes)
    check(place, changes)
