"""The folders of the crash tests lie in memory, where the system has a file system there.

A model says what a loss of power leaves, so no test here looks at a real flush. Thousands of states
are written and removed, and a disk takes milliseconds to remove a directory.
"""

import os
import tempfile
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path(tmp_path):
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)
