"""Settings for all tests: hypothesis has no deadline, and a list names the quick tests.

`pytest -m quick` takes less than a minute with two processes. The quick tests are a cross-section:
each room of the package, and the promises to users. They are run after each change, and on one more
version of Python. The list below is the only place that names them. An entry is a folder, a file,
or one test of a file whose other tests are slow.
"""

import gc
import os
import shutil
import signal
from contextlib import ExitStack
from pathlib import Path
from weakref import WeakValueDictionary

import hypothesis
import pytest

from blztable import cached, tuning
from blztable.engine.read import files
from blztable.engine.version import versions
from support.s3_server import S3Server

# A busy machine must not fail a test. pytest's own timeout ends a test that hangs.
# A sixth of the examples that hypothesis would make, so that all tests take minutes, and the same
# in each run, so that only a change makes a test fail. Storms draw others in each run, and so does
# `--hypothesis-profile=thorough`: thirty times as many, in tests that do not say how many.
hypothesis.settings.register_profile("blztable", deadline=None, max_examples=16, derandomize=True)
hypothesis.settings.register_profile("storm", deadline=None, max_examples=50)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=500)
hypothesis.settings.load_profile("blztable")

QUICK = (
    # The rooms.
    "docs/test_architecture.py",
    "format",
    "docs/test_format_page.py",
    "storage/test_store_contract.py",
    "columns/test_parts.py",
    "columns/test_types.py",
    "convert/frames/test_attributes.py",
    "convert/test_coerce.py",
    "convert/test_values.py",
    "engine/version/test_commit.py",
    "engine/change/test_merge_policy.py",
    "engine/read/test_selection.py",
    "engine/change/test_rows.py",
    "engine/version/test_schema.py",
    "engine/version/test_versions.py",
    "engine/write/test_columns.py",
    # The promises to users.
    "golden/test_golden.py",
    "properties/test_round_trips.py::test_every_codec_and_shuffle_comes_back",
    "properties/test_round_trips.py::test_any_range_of_a_column_is_the_same_slice_of_it",
    "face/test_face.py",
    "table/test_change_columns.py::test_a_default_is_as_wide_as_its_column_becomes",
    "table/test_change_rows.py::test_a_category_is_given_as_a_plain_value",
    "table/test_transactions.py",
    "crash/test_create_and_replace.py::test_power_lost_anywhere_in_a_commit_leaves_the_old_table_or_the_new_one",
    "crash/test_create_and_replace.py::test_a_process_killed_anywhere_in_a_commit_leaves_the_old_table_or_the_new_one",
    "crash/test_crash_model.py",
    "damage/test_each_file.py",
    "table/test_descriptors.py",
    "face/test_platforms.py",
    "damage/test_skip.py",
)
TESTS = Path(__file__).parent
MEMORY, ROOM = Path("/dev/shm"), 8 << 30


@pytest.fixture(autouse=True)
def process_as_before():
    """Fail the test that leaves a change to the process, not a later one that the change breaks."""
    interrupt, numbers = signal.getsignal(signal.SIGINT), tuning.current
    yield
    assert signal.getsignal(signal.SIGINT) is interrupt
    assert tuning.current == numbers


@pytest.fixture
def own_process(monkeypatch):
    """Let nothing count that other tests have left open or kept."""
    monkeypatch.setattr(files, "_reads", WeakValueDictionary())
    kept = versions._kept_versions
    kept.clear()
    monkeypatch.setattr(cached, "_owners", WeakValueDictionary({id(kept): kept}))
    monkeypatch.setattr(cached._Process, "nbytes", 0)


@pytest.fixture
def tuned():
    """Return a function that sets numbers of `blztable.tuning` until the test ends."""
    with ExitStack() as stack:
        yield lambda **numbers: stack.enter_context(tuning.tuned(**numbers))


@pytest.fixture
def s3():
    """Return an S3 server of its own, without objects, latency and faults."""
    with S3Server() as server:
        yield server


def _tuned(scope, doc, **numbers):
    """Return a fixture that sets numbers of `blztable.tuning` for a module or class."""

    def fixture():
        with tuning.tuned(**numbers):
            yield

    fixture.__doc__ = doc
    return pytest.fixture(fixture, scope=scope)


own_files = _tuned(
    "module",
    "Give each part a file of its own, as in a large row group, for tests that name files.",
    bundled_bytes=0,
)
own_files_here = _tuned("function", "Do the same for a single test.", bundled_bytes=0)
ten_copies = _tuned(
    "module",
    "Keep ten versions of a table that is replaced, for tests that make versions that way.",
    keep_replaced=tuning.current.keep_versions,
)
deletions = _tuned(
    "class",
    "Name deleted rows however many they are, as in a large row group that loses a few.",
    rows_per_deleted=1,
)
bundled = _tuned(
    "class", "Let the parts of a small row group share a file.", bundled_bytes=64 << 10
)
batched = _tuned(
    "class",
    "Write and read columns of numbers in bundles together, however few they are.",
    matrix_columns_written=1,
    matrix_columns_read=1,
)
encoded = _tuned(
    "class",
    "Encode parts of a few rows as large ones are.",
    encoded_bytes=1,
    sampled_values=4,
    rows_per_exception=2,
    rows_per_item=3,
    few_items=4,
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the quick tests before pytest evaluates `-m`; a storm is never quick."""
    for item in items:
        path = item.path.relative_to(TESTS)
        places = {str(path), *map(str, path.parents), f"{path}::{item.originalname}"}
        if not places.isdisjoint(QUICK) and item.get_closest_marker("storm") is None:
            item.add_marker("quick")


def pytest_collection_finish():
    """Keep the garbage collector off 16,000 collected tests: each pass over them takes a second."""
    # Hypothesis asks the collector who holds its generator of random numbers, at its first example.
    hypothesis.given(hypothesis.strategies.none())(lambda _: None)()
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    """Give back what was kept, or extension modules tell of leaks when the process ends."""
    gc.unfreeze()


def pytest_configure(config):
    """Let storms draw new examples; refuse a QUICK list that names missing tests.

    Programs that are started in the background of a shell, or by nohup or cron, ignore Ctrl-C, and
    so do those that they start. The tests of interrupts need it.

    The folders of the tests lie in memory, where the system has a file system with much room there.
    No test looks at a real flush: a model says what a loss of power leaves. Thousands of folders
    are written, flushed and removed, each of which takes a disk milliseconds.
    """
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.markexpr == "storm":
        hypothesis.settings.load_profile("storm")
    missing = [place for place in QUICK if not _is_there(*place.split("::"))]
    if missing:
        raise pytest.UsageError(f"tests/conftest.py: QUICK names {missing}, which are not there")


def _is_there(file, test=None):
    path = TESTS / file
    return path.exists() and (test is None or f"def {test}(" in path.read_text(encoding="utf-8"))
