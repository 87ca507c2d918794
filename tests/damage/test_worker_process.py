"""The worker of the damage tests: what it must notice, it notices, and the next request is well."""

import os
import signal
import time

import pytest

from support.worker_process import Captive, Lost


def obedient():
    """In the worker: do as told."""

    def answer(request):
        match request:
            case "die":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "hang":
                time.sleep(60)
            case "grow":
                return len(bytearray(b"x" * (40 << 20)))
            case "ask for more":
                with pytest.raises(MemoryError):
                    bytearray(2 << 30)
        return request

    return answer


@pytest.mark.parametrize(
    ("request_", "told"),
    [("die", "died, exit -11"), ("hang", "no answer in 1 s")],
)
def test_a_worker_that_is_lost_is_told_and_replaced(request_, told):
    with Captive(obedient, seconds=1) as worker:
        with pytest.raises(Lost, match=told) as caught:
            worker.ask(request_)
        assert "in answer" in str(caught.value)  # the trace of its last moment
        assert worker.ask("well") == "well"


def test_memory_beyond_the_bound_is_told():
    with Captive(obedient, growth=32 << 20) as worker:
        with pytest.raises(Lost, match="MiB of memory"):
            worker.ask("grow")
        assert worker.ask("ask for more") == "ask for more"
