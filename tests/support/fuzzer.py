"""A fuzzer of the decoders: small files, edited behind valid checksums, read in every way.

    PYTHONPATH=.:tests python -m support.fuzzer --minutes 60 --out findings

The kinds of cases are the files of `support/fuzzed/`, in turn; `--what` chooses some. Each case
depends on the seed and its number only, and a worker process reads it. A case fails if the worker
dies, hangs or takes too much memory, if an exception is no `BlzError`, or if the data are invalid.
Failed cases are saved below `--out`, one for each place of failure; `--case` runs one case again in
this process.
"""

import argparse
import collections
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import blosc

from support.fuzzed import arrays, chunks, old_files, one_file, tables
from support.worker_process import WorkerLost, WorkerProcess

# Each has `seeds`, `mutated`, `read_all` and `save`.
KINDS: dict[str, ModuleType] = {
    "tables": tables,
    "files": one_file,
    "arrays": arrays,
    "old": old_files,
    "chunks": chunks,
}
RENEWED_AFTER = 5000


class Cases:
    """The cases of a seed: their kinds, and the files that they change."""

    def __init__(self, seed: int, what: str, only: str) -> None:
        self.seed = seed
        names = what.split(",") if what else list(KINDS)
        self._seeds = [(KINDS[name], KINDS[name].seeds(only)) for name in names]

    def of(self, case: int) -> tuple[Random, ModuleType, dict[str, Any]]:
        """Return the source of randomness of a case, its kind and the files of the kind."""
        return Random(f"{self.seed}/{case}"), *self._seeds[case % len(self._seeds)]

    def result(self, case: int) -> str:
        """Return the outcome of a case, or an unexpected exception."""
        random, kind, seeds = self.of(case)
        subject, _ = kind.mutated(random, seeds)
        return kind.read_all(random, subject)

    def save(self, case: int, path: Path, place: str, reason: str) -> None:
        """Save what the case read, and its mutations."""
        random, kind, seeds = self.of(case)
        path.mkdir(parents=True, exist_ok=True)
        subject, done = kind.mutated(random, seeds)
        kind.save(subject, path)
        lines = [place, f"seed {self.seed}, case {case}", *done, "", reason]
        (path / "what.txt").write_text("\n".join(lines), errors="backslashreplace")


def worker(seed: int, what: str = "", only: str = "") -> Callable[[int], tuple[str, str]]:
    """Run in the worker: return the outcome of a case and the place of its failure."""
    cases = Cases(seed, what, only)
    blosc.set_nthreads(1)

    def answer(case: int) -> tuple[str, str]:
        # Warnings of pandas about labels that a later version will refuse.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        try:
            return cases.result(case), ""
        except BaseException as error:
            return "failed", "".join(traceback.format_exception(error))

    return answer


def run(
    seed: int, first: int, seconds: float, out: Path, what: str = "", only: str = ""
) -> collections.Counter[str]:
    """Run cases until the time is over; save those that fail."""
    out.mkdir(parents=True, exist_ok=True)
    cases = Cases(seed, what, only)
    counts, seen = collections.Counter[str](), collections.Counter[str]()
    begin = told = time.monotonic()
    case = first
    while time.monotonic() < begin + seconds:
        with WorkerProcess(worker, seed, what, only, growth=600 << 20) as process:
            for _ in range(RENEWED_AFTER):
                try:
                    result, reason = process.ask(case)
                except WorkerLost as lost:
                    result, reason = "lost", str(lost)
                counts[result] += 1
                if reason:
                    place = where(reason)
                    seen[place] += 1
                    if seen[place] <= 3:
                        cases.save(case, out / f"{seed}-{case}", place, reason)
                now = time.monotonic()
                if now > told + 60 or now > begin + seconds:
                    told = now
                    speed = counts.total() / (now - begin)
                    print(f"{now - begin:.0f} s, case {case}, {speed:.1f} a second, {dict(counts)}")
                    for place, count in seen.most_common():
                        print(f"  {count} {place}")
                    sys.stdout.flush()
                    if now > begin + seconds:
                        break
                case += 1
    return counts


def where(reason: str) -> str:
    """Return the key of a failure: its exception, and the last lines of ours in its traceback."""
    lines = reason.splitlines()
    ours = [line.strip() for line in lines if "blztable/" in line and line.strip()[:4] == "File"]
    if lines[0].startswith("Traceback"):
        return f"{lines[-1][:100]} at {' < '.join(reversed(ours[-1:]))}"
    return f"{lines[0][:60]} at {' < '.join(ours[:1])}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="run this case alone, in this process")
    parser.add_argument("--what", default="", help=f"kinds with commas, of {','.join(KINDS)}")
    parser.add_argument("--only", default="", help="files whose names begin with this")
    parser.add_argument("--out", type=Path, default=Path("findings"))
    chosen = parser.parse_args()
    if chosen.case is not None:
        print(Cases(chosen.seed, chosen.what, chosen.only).result(chosen.case))
        return 0
    # Arrow, in the workers, checks for writes past its buffers.
    os.environ.setdefault("ARROW_DEBUG_MEMORY_POOL", "abort")
    counts = run(
        chosen.seed, chosen.first, chosen.minutes * 60, chosen.out, chosen.what, chosen.only
    )
    return int(counts["failed"] + counts["lost"] > 0)


if __name__ == "__main__":
    sys.exit(main())
