"""Platforms: on Windows the package imports, keeps tables in memory, and refuses directories.

A child process imitates Windows. It first imports the libraries, since Windows has other builds of
them, and then removes every part of Python that only POSIX systems have.
"""

import os
import subprocess
import sys
import textwrap

import blztable

IMITATION = """
import asyncio, concurrent.futures, ctypes, os, pathlib, sys, tempfile
import blosc, isal.isal_zlib, numpy, pandas, pyarrow, pyarrow.compute, pyarrow.dataset

ABSENT = {
    "fork", "forkpty", "register_at_fork", "pread", "preadv", "pwrite", "pwritev", "readv",
    "writev", "sendfile", "sysconf", "sysconf_names", "sched_getaffinity", "uname", "mkfifo",
    "mknod", "statvfs", "fstatvfs", "sync", "fdatasync", "fchdir", "fchmod", "fchown", "chown",
    "lockf", "posix_fadvise", "posix_fallocate", "getuid", "geteuid", "getgid", "getegid",
    "killpg", "getpgid", "setsid", "wait3", "wait4", "getloadavg", "getrusage",
}
OPEN_FLAGS = {"O_RDONLY", "O_WRONLY", "O_RDWR", "O_APPEND", "O_CREAT", "O_EXCL", "O_TRUNC"}
for name in dir(os):
    if name in ABSENT or (name.startswith("O_") and name not in OPEN_FLAGS):
        delattr(os, name)
for name in ("fcntl", "grp", "posix", "pwd", "resource", "termios"):
    sys.modules[name] = None
sys.platform = "win32"
"""


def on_windows(code):
    """Return the output of a script that runs on the imitated Windows; it must write no errors."""
    done = subprocess.run(
        [sys.executable, "-c", IMITATION + textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


def test_on_windows_every_way_to_a_directory_says_what_it_needs():
    code = """
        import blztable as blz
        ways = [
            lambda: blz.open("x"),
            lambda: blz.create("x", pyarrow.schema({"a": pyarrow.int64()})),
            lambda: blz.read_blz("x"),
            lambda: blz.read_table("x"),
            lambda: blz.dataset("x"),
            lambda: blz.to_blz({"a": [1]}, "x"),
            lambda: pandas.DataFrame({"a": [1]}).to_blz(pathlib.Path("x")),
        ]
        for way in ways:
            try:
                way()
            except blz.StorageError as error:
                print(error)
    """
    message = (
        "x: a table in a directory needs Linux or macOS, not Windows; "
        "use the Windows Subsystem for Linux\n"
    )
    assert on_windows(code) == 7 * message


def test_on_windows_a_table_in_memory_is_written_changed_and_read():
    code = """
        import blztable as blz
        from blztable.storage.memory import MemoryStore
        store = MemoryStore()
        blz.to_blz({"a": range(100_000), "b": ["x"] * 100_000}, store)
        with blz.open(store, mode="a") as table:
            table.append({"a": [-1], "b": [None]})
            table.update({"b": "y"}, where=[("a", "<", 5)])
            table.delete([("a", ">=", 10)])
            print(table.to_pandas()["b"].tolist())
            print(table.take([10, 0])["a"].to_pylist(), table.count(filters=[("b", "==", "y")]))
            print(sum(batch.num_rows for batch in table.to_batches()), bool(table.verify()))
            table.compact()
            table.vacuum()
        print(blz.read_table(store).num_rows)
    """
    values = 5 * ["y"] + 5 * ["x"] + ["y"]
    assert on_windows(code).splitlines() == [
        str(values),
        "[-1, 0] 6",
        "11 True",
        "11",
    ]


def test_on_windows_the_command_line_gives_its_help():
    code = """
        import runpy
        sys.argv = ["blz", "--help"]
        runpy.run_module("blztable", run_name="__main__")
    """
    assert "Tables of blztable: move data" in on_windows(code)


def test_on_windows_the_command_line_says_what_a_directory_needs():
    code = """
        from blztable.cli import main
        sys.stderr = sys.stdout
        print(main(["info", "x"]))
    """
    assert on_windows(code).splitlines() == [
        "blz: x: a table in a directory needs Linux or macOS, not Windows; "
        "use the Windows Subsystem for Linux",
        "1",
    ]


def test_the_imitation_reaches_the_package():
    code = """
        import blztable.storage.locks
        print(hasattr(blztable.storage.locks, "fcntl"), blztable.__version__)
    """
    assert on_windows(code) == f"False {blztable.__version__}\n"
