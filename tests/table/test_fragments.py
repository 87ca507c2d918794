"""Fragments: rows that several processes write become one version, whatever happens beside it."""

import json
import multiprocessing
import shutil
import signal
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import blztable as blz
from blztable import workers
from blztable.storage.local import LocalStore
from support import remote_places
from support.spawned_tasks import begin_and_die, write_and_die, written

DAY = 86_400


@pytest.fixture(scope="module")
def pool():
    """Two processes that share nothing with this one."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as started:
        yield started


@pytest.fixture(params=["disk", "s3"])
def place(request, tmp_path):
    """Return the path of a table that is not there yet, and the options to reach it."""
    if request.param == "disk":
        return str(tmp_path / "t.blz"), {}
    s3 = request.getfixturevalue("s3")
    return "s3://bucket/t.blz", {"storage_options": remote_places.options_of(s3)}


@pytest.fixture(autouse=True)
def no_job_left():
    """Let go of the jobs that a test has begun, as the end of its process does."""
    yield
    for job in list(workers._held):
        workers._let_go(job)


def frame(task, rows=10):
    first = np.arange(task * rows, task * rows + rows)
    data = {
        "n": first,
        "kind": pd.Categorical.from_codes(first % 3, ["c", "a", "b"]),
        "text": [None if n % 7 == 3 else f"text {n}" for n in first.tolist()],
        "list": [[n] * (n % 3) for n in first.tolist()],
    }
    return pd.DataFrame(data, index=pd.RangeIndex(task * rows, task * rows + rows))


def numbers(*values):
    return pa.table({"n": pa.array(values, pa.int64())})


def new_table(place, *values):
    path, options = place
    storage = blz.Storage(row_group_rows=8)
    blz.to_blz(numbers(*values), path, storage=storage, **options)


def rows_of(place, **more):
    path, options = place
    return blz.read_table(path, **options, **more)["n"].to_pylist()


def opened(place):
    path, options = place
    return blz.open(path, "a", **options)


@pytest.mark.parametrize("rows", [10, 60_000], ids=["bundles", "files"])
def test_tasks_of_two_processes_make_one_version_in_the_order_of_the_tasks(place, pool, rows):
    path, options = place
    job = blz.begin(path, "x", schema=frame(0)[:5], **options)
    assert not blz.exists(path, **options)
    frames = [frame(task, rows) for task in range(4)]
    calls = [pool.submit(written, job, task, frames[task], **options) for task in (3, 1, 0, 2)]
    fragments = [call.result() for call in calls]
    assert blz.commit(job, fragments, rows=4 * rows, **options) == 1
    pd.testing.assert_frame_equal(blz.read_blz(path, **options), pd.concat(frames))
    with opened(place) as table:
        assert table.verify()
        assert [one.operation for one in table.versions()] == ["create"]


def test_an_append_beside_another_one_is_committed_once(place, pool):
    path, options = place
    new_table(place, 0)
    job = blz.begin(path, **options)
    first = [pool.submit(written, job, task, numbers(task), **options) for task in (1, 2)]
    again = pool.submit(written, job, 2, numbers(2), **options)
    fragments = [call.result() for call in [*first, again]]
    with opened(place) as table:
        table.append({"n": [9]})
    assert blz.commit(job, fragments, **options) == 3
    assert blz.commit(job, fragments, **options) == 3
    assert pool.submit(blz.commit, job, fragments, **options).result() == 3
    assert rows_of(place) == [0, 9, 1, 2]
    with opened(place) as table:
        assert table.verify()
        assert table.version == 3
    if not options:
        with opened(place) as table:
            # The second attempt of task 2.
            assert table.vacuum().files == 1
            assert table.verify()
    assert rows_of(place) == [0, 9, 1, 2]


def test_a_vacuum_waits_for_the_process_that_began_a_job(tmp_path):
    place = str(tmp_path / "t.blz"), {}
    new_table(place, 0)
    job = blz.begin(place[0])
    fragment = blz.write_fragment(job, numbers(1), 0)
    with opened(place) as table:
        with pytest.raises(blz.BusyError):
            table.vacuum(wait=0)
        assert blz.commit(job, [fragment]) == 2
        table.vacuum(wait=0)
    assert rows_of(place) == [0, 1]


def test_a_vacuum_of_a_store_leaves_the_young_files_of_a_job(s3):
    place = "s3://bucket/t.blz", {"storage_options": remote_places.options_of(s3)}
    new_table(place, 0)
    job = blz.begin(place[0], **place[1])
    fragments = [blz.write_fragment(job, numbers(n), n, **place[1]) for n in (1, 2)]
    s3.advance(5 * DAY)
    with opened(place) as table:
        assert table.vacuum(keep=1).files == 0
    assert blz.commit(job, fragments[:1], **place[1]) == 2
    late = blz.begin(place[0], **place[1])
    old = blz.write_fragment(late, numbers(3), 0, **place[1])
    s3.advance(6.5 * DAY)
    with pytest.raises(blz.ConflictError, match=r"files of this job are 6.5 days old"):
        blz.commit(late, [old], **place[1])
    s3.advance(1 * DAY)
    with opened(place) as table:
        assert table.vacuum(keep=1).files == 2
    with pytest.raises(blz.CorruptError, match="is gone or cut short"):
        blz.commit(late, [old], **place[1])
    assert rows_of(place) == [0, 1]


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_another_process_commits_the_job_of_a_killed_one_unless_a_vacuum_came(tmp_path, is_cleaned):
    place = str(tmp_path / "t.blz"), {}
    new_table(place, 0)
    driver = multiprocessing.get_context("spawn").Process(target=begin_and_die, args=place[:1])
    driver.start()
    driver.join()
    assert driver.exitcode == -signal.SIGKILL
    with open(f"{place[0]}.said") as file:
        job, fragment = json.load(file)
    if not is_cleaned:
        assert blz.commit(job, [fragment]) == 2
        assert rows_of(place) == [0, 1]
        return
    with opened(place) as table:
        assert table.vacuum().files == 1
    with pytest.raises(blz.CorruptError, match="a vacuum removed the fragment of task 0"):
        blz.commit(job, [fragment])
    assert rows_of(place) == [0]


def test_a_task_whose_worker_was_killed_is_written_again(tmp_path):
    place = str(tmp_path / "t.blz"), {}
    new_table(place, 0)
    job = blz.begin(place[0])
    done = [blz.write_fragment(job, numbers(1), 0)]
    worker = multiprocessing.get_context("spawn").Process(target=write_and_die, args=(job,))
    worker.start()
    worker.join()
    assert worker.exitcode == -signal.SIGKILL
    done.append(blz.write_fragment(job, numbers(2), 1))
    assert blz.commit(job, done) == 2
    assert rows_of(place) == [0, 1, 2]


def test_a_table_that_was_replaced_or_changed_meanwhile_is_told_by_name(place):
    path, options = place
    new_table(place, 0)
    job = blz.begin(path, **options)
    fragment = blz.write_fragment(job, numbers(1), 0, **options)
    with opened(place) as table:
        table.add_column("more", 1)
    with pytest.raises(blz.ConflictError, match="columns"):
        blz.commit(job, [fragment], **options)
    assert rows_of(place) == [0]
    # It removed nothing.
    with opened(place) as table:
        table.drop_columns(["more"])
    assert blz.commit(job, [fragment], **options) == 4
    assert rows_of(place) == [0, 1]


def test_the_job_of_a_table_that_was_removed_is_not_for_the_next_one_there(tmp_path):
    place = str(tmp_path / "t.blz"), {}
    new_table(place, 0)
    job = blz.begin(place[0])
    fragment = blz.write_fragment(job, numbers(1), 0)
    shutil.rmtree(place[0])
    with pytest.raises(blz.TableNotFoundError):
        blz.write_fragment(job, numbers(1), 0)
    with pytest.raises(blz.TableNotFoundError):
        blz.commit(job, [fragment])
    new_table(place, 5)
    with pytest.raises(blz.ConflictError, match="was begun for another table"):
        blz.commit(job, [fragment])
    assert rows_of(place) == [5]


def test_a_delete_and_a_tag_beside_a_job_stay(place):
    path, options = place
    new_table(place, *range(40))
    job = blz.begin(path, **options)
    fragment = blz.write_fragment(job, numbers(100), 0, **options)
    with opened(place) as table:
        table.delete("n = 3")
        table.tags["before"] = 1
    assert blz.commit(job, [fragment], **options) == 4
    assert rows_of(place) == [n for n in range(40) if n != 3] + [100]
    with opened(place) as table:
        assert dict(table.tags) == {"before": 1}
        assert table.verify()


def test_a_job_that_runs_again_with_its_commit_id_is_committed_once(place):
    path, options = place
    new_table(place, 0)
    with opened(place) as table:
        table.tags["before"] = 1
    for _ in range(2):
        schema = numbers().schema
        job = blz.begin(path, "w", schema=schema, commit_id="day 7", **options)
        fragments = [blz.write_fragment(job, numbers(n, n), n, **options) for n in range(3)]
        assert blz.commit(job, fragments, rows=6, **options) == 3
    assert rows_of(place) == [0, 0, 1, 1, 2, 2]
    assert rows_of(place, version="before") == [0]


def test_days_are_replaced_by_fragments_in_one_commit(place):
    path, options = place
    new_table(place, 1, 2, 2, 3)
    job = blz.begin(path, **options)
    fragments = [blz.write_fragment(job, numbers(20, n), n, **options) for n in (1, 0)]
    with opened(place) as table:
        with table.transaction() as changes:
            assert changes.delete("n = 2").rows_deleted == 2
            assert changes.append_fragments(job, fragments, rows=4).rows_appended == 4
            assert changes.to_arrow()["n"].to_pylist() == [1, 3, 20, 0, 20, 1]
        assert table.version == 2
        with (
            pytest.raises(blz.ConflictError, match="in version 2 already"),
            table.transaction() as changes,
        ):
            changes.append_fragments(job, fragments)
        assert table.version == 2
    assert rows_of(place) == [1, 3, 20, 0, 20, 1]


def test_fragments_are_in_the_table_once_also_if_two_transactions_add_them(tmp_path):
    place = str(tmp_path / "t.blz"), {}
    new_table(place, 0)
    job = blz.begin(place[0])
    fragment = blz.write_fragment(job, numbers(1), 0)
    with opened(place) as one, opened(place) as other, ExitStack() as later:
        changes = later.enter_context(one.transaction())
        changes.append_fragments(job, [fragment])
        with other.transaction() as sooner:
            sooner.append_fragments(job, [fragment])
        with pytest.raises(blz.ConflictError, match="in version 2 already"):
            later.close()
    assert rows_of(place) == [0, 1]


def test_a_text_that_was_changed_and_a_fragment_of_another_job_are_refused(tmp_path):
    place = str(tmp_path / "t.blz"), {}
    new_table(place, 0)
    job, other = (blz.begin(place[0]) for _ in range(2))
    fragment = blz.write_fragment(job, numbers(1), 3)
    with pytest.raises(blz.ConflictError, match="a fragment of job"):
        blz.commit(other, [fragment])
    for text in (job, fragment):
        for place_of in range(0, len(text), 97):
            changed = text[:place_of] + chr(ord(text[place_of]) ^ 1) + text[place_of + 1 :]
            with pytest.raises((blz.CorruptError, blz.FormatError)):
                blz.commit(changed, [fragment]) if text is job else blz.commit(job, [changed])
    for wrong in ("", "{}", "[]", fragment, "null"):
        with pytest.raises((blz.CorruptError, blz.FormatError)):
            blz.commit(wrong, [])
    with pytest.raises((blz.CorruptError, blz.FormatError)):
        blz.commit(job, [job])
    with pytest.raises(TypeError):
        blz.commit(job, [None])
    assert rows_of(place) == [0]


def test_an_empty_frame_whose_objects_have_no_type_is_refused_by_name(tmp_path):
    path = tmp_path / "t.blz"
    with pytest.raises(blz.SchemaError, match=r"columns \['list'\] cannot be told without rows"):
        blz.begin(path, "x", schema=frame(0)[:0])
    assert not path.exists()
    job = blz.begin(path, "x", schema=frame(0)[:0][["n", "kind"]])
    assert blz.commit(job, [written(job, 0, frame(0)[["n", "kind"]])]) == 1
    nothing = blz.begin(tmp_path / "other.blz", schema=numbers().schema)
    assert blz.commit(nothing, [], rows=0) == 1
    assert blz.read_table(tmp_path / "other.blz").equals(numbers())


def test_the_first_write_to_an_empty_place_keeps_its_files_beside_another_writer(tmp_path):
    place = str(tmp_path / "t.blz"), {}
    job = blz.begin(place[0], "w", schema=numbers().schema)
    fragment = blz.write_fragment(job, numbers(1), 0)
    new_table(place, 5)
    assert rows_of(place) == [5]
    assert blz.commit(job, [fragment]) == 2
    assert rows_of(place) == [1]
    late = blz.begin(tmp_path / "x.blz", "x", schema=numbers().schema)
    blz.to_blz(numbers(7), tmp_path / "x.blz")
    with pytest.raises(blz.TableExistsError):
        blz.commit(late, [blz.write_fragment(late, numbers(1), 0)])


def test_a_number_of_rows_that_is_not_there_is_told_and_nothing_is_lost(place):
    path, options = place
    new_table(place, 0)
    job = blz.begin(path, **options)
    fragments = [blz.write_fragment(job, numbers(n), n, **options) for n in (1, 2)]
    with pytest.raises(blz.ConflictError, match="1 fragments have 1 rows; expected 2"):
        blz.commit(job, fragments[:1], rows=2, **options)
    assert blz.commit(job, fragments, rows=2, **options) == 2
    assert rows_of(place) == [0, 1, 2]


def test_discarded_fragments_are_removed_but_none_of_the_table(place):
    path, options = place
    new_table(place, 0)
    job = blz.begin(path, **options)
    fragments = [blz.write_fragment(job, numbers(n), n, **options) for n in (1, 2)]
    assert blz.commit(job, fragments[:1], **options) == 2
    assert blz.discard(job, fragments, **options) == 1
    assert rows_of(place) == [0, 1]
    with opened(place) as table:
        assert table.verify()
        assert table.vacuum(keep=1).files == 0
    given_up = blz.begin(path, **options)
    assert blz.discard(given_up, **options) == 0
    assert not workers._held


def test_rows_that_do_not_fit_leave_no_files(tmp_path):
    place = str(tmp_path / "t.blz"), {}
    new_table(place, 0)
    job = blz.begin(place[0])
    before = sorted((tmp_path / "t.blz").rglob("*.bin"))
    for wrong in ({"n": ["text"]}, {"m": [1]}, {"n": [1.5]}):
        with pytest.raises(blz.SchemaError):
            blz.write_fragment(job, wrong, 0)

    def items():
        yield numbers(*range(50))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        blz.write_fragment(job, items(), 0)
    assert sorted((tmp_path / "t.blz").rglob("*.bin")) == before
    for wrong in (-1, "1", 1.5, True):
        with pytest.raises((TypeError, ValueError)):
            blz.write_fragment(job, numbers(1), wrong)


def test_a_column_of_nulls_that_would_become_another_is_refused(tmp_path):
    job = blz.begin(tmp_path / "t.blz", schema=pa.schema({"n": pa.int64(), "x": pa.null()}))
    with pytest.raises(blz.SchemaError, match=r"columns \['x'\] get another type"):
        blz.write_fragment(job, {"n": [1], "x": [2]}, 0)
    fragment = blz.write_fragment(job, {"n": [1], "x": [None]}, 0)
    assert blz.commit(job, [fragment]) == 1


def test_many_row_groups_of_fragments_go_into_leaves(place, pool):
    path, options = place
    job = blz.begin(path, schema=numbers().schema, storage=blz.Storage(row_group_rows=8), **options)
    data = [numbers(*range(task * 800, task * 800 + 800)) for task in range(2)]
    fragments = [
        pool.submit(written, job, task, data[task], **options).result() for task in range(2)
    ]
    assert blz.commit(job, fragments, **options) == 1
    assert rows_of(place) == [*range(1600)]
    with opened(place) as table:
        assert len(table.row_groups) >= 100
        assert table.verify()
        table.append(numbers(-1))
        assert table.to_arrow(filters="n < 0").num_rows == 1
        assert table.verify()


def test_a_full_commit_flushes_what_its_workers_did_not(tmp_path, monkeypatch):
    place = str(tmp_path / "t.blz"), {}
    new_table(place, 0)
    job = blz.begin(place[0])
    lazy = blz.write_fragment(job, numbers(1), 0, durability="process")
    full = blz.write_fragment(job, numbers(2), 1)
    flushed = []
    usual = LocalStore.flush
    monkeypatch.setattr(LocalStore, "flush", lambda *args: flushed.extend(args[1]) or usual(*args))
    assert blz.commit(job, [lazy, full]) == 2
    named = [json.loads(text)["durable"] for text in (lazy, full)]
    assert named == [False, True]
    assert sum(key.startswith("data/") for key in flushed) == 1


def test_places_where_one_process_writes_are_refused(tmp_path):
    store = blz.MemoryStore("tills")
    blz.to_blz(numbers(1), store)
    blz.to_blz(numbers(1), tmp_path / "t.blz", storage=blz.Storage(layout="file"))
    for place in (store, tmp_path / "t.blz"):
        with pytest.raises(ValueError, match=r"several processes cannot write there.*copy\(\)"):
            blz.begin(place)
    with pytest.raises(ValueError, match="a new table needs schema="):
        blz.begin(tmp_path / "new.blz", "w")
    with pytest.raises(blz.TableNotFoundError):
        blz.begin(tmp_path / "new.blz")
    blz.to_blz(numbers(1), tmp_path / "d.blz")
    with pytest.raises(ValueError, match="storage= is that of a new table"):
        blz.begin(tmp_path / "d.blz", storage=blz.Storage())


def test_a_job_and_a_fragment_are_small_and_have_no_credentials(s3):
    options = {**remote_places.options_of(s3), "secret": "word of the day"}
    wide = pa.table({f"c{n}": range(100) for n in range(16)})
    job = blz.begin("s3://bucket/t.blz", schema=wide.schema, storage_options=options)
    fragment = blz.write_fragment(job, wide, 0, storage_options=options)
    assert len(job) < 5_000
    assert len(fragment) < 8_000
    assert "word of the day" not in job + fragment
    assert blz.commit(job, [fragment], storage_options=options) == 1
    assert blz.read_table("s3://bucket/t.blz", storage_options=options).equals(wide)
