"""Benchmarks: the comparison peers.py, the programs appends.py and memory.py, suites for `asv`.

The files import each other by their bare names, as scripts do. asv imports them as a package, so
this file puts the folder on the path.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
