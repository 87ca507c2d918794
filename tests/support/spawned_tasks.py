"""What tests of parts and fragments do in spawned processes, which import it by its name."""

import json
import os
import signal

import pyarrow as pa

import blztable as blz


def read(part, columns=None, filters=None):
    """Read a part."""
    return part.to_pandas(columns, filters=filters)


def written(job, task, data, **options):
    """Write a fragment."""
    return blz.write_fragment(job, data, task, **options)


def begin_and_die(path):
    """Begin a job, write a fragment, say both, and be killed."""
    job = blz.begin(path)
    with open(f"{path}.said", "w") as file:
        json.dump([job, blz.write_fragment(job, pa.table({"n": [1]}), 0)], file)
    os.kill(os.getpid(), signal.SIGKILL)


def write_and_die(job):
    """Be killed while a fragment is written."""

    def items():
        yield pa.table({"n": range(100)})
        os.kill(os.getpid(), signal.SIGKILL)

    blz.write_fragment(job, items(), 1)
