"""Import: `import blztable` costs little; the rooms behind the face come at their first use."""

import inspect
import os
import subprocess
import sys
import textwrap

import pandas as pd
import pytest

import blztable as blz

# Modules that take long to import: our rooms, and the libraries that only they need.
LATE = (
    "blztable.api",
    "blztable.columns",
    "blztable.convert",
    "blztable.engine",
    "blztable.format",
    "blztable.compat",
    "blztable.importing",
    "blztable.report",
    "blztable.storage",
    "blztable.table",
    "blztable.writing",
    "blosc",
    "isal",
    "pyarrow.acero",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "unittest",
)


def in_a_new_process(code):
    """Return what a script prints, as Python values."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_importing_the_package_imports_none_of_its_rooms_and_none_of_their_libraries():
    code = """
        import sys, pandas
        before = set(sys.modules)
        import blztable
        print(*sorted(set(sys.modules) - before))
    """
    imported = in_a_new_process(code)
    assert "blztable.accessor" in imported
    assert not [name for name in imported if name in LATE or name.startswith(LATE)]


@pytest.mark.parametrize("use", ["pandas.DataFrame({'n': [1]}).to_blz", "blztable.read_blz"])
def test_the_first_use_imports_what_it_needs(use, tmp_path):
    code = f"""
        import sys, pandas, blztable
        try:
            {use}({str(tmp_path / "t.blz")!r})
        except blztable.TableNotFoundError:
            pass
        print(*sorted(sys.modules))
    """
    assert "blztable.engine.read.columns" in in_a_new_process(code)


def test_every_public_name_is_imported_at_its_first_use():
    code = """
        import blztable
        for name in sorted(blztable.__all__):
            assert name in dir(blztable), name
            print(name, getattr(blztable, name).__name__)
        from blztable import *
        print(CTable is blztable.table.table.CTable)
    """
    *names, is_same = in_a_new_process(code)
    assert names[::2] == names[1::2] == sorted(blz.__all__)
    assert is_same == "True"


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'blztable' has no attribute 'read_csv'"):
        blz.read_csv  # noqa: B018
    assert not hasattr(blz, "__wrapped__")


def test_the_method_of_frames_has_the_signature_and_the_documentation_of_the_function():
    method = pd.DataFrame({"n": [1]}).to_blz
    parameters = inspect.signature(blz.to_blz).parameters
    assert list(inspect.signature(method).parameters.values()) == list(parameters.values())[1:]
    assert inspect.getdoc(method) == inspect.getdoc(blz.to_blz)
