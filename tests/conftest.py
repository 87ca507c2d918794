"""Settings for all tests: hypothesis has no deadline, and a list names the quick tests.

`pytest -m quick` takes less than a minute with two processes. The quick tests are a cross-section:
each room of the package, and the promises to users. They are run after each change, and on one more
version of Python. The list below is the only place that names them. An entry is a folder, a file,
or one test of a file whose other tests are slow.
"""

import gc
import signal
from pathlib import Path

import hypothesis
import pytest

from blztable.columns.encodings import choose, dictionary, values
from blztable.engine.change import rows
from blztable.engine.read import alike as read_alike
from blztable.engine.version import retention
from blztable.engine.write import bundles, parts

# A busy machine must not fail a test. pytest's own timeout ends a test that hangs.
# Half of the examples that hypothesis would make, so that all tests take minutes, and the same ones
# in each run, so that only a change makes a test fail. Storms draw others in each run, and so does
# `--hypothesis-profile=thorough`: ten times as many, in tests that do not say how many.
hypothesis.settings.register_profile("blztable", deadline=None, max_examples=50, derandomize=True)
hypothesis.settings.register_profile("storm", deadline=None, max_examples=50)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=500)
hypothesis.settings.load_profile("blztable")

QUICK = (
    # The rooms.
    "docs/test_architecture.py",
    "format",
    "docs/test_format_page.py",
    "storage/test_store_contract.py",
    "columns/codecs/test_validity.py",
    "columns/test_types.py",
    "columns/test_paging.py",
    "columns/test_sinks.py",
    "columns/codecs/test_text.py",
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
    "properties/test_round_trips.py::test_every_codec_shuffle_and_checksum_comes_back",
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


@pytest.fixture(scope="module")
def own_files():
    """Give each part a file of its own, as in a large row group, for tests that name files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundles, "BUNDLED_BYTES", 0)
        yield


@pytest.fixture(scope="module")
def ten_copies():
    """Keep ten versions of a table that is replaced, for tests that make versions that way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention, "KEEP_REPLACED", retention.KEEP_VERSIONS)
        yield


@pytest.fixture(scope="class")
def deletions():
    """Name deleted rows however many they are, as in a large row group that loses a few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "LEAST_SHARE", 1)
        yield


@pytest.fixture
def own_files_here(monkeypatch):
    """Do the same for a single test."""
    monkeypatch.setattr(bundles, "BUNDLED_BYTES", 0)


@pytest.fixture(scope="class")
def bundled():
    """Let the parts of a small row group share a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundles, "BUNDLED_BYTES", 64 << 10)
        yield


@pytest.fixture(scope="class")
def alike():
    """Write and read columns of numbers in bundles together, however few they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "LEAST_ALIKE", 1)
        patch.setattr(read_alike, "LEAST_COLUMNS", 1)
        yield


@pytest.fixture(scope="class")
def encoded():
    """Encode parts of a few rows as large ones are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "LEAST_BYTES", 1)
        patch.setattr(choose, "LEAST_VALUES", 4)
        patch.setattr(choose, "ROWS_PER_ODD", 2)
        for module in (dictionary, values):
            patch.setattr(module, "ROWS_PER_ITEM", 3)
        patch.setattr(dictionary, "FEW_ITEMS", 4)
        yield


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
    """
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
