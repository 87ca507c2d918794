"""The fuzzer, run on its first cases; `support/fuzzer.py` runs for longer."""

import pytest

from support import fuzzer
from support.worker_process import WorkerProcess

CASES = {"tables": 60, "files": 8, "arrays": 80, "old": 12, "chunks": 10}


@pytest.mark.parametrize("what", fuzzer.KINDS)
def test_the_fuzzer_finds_nothing_in_its_first_cases(what):
    with WorkerProcess(fuzzer.worker, 0, what, growth=600 << 20) as worker:
        for case in range(CASES[what]):
            assert worker.ask(case)[1] == "", f"kind {what}, seed 0, case {case}"
