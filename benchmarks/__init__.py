"""Benchmarks: `asv` finds the suites of tables.py and shapes.py; compare.py is run by itself.

Files here import each other by their bare names, as a script does; asv imports them as a package,
so the folder is put on the path for it.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
