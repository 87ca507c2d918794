"""blztable compared with its peers: one command that installs, measures, reports and draws.

    python benchmarks/peers.py --rounds 9

It makes a virtual environment with this checkout and the packages of peers-requirements.txt, and
prints the tables. `--publish` measures nothing: it puts the tables of the stored results,
benchmarks/peers*.json, into docs/performance.md, and the pictures into docs/_static.

The method: one process a table makes the calls of all tasks. In each round of a task the systems
take turns, with a different first system, so that changes of the machine's speed affect all of
them; a figure is the median of the rounds, and a ratio the median of the ratios of the rounds.
Before, a process of its own does each task once with each system, and its answer is compared with
the source; a system with a wrong answer is not timed.

A call has its time on the wall, and the user and the system time of all threads; tables and ratios
are of the latter, because other programs do not change it much. Each call opens the table by its
path. Tasks "kept open" ask a table, file, data set or connection that was opened before the
rounds, and is closed after them. The timed region includes reading one byte of every 4 KiB of the
result, which is Arrow (or a frame): what decodes later does it there. It excludes loading the table
to write. The page cache is warm. The peers never flush, except DuckDB, so blztable writes with
durability "process"; "blztable, durable" is its default. An append is one of twenty to a table that
is open.

First calls (`--first`) are made in fresh processes, one call each, with the import of the system
(measured in a process that has pandas and pyarrow): what a script takes that reads once. Before
each, another process touches as much memory as a run may need: on a virtual machine, memory that
was unused for a while is slow to touch again, and only the first process would pay.
"""

import argparse
import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

import pictures
import report

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "peers-requirements.txt"
# The results that the documentation shows.
STORED = sorted(HERE.glob("peers*.json"), key=lambda path: path.stem)
PAGE, PICTURES = HERE.parent / "docs" / "performance.md", HERE.parent / "docs" / "_static"
MARKS = "<!-- peers: begin -->\n", "<!-- peers: end -->\n"
VERSIONS = (
    "blztable",
    "blosc",
    "pyarrow",
    "pandas",
    "numpy",
    "polars",
    "duckdb",
    "vortex-data",
    "pylance",
    "blosc2",
    "tables",
    "fastparquet",
)


def main() -> None:
    options = parse_arguments()
    if options.publish:
        publish(stored(), PAGE, PICTURES)
        return
    if not options.here:
        python = environment()
        os.execv(python, [str(python), __file__, *sys.argv[1:], "--here"])
    results = measure(options)
    if options.first:
        print(report.full(results, call=0))
    print(report.full(results))
    print(report.summary(results))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", help="data sets; all by default")
    parser.add_argument("--peers", nargs="*", help="systems beside ours; all by default")
    parser.add_argument("--tasks", nargs="+", help="tasks; all by default")
    parser.add_argument("--rounds", type=int, default=9, help="calls of each task and system")
    parser.add_argument("--first", type=int, default=3, help="fresh processes for first calls")
    parser.add_argument("--patience", type=float, default=20, help="no more rounds after seconds")
    parser.add_argument("--scale", type=float, default=1, help="1 for TPC-H scale factor 1")
    parser.add_argument("--output", type=Path, help="file for the results, as JSON")
    parser.add_argument("--here", action="store_true", help="use this Python and what it has")
    parser.add_argument(
        "--publish", action="store_true", help="put the stored results into the documentation"
    )
    options = parser.parse_args()
    if options.rounds < 0 or options.first < 0:
        parser.error(
            "neither rounds nor first calls can be negative; 0 of both only checks answers"
        )
    return options


def environment() -> Path:
    """Return the Python of the environment; make it if the requirements or the checkout changed."""
    asked = REQUIREMENTS.read_bytes() + str(HERE.parent).encode() + sys.version.encode()
    name = f"peers-{hashlib.sha256(asked).hexdigest()[:12]}"
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("BLZTABLE_BENCH_DATA") or Path(caches) / "blztable-bench") / name
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not (folder / "complete").exists():
        venv.create(folder, clear=True, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS)]
        subprocess.run([*install, "-e", str(HERE.parent)], check=True)
        (folder / "complete").touch()
    return python


def measure(options: argparse.Namespace) -> report.Results:
    """Measure everything that the options ask for."""
    import data_sets
    import questions
    from comparison import Comparison
    from systems.registry import systems
    from systems.system import is_installed

    known = systems()
    asked = [name for name in known if report.is_ours(name) or is_asked(name, options.peers)]
    names = [name for name in asked if is_installed(known[name])]
    for wanted, there in (
        (options.data, data_sets.DATA_SETS),
        (options.peers, known),
        (options.tasks, questions.TASKS),
    ):
        if unknown := set(wanted or ()).difference(there):
            raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(there)}")
    for name in asked:
        if name not in names:
            print(f"{name} is left out: {known[name].package} is not installed", file=sys.stderr)
    results = {
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "settings": {"rounds": options.rounds, "first": options.first, "scale": options.scale},
        "load": [],
        "data": {},
        "runs": {},
    }
    folder = Path(tempfile.mkdtemp(prefix="peers-", dir=data_sets.cache_folder()))
    try:
        for data in options.data or data_sets.DATA_SETS:
            data_sets.prepare(data, options.scale)
            Comparison(
                data,
                names,
                options.tasks,
                folder,
                scale=options.scale,
                rounds=options.rounds,
                first=options.first,
                patience=options.patience,
            ).run(results)
            if options.output:
                # Hours of work must not be lost with the last data set.
                options.output.write_text(as_json(results) + "\n", encoding="utf-8")
    finally:
        shutil.rmtree(folder)
    return results


def is_asked(name: str, peers: Sequence[str] | None) -> bool:
    return peers is None or name in peers


def machine() -> dict[str, object]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": processor(),
        "cores": cores,
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
    }


def processor() -> str:
    """Return the name of the processor; Python knows it only on some systems."""
    facts = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.+)$", facts.read_text(), re.M) if facts.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Return the versions of the installed packages, and the commit of ours."""
    found = {}
    for name in VERSIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    command = ["git", "-C", str(HERE), "rev-parse", "--short=10", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        found["blztable"] = f"{found.get('blztable', '')} ({done.stdout.strip()})".strip()
    return found


def as_json(value: object, depth: int = 0) -> str:
    """Return JSON with a line for each dict that holds no other, such as a system's figures."""
    if not isinstance(value, dict) or not any(isinstance(one, dict) for one in value.values()):
        return json.dumps(value, ensure_ascii=False)
    pairs = (f"{json.dumps(name)}: {as_json(one, depth + 1)}" for name, one in value.items())
    space = "\n" + " " * depth
    return "{" + space + " " + f",{space} ".join(pairs) + space + "}"


def stored() -> list[report.Results]:
    """Return the stored results, each of a measurement by itself."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in STORED]


def publish(results: Sequence[report.Results], page: Path, folder: Path) -> None:
    """Put the tables between the marks of the page, and draw the pictures."""
    before, after = MARKS
    head, _, rest = page.read_text(encoding="utf-8").partition(before)
    _, mark, tail = rest.partition(after)
    if not mark:
        raise SystemExit(f"{page} has no place for the tables: {before.strip()}, {after.strip()}")
    page.write_text(head + before + section(results) + after + tail, encoding="utf-8")
    for old in folder.glob("peers-*.svg"):
        old.unlink()
    for name, (_, drawn) in drawings(results).items():
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(drawn, encoding="utf-8")


def section(results: Sequence[report.Results]) -> str:
    """Return what stands between the marks: the tables, then the pictures."""
    shown = [f"![{title}](_static/{name})\n" for name, (title, _) in drawings(results).items()]
    return "\n".join([*map(report.summary, results), *shown])


def drawings(several: Sequence[report.Results]) -> dict[str, tuple[str, str]]:
    """Return the titles and pictures by file name; none where nothing was timed."""
    results: report.Results = {"data": {}, "runs": {}}
    for one in several:
        for key, known in results.items():
            known |= one[key]
    found = {
        "peers-size-and-read.svg": ("Size and time to read", pictures.sizes_and_reads(results)),
        "peers-lineitem.svg": ("Tasks on lineitem", pictures.bars(results, "lineitem")),
        "peers-flights.svg": ("Tasks on flights", pictures.bars(results, "flights")),
    }
    return {name: (title, drawn) for name, (title, drawn) in found.items() if drawn}


if __name__ == "__main__":
    main()
