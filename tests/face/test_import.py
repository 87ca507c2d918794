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


FIRST_CALLS = {
    "write": "df.to_blz(new)",
    "read": "blztable.read_blz(path)",
    "filter": "blztable.read_blz(path, columns=['a'], filters=[('a', '>', 1)])",
    "append": "with blztable.open(path, 'a') as t: t.append(df)",
}


@pytest.mark.parametrize("call", FIRST_CALLS)
def test_the_first_call_of_a_process_imports_at_most_205_of_our_modules(call, tmp_path):
    blz.to_blz(pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), tmp_path / "t.blz")
    code = f"""
        import sys, pandas, blztable
        path, new = {str(tmp_path / "t.blz")!r}, {str(tmp_path / "new.blz")!r}
        df = pandas.DataFrame({{"a": [1, 2], "b": ["x", "y"]}})
        {FIRST_CALLS[call]}
        print(*[name for name in sys.modules if name.split(".")[0] == "blztable"])
    """
    imported = in_a_new_process(code)
    assert len(imported) <= 205
    late = ("arrays", "compat.table", "storage.one_file.store", "table.datasets.dataset")
    assert not {f"blztable.{name}" for name in late} & {*imported}
    assert ("blztable.engine.change.rows" in imported) == (call in ("write", "append"))


def test_an_interrupt_in_a_late_import_of_a_commit_changes_nothing(tmp_path):
    """Any import may be the one: of each module that the append imports, one process each."""
    path = tmp_path / "t.blz"
    blz.to_blz({"n": [1]}, path)
    code = f"""
        import sys, blztable
        t = blztable.open({str(path)!r}, "a")
        before = set(sys.modules)

        class Interrupting:
            met = []

            def find_spec(self, name, path=None, target=None):
                if name.startswith("blztable.") and name not in self.met:
                    self.met.append(name)
                    raise KeyboardInterrupt

        sys.meta_path.insert(0, Interrupting())
        ends = 0
        while True:
            try:
                t.append({{"n": [2]}})
                break
            except KeyboardInterrupt:
                ends += 1
                assert len(t) == 1 and t.version == 1
        sys.meta_path.pop(0)
        assert ends == len(Interrupting.met) > 10
        t.append({{"n": [3]}})
        print(*t["n"][:].to_pylist(), t.version, t.verify().is_intact)
    """
    assert in_a_new_process(code) == ["1", "2", "3", "3", "True"]


def test_threads_may_make_their_first_calls_together(tmp_path):
    """Some hold the lock of a commit while they import what others import too."""
    blz.to_blz({"n": [1]}, tmp_path / "t.blz")
    code = f"""
        import threading, blztable
        path, errors = {str(tmp_path / "t.blz")!r}, []
        calls = [
            lambda: blztable.to_blz({{"n": [2]}}, path, mode="a"),
            lambda: blztable.read_blz(path, filters=[("n", ">", 0)]),
            lambda: blztable.open(path).verify(),
            lambda: blztable.open(path).dataset().to_table(),
        ]
        start = threading.Barrier(12)

        def run(call):
            start.wait()
            try:
                call()
            except BaseException as error:
                errors.append(repr(error))

        threads = [threading.Thread(target=run, args=[calls[i % 4]]) for i in range(12)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        print(*errors, len(blztable.read_blz(path)))
    """
    assert in_a_new_process(code) == ["4"]


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
