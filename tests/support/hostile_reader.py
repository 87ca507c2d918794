"""A reader in another process, for tables that might end the process.

It is started once and reads any path it is sent: whole as a table, whole as a DataFrame, and a few
rows of one column, in sequence and one by one. It may take 2 GiB more memory than at its start. So
memory allocated for an attacker's claim shows as a foreign error; a missing answer is a hang.
"""

import json
import os
import selectors
import subprocess
import sys
import textwrap

import blztable as blz
from support.options import arguments

SECONDS = 60
WAYS = ("table", "frame", "rows", "taken")

READER = textwrap.dedent(
    """
    import json, resource, sys
    import blztable as blz

    def outcome(read):
        try:
            read()
        except blz.BlzError as error:
            return [type(error).__name__, str(error)]
        except BaseException as error:
            return ["!" + type(error).__name__, str(error)]
        return None

    def whole(path):
        table = blz.read_table(path)
        table.validate(full=True)
        if table.num_rows < 1000:
            table.to_pylist()

    def some(path, column, start, stop):
        with blz.open(path) as table:
            found = table[column][start:stop]
            found.validate(full=True)
            found.to_pylist()

    def taken(path, column, start, stop):
        with blz.open(path) as table:
            found = table.take(range(start, min(stop, len(table))), [column])
            found.validate(full=True)
            found.to_pylist()

    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30),) * 2)
    for line in sys.stdin:
        path, column, start, stop = json.loads(line)
        found = {
            "table": outcome(lambda: whole(path)),
            "frame": outcome(lambda: blz.read_blz(path)),
            "rows": outcome(lambda: some(path, column, start, stop)),
            "taken": outcome(lambda: taken(path, column, start, stop)),
        }
        print(json.dumps(found), flush=True)
    """
)

_child: subprocess.Popen[str] | None = None


def outcomes(path, column="x", rows=(0, 8)) -> dict[str, list[str] | None]:
    """Return the errors of reading the table, the DataFrame and these rows; None for success."""
    global _child
    if _child is None or _child.poll() is not None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-W", "error", "-c", READER]
        pipe = subprocess.PIPE
        _child = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)
    assert _child.stdin is not None
    assert _child.stdout is not None
    print(json.dumps([str(path), column, *rows]), file=_child.stdin, flush=True)
    with selectors.DefaultSelector() as selector:
        selector.register(_child.stdout, selectors.EVENT_READ)
        answers = selector.select(SECONDS)
    if not answers:
        _child.kill()
    line = _child.stdout.readline() if answers else ""
    if not line:
        status, _child = _child.wait(), None
        raise AssertionError(f"the reader hung or died with {status}")
    return json.loads(line)


def assert_refused(path, error, words, column="x", rows=(0, 8), ways=WAYS):
    """Check that each way of reading raises this error of ours, with these words."""
    found = outcomes(path, column, rows)
    for way in ways:
        assert found[way] is not None, f"{way}: was read"
        assert found[way][0] == error.__name__, (way, found[way])
        assert words in found[way][1], (way, found[way])


def assert_read(path, column="x", rows=(0, 8)):
    """Check that every way of reading succeeds."""
    assert set(outcomes(path, column, rows).values()) == {None}


def make(path, table, **options):
    """Make a table of one row group in pages of 8 rows, with plain values, to be edited."""
    plain = {"page_rows": 8, "durability": "process", "encoding": "plain"}
    blz.to_blz(table, path, **arguments(**{**plain, **options}))
    return path
