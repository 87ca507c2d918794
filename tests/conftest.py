"""What all tests share: no deadline for random ones, and which of them are quick.

`pytest -m quick` takes under a minute with two processes. It is a cross-section for whoever changes
something, and for one more version of Python: each room of the package, and the promises to users.
The list below is the only place that says so; it names a folder, a file, or one test of a file
whose others take long.
"""

from pathlib import Path

import hypothesis
import pytest

# A busy machine is no failure. pytest's own timeout ends a test that hangs.
hypothesis.settings.register_profile("blztable", deadline=None)
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
    # What users are promised.
    "golden/test_golden.py",
    "properties/test_round_trips.py::test_every_codec_shuffle_and_checksum_comes_back",
    "properties/test_round_trips.py::test_any_range_of_a_column_is_the_same_slice_of_it",
    "face/test_face.py",
    "table/test_changes.py",
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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the quick tests, before pytest looks at what `-m` asks for; a storm is never quick."""
    for item in items:
        path = item.path.relative_to(TESTS)
        places = {str(path), *map(str, path.parents), f"{path}::{item.originalname}"}
        if not places.isdisjoint(QUICK) and item.get_closest_marker("storm") is None:
            item.add_marker("quick")


def pytest_configure():
    """Refuse a list that names what is not there: it would leave out in silence."""
    missing = [place for place in QUICK if not _is_there(*place.split("::"))]
    if missing:
        raise pytest.UsageError(f"tests/conftest.py: QUICK names {missing}, which are not there")


def _is_there(file, test=None):
    path = TESTS / file
    return path.exists() and (test is None or f"def {test}(" in path.read_text(encoding="utf-8"))
