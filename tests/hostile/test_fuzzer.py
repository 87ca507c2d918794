"""The fuzzer, run on its first cases; `support/fuzzer.py` runs for longer."""

from support import fuzzer
from support.worker_process import WorkerProcess


def test_the_fuzzer_finds_nothing_in_its_first_cases():
    with WorkerProcess(fuzzer.worker, 0, growth=600 << 20) as worker:
        for case in range(300):
            assert worker.ask(case)[1] == "", f"seed 0, case {case}"
